"""WEIGHTS and MATMUL: address generators, weight loader and the PE array behind them."""
