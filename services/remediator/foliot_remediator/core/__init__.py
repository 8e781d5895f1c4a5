"""What the remediator decides, without I/O: the time comes with the calls."""
