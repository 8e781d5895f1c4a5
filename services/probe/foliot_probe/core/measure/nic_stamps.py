"""Whether a NIC stamps as it says: its stamps are held against the kernel's before they are used, and as long as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Times = NDArray[np.int64]

EARLY_NS = 250_000
"""A stamp of the NIC's is odd that lies further on the wrong side of the kernel's. A packet passes the NIC after the
kernel when it leaves, and before it when it comes. Readings of the NIC's clock say where that is, ten times a second:
at 200 ppm, the clocks run 20 µs apart meanwhile, and ten times that if the event loop is late."""
LATE_NS = 2_000_000
"""So is one that lies further on the right side. Interrupts are held back for some ten microseconds. Where the kernel
is later than that, its own stamps are worse than odd ones."""
PACKETS, STAMPED, ODD = range(3)
"""What is counted for each place and direction: packets that the kernel stamped, those of them that the NIC stamped,
and odd stamps among these."""

_ENOUGH = 16
"""Packets on which a verdict rests, in each direction."""
_WELL = 5
"""Verdicts in a row until a NIC is offered to the clocks."""
_HOLD, _LONGEST_HOLD = 60, 3_600
"""Checks for which a NIC that was given up is left alone: a minute, twice as long each time, and an hour at most."""
_STEADY = 600
"""Checks after which a NIC's former failures are forgotten."""

Reason = Literal["unread", "set", "lost", "odd", "disrupted"]


def odd(gap_ns: Times) -> NDArray[np.bool_]:
    """Which stamps are odd, by how far the kernel's and the NIC's are apart: positive on the right side."""
    return (gap_ns < -EARLY_NS) | (gap_ns > LATE_NS)


class Verdict(NamedTuple):
    """What a direction's counts say."""

    good: bool
    reason: Reason | None
    """Why the NIC is to be given up; None: it is not."""


def judge(counts: NDArray[Any]) -> Verdict:
    """Judges a direction by its counts (`PACKETS`, `STAMPED`, `ODD`)."""
    packets, stamped, strange = (int(each) for each in counts)
    good = 8 * stamped >= 7 * packets and 8 * strange <= stamped
    if 4 * strange > stamped:
        return Verdict(good, "odd")
    return Verdict(good, "lost" if 2 * stamped < packets else None)


class NicTrust:
    """Whether the stamps of a NIC are to be used. One check a second is meant."""

    def __init__(self) -> None:
        self.trusted = False
        """Whether streams are stamped by the NIC."""
        self._counts = np.zeros((2, 3), np.int64)
        self._good = 0
        self._hold = 0
        self._next_hold = _HOLD
        self._age = 0

    @property
    def offered(self) -> bool:
        """Whether the NIC's clock is worth being measured against its host's."""
        return self.trusted or self._good >= _WELL

    def check(self, counts: NDArray[Any], *, known: bool) -> Reason | None:
        """Takes what was counted since the last check.

        Parameters:
            counts: of packets that left and that came, see `PACKETS`.
            known: whether sync knows the NIC's clock.

        Returns:
            why the NIC was given up just now; None: it was not.
        """
        if self._hold:
            self._hold -= 1
            return None
        self._counts += counts
        self._age += self.trusted
        if self._age >= _STEADY:
            self._next_hold = _HOLD
        enough = self._counts[:, PACKETS] >= _ENOUGH
        verdicts = [judge(each) for each in self._counts[enough]]
        reason = next((each.reason for each in verdicts if each.reason), None)
        if reason is not None:
            return self.give_up(reason)
        if enough.all():
            self._counts[:] = 0
            self._good = self._good + 1 if all(each.good for each in verdicts) else 0
        self.trusted = self.trusted or (self.offered and known)
        return None

    def give_up(self, reason: Reason) -> Reason | None:
        """Uses the NIC's stamps no more, for some time; returns the reason if they were used."""
        was_trusted, self.trusted = self.trusted, False
        self._counts[:] = 0
        self._good = self._age = 0
        if not was_trusted:
            return None
        self._hold, self._next_hold = self._next_hold, min(2 * self._next_hold, _LONGEST_HOLD)
        return reason
