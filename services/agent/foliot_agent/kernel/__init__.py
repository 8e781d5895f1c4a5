"""The agent's kernel objects: devices, restored routes, and a dry run."""
