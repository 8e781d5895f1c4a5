"""The common time: its source, and its steering."""
