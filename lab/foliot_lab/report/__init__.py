"""What a run came to: the report, and its verdict."""
