"""What all command lines share: Ctrl-C, and files that appear whole or not at all."""
