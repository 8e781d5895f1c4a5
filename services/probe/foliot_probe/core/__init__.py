"""What the probe makes of packets, without I/O."""
