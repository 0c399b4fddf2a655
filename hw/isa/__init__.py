"""The one command encoding: opcodes, fields, error codes and the numbers of a batch."""
