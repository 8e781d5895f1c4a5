"""Makes a host a node, and undoes it: checks, settings, systemd units."""
