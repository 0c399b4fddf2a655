"""The model of the machine beside the RTL's own counters."""
