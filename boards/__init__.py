"""Boards with an FPGA and a memory: from generated Verilog to a bitstream, and a simulation."""
