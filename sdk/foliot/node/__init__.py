"""A node: its addresses, NICs, link messages, claims and shard."""
