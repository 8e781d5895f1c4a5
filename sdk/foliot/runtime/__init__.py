"""The life of a service: start, supervision, end."""
