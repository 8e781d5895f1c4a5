"""What sync costs in a large fleet."""
