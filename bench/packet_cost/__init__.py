"""The bench packet-cost: see `__main__`."""
