"""Variance-Controlled Adaptive Sampling (VCAS, arXiv:2402.17227): backpropagation of a sample.

The gradient of a layer's output is kept for some images only, and the rows of the product for its
weights are sampled once more; what is kept is scaled so that every gradient stays unbiased. A
controller chooses how much is kept: the variance that sampling adds stays a small share of what
SGD has anyway. docs/algorithm.md defines every step.
"""
