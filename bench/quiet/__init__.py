"""The quiet bench: disturbances that are no path's fault must cause no events and no moves."""
