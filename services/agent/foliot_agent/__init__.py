"""Carries out commands on a node, reports what it did, can undo it."""
