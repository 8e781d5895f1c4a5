"""Transfers that Gloo forgets as a group's connections end, by the manner in which they are ended."""
