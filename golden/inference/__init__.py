"""Forward passes of whole networks."""
