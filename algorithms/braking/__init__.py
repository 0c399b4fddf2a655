"""Adaptive Braking (arXiv:2007.01397) for momentum, and gradients that come late.

A step in the direction in which the velocity already points is made smaller, one against it larger,
filter by filter. That damps the oscillation which late gradients cause, as in pipelines whose
stages do not wait for each other. docs/algorithm.md defines both.
"""
