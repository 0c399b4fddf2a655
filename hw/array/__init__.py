"""The PE array: operand decoders, columns of PEs, rounding of partial sums."""
