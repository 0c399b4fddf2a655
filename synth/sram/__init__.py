"""On-chip memories by CACTI."""
