"""The simulated accelerator: harness, driver, records of runs."""
