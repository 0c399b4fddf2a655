"""The accelerator in a LiteX SoC, its memory behind LiteDRAM; needs the extra ``litex``."""
