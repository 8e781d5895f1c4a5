"""Simulated stamps, exact to the nanosecond. They measure the sync chain, because real clocks hide their true time."""
