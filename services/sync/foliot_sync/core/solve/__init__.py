"""All pairs of a window solved together, over the mesh."""
