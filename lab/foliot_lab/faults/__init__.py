"""Faults of a lab: their actions, and the timeline that injects and heals them."""
