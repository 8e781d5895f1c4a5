"""Replays recorded stamps of two clocks through Foliot's chain, a minimum filter and a model of chrony's, on the same stamps."""
