"""Foliot's clocks beside chrony's and ptp4l's, on one wire at one time."""
