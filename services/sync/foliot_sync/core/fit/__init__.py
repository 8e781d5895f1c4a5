"""From a window's stamps to the offset and drift of each pair of clocks."""
