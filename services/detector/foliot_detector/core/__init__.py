"""The detectors and what they stand on, without I/O."""
