"""Examples to copy: a testbench in plain Verilog, and a driver in C; what they run is made here."""
