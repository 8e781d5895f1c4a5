"""Training jobs that hang, and the ranks that hold them up."""
