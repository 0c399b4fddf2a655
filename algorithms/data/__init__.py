"""Data sets that install without a download of their own."""
