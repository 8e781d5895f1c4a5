"""The rate of probing of each stream."""
