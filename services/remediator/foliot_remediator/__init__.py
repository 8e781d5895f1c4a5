"""Events in, commands out: path states, guards, armed backups."""
