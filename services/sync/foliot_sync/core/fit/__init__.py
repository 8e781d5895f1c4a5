"""The fit: offset and drift of each pair of clocks, from a window's stamps."""
