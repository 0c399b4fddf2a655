"""On-chip memories: the banked operand buffer and the accumulators."""
