"""How often each stream is probed."""
