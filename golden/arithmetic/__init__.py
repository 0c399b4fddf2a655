"""Number formats and operations, bit by bit."""
