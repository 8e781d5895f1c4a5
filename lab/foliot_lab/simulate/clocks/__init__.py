"""Simulated stamps, exact to the nanosecond. They measure the sync chain, as real clocks hide their truth."""
