"""What all command lines share: Ctrl-C, files that appear whole or not at all, where to build."""
