"""How layers are cut into pieces that fit into the buffer."""
