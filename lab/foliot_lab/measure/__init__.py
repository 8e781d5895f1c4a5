"""Measurements of a lab: the wire, clocks, the machine, the bus."""
