"""Paths that fell silent: claims, and what it takes to believe them."""
