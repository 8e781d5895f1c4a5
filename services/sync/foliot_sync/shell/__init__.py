"""What of sync speaks to the bus: shards that fit, and the one that leads."""
