"""What stands around the accelerator on a board: host link, memory controller, clocks, pins."""
