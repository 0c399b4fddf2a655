"""From torch modules to graphs."""
