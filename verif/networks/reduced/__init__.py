"""The networks of the paper at reduced width on the RTL."""
