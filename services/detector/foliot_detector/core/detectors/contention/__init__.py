"""Where flows get less than they could, and whose doing that is."""
