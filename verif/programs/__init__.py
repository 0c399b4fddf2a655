"""Programs for the whole accelerator, right and wrong ones."""
