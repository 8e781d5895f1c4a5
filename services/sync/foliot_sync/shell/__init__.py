"""The parts of sync that use the bus: the shards that fit, and the leader."""
