"""What is compiled: every block of the machine, a cycle at a time."""
