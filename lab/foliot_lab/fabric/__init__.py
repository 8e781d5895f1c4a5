"""The fabric: namespaces, links, routes, and what they carry."""
