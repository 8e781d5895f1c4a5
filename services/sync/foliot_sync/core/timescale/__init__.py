"""The common time: what it follows, and how it is steered."""
