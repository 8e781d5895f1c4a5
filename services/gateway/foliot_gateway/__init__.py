"""HTTP, the trace store, metrics."""
