"""Networks of one's own on the accelerator, through the host's API: programs to copy."""
