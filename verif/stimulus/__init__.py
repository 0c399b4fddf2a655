"""Random commands and operands, shared by testbenches."""
