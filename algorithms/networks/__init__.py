"""Networks: the paper's and small ones for tests."""
