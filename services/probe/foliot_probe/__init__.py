"""Timestamps on the wire, ports and counters, synchronised path delays."""
