"""A board trains a network, operated by a program in C."""
