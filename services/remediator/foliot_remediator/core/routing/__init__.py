"""Where traffic can go: the choice of a path, the plan of a reroute, the backups that are armed."""
