"""What the fabric carries during a run."""
