"""What a lab sees: the wire, clocks, the machine, the bus."""
