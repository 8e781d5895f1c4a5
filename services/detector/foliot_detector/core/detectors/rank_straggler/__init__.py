"""Ranks of training jobs for which the others wait in each step."""
