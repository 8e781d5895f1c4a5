"""Stamps of fleets that do not exist, exact to the nanosecond: what the sync chain is measured with where real clocks hide their truth."""
