"""Tracks of the clocks over time."""
