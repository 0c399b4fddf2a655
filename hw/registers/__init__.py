"""The one register description, the register file and the performance counters."""
