"""Scenarios: the description of a run, and the checks of it."""
