"""Policies by which each host moves its own flows, and knows of nobody else's: those of PLB and of Hopper."""
