"""The paper's evaluation with our numbers beside it: ``python -m perf report``."""
