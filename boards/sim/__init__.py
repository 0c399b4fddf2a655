"""A board in Verilator: the top with its pins, a model of the SDRAM chip, a host at the UART."""
