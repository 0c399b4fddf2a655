"""Standard cells: mapping, area, timing and power."""
