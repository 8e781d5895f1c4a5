"""Checks at the start, by the first probes, that the kernel stamps a socket's packets in both directions.

The check believes no flag of a driver. Some devices promise stamps that never come, and some kernels stamp where tools say that they
cannot. No stamp is used until the first one has come, or has failed to come for long enough. Once one has come, a missing stamp
means that a packet did not leave, and the socket never falls back to stamps from user space.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import structlog

from foliot_probe.core.packet import KERNEL, USER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Places = NDArray[np.intp]

log = structlog.get_logger()

PATIENCE = 64
"""Probes without any stamp after which user-space stamps are used. The first packets after stamps were asked for may
lack theirs, and packets wait without a stamp while a neighbour is being resolved."""


class StampCheck:
    """The verdict on one direction of one socket."""

    def __init__(self) -> None:
        self._unstamped = 0
        self.kind: int | None = None
        """`KERNEL` or `USER`; None: too early to say."""

    def note(self, packets: int, stamped: int) -> None:
        """Count packets that were sent or heard, and those that came with a stamp. A late stamp still makes the kind `KERNEL`."""
        if stamped:
            self.kind = KERNEL
        elif self.kind is None:
            self._unstamped += packets
            if self._unstamped >= PATIENCE:
                self.kind = USER


def worse(transmit: StampCheck, receive: StampCheck) -> int:
    """The kind of stamps of a socket: that of its worse direction; `USER` while nothing is known."""
    return max(USER if check.kind is None else check.kind for check in (transmit, receive))


class StampChecks:
    """The verdicts on both directions of all sockets of a node.

    Parameters:
        addresses: of the sockets.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self.kind = np.full(len(addresses), USER)
        """The kind of stamp of each socket's worse direction."""
        self._addresses = addresses
        self._checks = [(StampCheck(), StampCheck()) for _ in addresses]
        self._sent = [0] * len(addresses)
        self._settled = False

    def sent_by_hand(self, place: int, went: NDArray[np.bool_]) -> bool:
        """Note packets that were given to a socket, and which of them went; returns whether they need stamps from user space."""
        check = self._checks[place][0]
        if check.kind == KERNEL:
            return False
        # Only packets of the last tick have had the time to come back with their stamps.
        check.note(self._sent[place], 0)
        self._sent[place] = int(np.count_nonzero(went))
        self._judge(place)
        return check.kind == USER

    def left(self, places: Places) -> None:
        """Note packets that these sockets handed back with a stamp, one each."""
        self._note(0, places, np.ones(len(places), np.bool_))

    def came(self, places: Places, stamped: NDArray[np.bool_]) -> None:
        """Note packets that came to these sockets, with a stamp or without one."""
        self._note(1, places, stamped)

    def received_by_hand(self) -> NDArray[np.bool_]:
        """Whether a packet without a stamp needs one from user space, for each socket."""
        return np.array([check.kind == USER for _, check in self._checks])

    def _note(self, direction: int, places: Places, stamped: NDArray[np.bool_]) -> None:
        if self._settled:
            return
        for place, checks in enumerate(self._checks):
            check = checks[direction]
            if check.kind != KERNEL:
                here = places == place
                before = check.kind
                check.note(int(np.count_nonzero(here)), int(np.count_nonzero(here & stamped)))
                self._judge(place)
                if check.kind == USER and before != USER:
                    way = ("transmit", "receive")[direction]
                    log.warning("stamps_missing", address=self._addresses[place], direction=way)
        self._settled = bool((self.kind == KERNEL).all())

    def _judge(self, place: int) -> None:
        self.kind[place] = worse(*self._checks[place])
