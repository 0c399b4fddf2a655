"""All variants side by side, beside the paper."""
