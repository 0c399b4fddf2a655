"""Verilog text: from Amaranth's intermediate form to what every simulator reads the same way."""
