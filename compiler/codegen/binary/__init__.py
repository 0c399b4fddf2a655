"""Commands as bytes: encoded, packed, and in files."""
