"""LOAD and STORE: bursts between DRAM and the buffer."""
