"""State that the detectors share: the inventory, signs of life, paths, ports, the time of events."""
