"""A real training job and dead links: without Foliot, with it, and what its peers make of the same faults."""
