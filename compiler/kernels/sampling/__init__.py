"""Samples of images for backward passes (VCAS): who is kept, and copies of those who are."""
