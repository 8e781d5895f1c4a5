"""Whether the kernel stamps what a socket sends and receives, learnt at start-up from the first probes themselves.

No flag that a driver shows is believed: some devices promise stamps that never come (and some kernels stamp where tools say
that they cannot). Until the first stamp has come, or has failed to come for long enough, no stamp is used at all. Once one
has come, a missing stamp means a packet that did not leave, and never falls back.
"""

from __future__ import annotations

from foliot_probe.packet import KERNEL, USER

PATIENCE = 64
"""Probes without any stamp after which user-space stamps are used. The first packets after stamps were asked for may
lack theirs, and packets wait without a stamp while a neighbour is being resolved."""


class StampCheck:
    """The verdict on one direction of one socket."""

    def __init__(self) -> None:
        self._unstamped = 0
        self._verdict: int | None = None

    @property
    def kind(self) -> int | None:
        """`KERNEL` or `USER`; None: too early to say."""
        return self._verdict

    def note(self, packets: int, stamped: int) -> None:
        """Count packets that were sent or heard, and those that came with a stamp; a late stamp still convinces."""
        if stamped:
            self._verdict = KERNEL
        elif self._verdict is None:
            self._unstamped += packets
            if self._unstamped >= PATIENCE:
                self._verdict = USER


def worse(transmit: StampCheck, receive: StampCheck) -> int:
    """The kind of stamps of a socket: that of its worse direction; `USER` while nothing is known."""
    return max(USER if check.kind is None else check.kind for check in (transmit, receive))
