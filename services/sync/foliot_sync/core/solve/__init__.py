"""Solves all pairs of a window together, over the mesh."""
