"""Paths and NICs that lose packets without falling silent."""
