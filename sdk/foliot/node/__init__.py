"""What a node is: its addresses, its NICs, its links, its claims, its shard."""
