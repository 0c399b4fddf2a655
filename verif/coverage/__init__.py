"""What the simulated runs reach: lines, toggles and functional points of the accelerator."""
