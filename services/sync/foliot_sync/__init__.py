"""The offset and drift of every clock, with an honest bound."""
