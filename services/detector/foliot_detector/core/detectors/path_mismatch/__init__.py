"""Traffic that does not take the path that is probed for it: settings, least delays, round trips, detector."""
