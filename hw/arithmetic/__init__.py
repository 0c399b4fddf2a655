"""Units for numbers: addition, multiplication, division, exponential, conversion."""
