"""Benches that answered a question once, and can be run again: what a part of the clock is worth, what the overlay costs, how peers do."""
