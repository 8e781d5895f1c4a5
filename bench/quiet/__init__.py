"""The bench of doing no harm."""
