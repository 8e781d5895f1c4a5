"""A simulation of a fleet in virtual time, around the services' own cores. Deterministic by seed; no sockets."""
