"""Writes an accelerator as files: Verilog, manifest, C header, register documentation."""
