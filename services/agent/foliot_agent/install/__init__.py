"""What makes a host a node: what it can do, its settings, its units; and what undoes it."""
