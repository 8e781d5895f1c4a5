"""The agent's decisions, without I/O."""
