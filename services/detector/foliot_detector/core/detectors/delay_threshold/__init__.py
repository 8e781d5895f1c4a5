"""Thresholds of the user's own on one-way delays."""
