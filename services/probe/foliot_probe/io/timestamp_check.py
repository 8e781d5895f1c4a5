"""Checks at the start, by the first probes, that the kernel stamps a socket's packets in both directions.

The check believes no flag of a driver. Some devices promise stamps that never come, and some kernels stamp where tools
say that they cannot. No stamp is used until the first one has come, or has failed to come for long enough. Once one has
come, a missing stamp means that a packet did not leave, and the socket never falls back to stamps from user space.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from foliot_probe.core.packet import KERNEL, USER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Places = NDArray[np.intp]

PATIENCE = 64
"""Probes without any stamp after which user-space stamps are used. The first packets after stamps were asked for may
lack theirs, and packets wait without a stamp while a neighbour is being resolved."""


_LEFT, _CAME = range(2)
DIRECTIONS = ("transmit", "receive")
"""Of packets: those that leave, and those that come."""


class StampChecks:
    """The verdicts on both directions of all sockets of a node, by place."""

    def __init__(self, places: int) -> None:
        self.kind = np.full(places, USER)
        """The kind of stamp of each socket's worse direction; `USER` while nothing is known."""
        self._kinds: list[list[int | None]] = [[None, None] for _ in range(places)]
        """Of each socket's two directions; None: too early to say."""
        self._unstamped = [[0, 0] for _ in range(places)]
        self._missing: list[tuple[int, int]] = []
        self._sent = [0] * places
        self._settled = False

    def sent_by_hand(self, place: int, went: NDArray[np.bool_]) -> bool:
        """Note packets that were given to a socket, and which of them went.

        Returns whether they need stamps from user space.
        """
        if self._kinds[place][_LEFT] == KERNEL:
            return False
        # Only packets of the last tick have had the time to come back with their stamps.
        self._note(place, _LEFT, self._sent[place], 0)
        self._sent[place] = int(np.count_nonzero(went))
        return self._kinds[place][_LEFT] == USER

    def left(self, places: Places) -> None:
        """Note packets that these sockets handed back with a stamp, one each."""
        self._note_all(_LEFT, places, np.ones(len(places), np.bool_))

    def came(self, places: Places, stamped: NDArray[np.bool_]) -> None:
        """Note packets that came to these sockets, with a stamp or without one."""
        self._note_all(_CAME, places, stamped)

    def take_missing(self) -> list[tuple[int, int]]:
        """The sockets found since the last call that have no stamps, and for which of `DIRECTIONS`."""
        missing, self._missing = self._missing, []
        return missing

    def received_by_hand(self) -> NDArray[np.bool_]:
        """Whether a packet without a stamp needs one from user space, for each socket."""
        return np.array([kinds[_CAME] == USER for kinds in self._kinds])

    def _note_all(self, direction: int, places: Places, stamped: NDArray[np.bool_]) -> None:
        if self._settled:
            return
        for place in np.unique(places).tolist():
            here = places == place
            self._note(place, direction, int(np.count_nonzero(here)), int(np.count_nonzero(here & stamped)))
        self._settled = bool((self.kind == KERNEL).all())

    def _note(self, place: int, direction: int, packets: int, stamped: int) -> None:
        """Count packets sent or heard, and those that came with a stamp; a late one still makes the kind `KERNEL`."""
        kinds, unstamped = self._kinds[place], self._unstamped[place]
        if stamped:
            kinds[direction] = KERNEL
        elif kinds[direction] is None:
            unstamped[direction] += packets
            if unstamped[direction] >= PATIENCE:
                kinds[direction] = USER
                self._missing.append((place, direction))
        self.kind[place] = max(USER if kind is None else kind for kind in kinds)
