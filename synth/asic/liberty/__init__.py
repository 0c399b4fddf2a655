"""Reading standard-cell libraries."""
