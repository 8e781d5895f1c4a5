"""HTTP: the API, the page, server-sent events, metrics."""
