"""Flows, the links that they share, and a better assignment of flows to ways. Pure arithmetic on arrays."""
