"""The failover bench: a training job and dead links, without Foliot, with it, and with its peers on the same faults."""
