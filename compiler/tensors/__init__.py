"""Tensors in DRAM: layout, encoding, planning of memory."""
