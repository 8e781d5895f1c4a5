"""Inner loops of Foliot's probe and sync, compiled. It knows nothing of Foliot but numbers, and needs numpy at most.

Each function has a twin in Python, which does the same where nothing was compiled. `foliot.native` chooses.
"""

INTERFACE = 1
"""Raised whenever a function's signature or meaning changes: `foliot.native` takes no other than it was written for."""
