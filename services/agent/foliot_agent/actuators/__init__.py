"""The interface by which traffic is moved, and its makers."""
