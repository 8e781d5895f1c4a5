"""The chaos bench: services and bus servers are killed, halted and restarted in the middle of faults."""
