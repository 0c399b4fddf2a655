"""Benchmarks from the performance counters."""
