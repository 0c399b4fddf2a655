"""Testbenches of the memories."""
