"""The clock-scale bench: the cost of sync in a large fleet."""
