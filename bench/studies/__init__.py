"""Studies: benches that answered a question once, and can be run again."""
