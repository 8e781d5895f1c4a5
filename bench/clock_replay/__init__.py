"""Replays the same recorded stamps of two clocks through Foliot's chain, a minimum filter and a model of chrony's."""
