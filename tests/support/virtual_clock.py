"""Virtual time."""

from __future__ import annotations


class VirtualClock:
    """See `foliot.clock.Clock`: one that moves only when it is told to."""

    def __init__(self, name: str = "virtual", now_ns: int = 1_000_000_000_000_000_000) -> None:
        self.name = name
        self._now_ns = now_ns
        self.known_bound_ns = 100

    def local_ns(self) -> int:
        """The same as `now_ns`."""
        return self._now_ns

    def now_ns(self) -> int:
        """The time that was set."""
        return self._now_ns

    def bound_ns(self) -> int:
        """`known_bound_ns`."""
        return self.known_bound_ns

    def advance(self, by_ns: int) -> None:
        """Moves it on."""
        self._now_ns += by_ns
