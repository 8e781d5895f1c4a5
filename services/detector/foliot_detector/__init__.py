"""Observations in, events out: one file per kind of trouble."""
