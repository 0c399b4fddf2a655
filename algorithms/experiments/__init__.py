"""Experiments: methods, runs, reports and plots."""
