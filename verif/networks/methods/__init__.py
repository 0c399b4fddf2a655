"""Training with Adaptive Braking, echoes of the head and VCAS on the RTL."""
