"""Controller for a 16-bit SDR SDRAM with an AXI4 port."""
