"""The last ids that were seen, to find a message's second delivery."""

from __future__ import annotations

import collections


class RecentIds:
    """Keys in the order in which they came. Of more than `most`, the oldest is forgotten first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._keys: collections.OrderedDict[str, None] = collections.OrderedDict()

    def __contains__(self, key: str) -> bool:
        """Whether an id came, and is still remembered."""
        return key in self._keys

    def add(self, key: str) -> bool:
        """Adds an id; returns whether it is new."""
        if key in self._keys:
            return False
        self._keys[key] = None
        if len(self._keys) > self._most:
            self._keys.popitem(last=False)
        return True
