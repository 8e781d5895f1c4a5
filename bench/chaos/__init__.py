"""No way to kill it: services and bus servers are killed, halted and restarted in the middle of faults."""
