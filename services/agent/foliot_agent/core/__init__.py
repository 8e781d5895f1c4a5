"""What the agent decides, without I/O."""
