"""The estimator, without I/O: stamps in, the state of every clock out."""
