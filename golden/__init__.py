"""Reference models: what the hardware must compute, written without looking at it."""
