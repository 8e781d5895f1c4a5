"""A fleet in virtual time with the services' own cores in it, to see what they make of lateness. Deterministic by seed; no sockets."""
