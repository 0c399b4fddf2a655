"""VECTOR: float32 operations on streams of buffer words."""
