"""Signatures of all buses, and what joins and splits them."""
