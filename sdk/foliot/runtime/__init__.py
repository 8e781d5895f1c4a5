"""How a service starts, lives and ends."""
