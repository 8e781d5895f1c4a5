"""From probes to sessions, silence, delays and windows of stamps."""
