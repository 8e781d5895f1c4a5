"""Messages between agents without the bus."""
