"""What moves traffic: the interface, and its makers."""
