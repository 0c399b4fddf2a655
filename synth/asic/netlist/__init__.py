"""Timing, activity and power of mapped netlists."""
