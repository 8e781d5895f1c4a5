"""The remediator's decisions, without I/O: the time comes with the calls."""
