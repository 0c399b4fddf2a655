"""From a board's configuration to a bitstream: constraints, place and route, packing."""
