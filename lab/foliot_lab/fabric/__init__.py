"""The fabric: namespaces, links, routes and link shaping."""
