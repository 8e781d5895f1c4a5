"""The nodes' reports on their ports, as the remediator hears them itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from foliot_schemas.names import node_of
from foliot_schemas.port_order import BELIEVED_NS, is_old

if TYPE_CHECKING:
    from foliot_schemas import PortState

RECENT_NS = 3_000_000_000
"""Ports report every second."""


class Port(NamedTuple):
    """The last word of a port.

    It counts as of when it was said, however late it came. Times are those of this process, but for `bad_said_ns`.
    """

    good: bool
    since_ns: int
    """Since when its reports have said the same."""
    at_ns: int
    """When the last one was said."""
    bad_said_ns: int
    """When, by the node's time, it last said that it could not be used; 0: never."""
    word: PortState

    def is_recent(self, now_ns: int) -> bool:
        """Whether it has reported a moment ago."""
        return now_ns - self.at_ns <= RECENT_NS

    def said_good_ns(self, from_ns: int) -> int:
        """For how long it has said, after a time, that it is good; -1 if it does not, or said nothing since."""
        return max(self.at_ns - max(self.since_ns, from_ns), -1) if self.good else -1


class PortReports:
    """The latest reports on ports, by NIC."""

    def __init__(self) -> None:
        self._ports: dict[str, Port] = {}

    def get(self, nic: str) -> Port | None:
        """The port of a NIC; None: it has never reported."""
        return self._ports.get(nic)

    def take(self, word: PortState, said_ns: int, now_ns: int) -> None:
        """Takes a report. It also says when the port was bad and nobody heard of it.

        A report that is told again changes nothing of what is known to have come later.

        Parameters:
            said_ns: when it was said, by this process's time.
        """
        good = word.admin_up and word.carrier
        known = self._ports.get(word.nic)
        if known is not None:
            if is_old(known.word, word) and now_ns - known.at_ns <= BELIEVED_NS:
                return
            if word.at_ns < known.word.at_ns:
                said_ns = now_ns  # its clock was set back, so its dates say nothing
        before_ns = 0 if known is None else known.bad_said_ns
        bad_said_ns = max(before_ns, _last_bad_ns(word)) if good else word.at_ns
        is_unchanged = known is not None and known.good == good and not (good and bad_said_ns > before_ns)
        since_ns = known.since_ns if known is not None and is_unchanged else said_ns
        self._ports[word.nic] = Port(good, since_ns, said_ns, bad_said_ns, word)

    def forget(self, node: str) -> None:
        """Forgets a node that has left the fleet."""
        self._ports = {nic: port for nic, port in self._ports.items() if node_of(nic) != node}


def _last_bad_ns(word: PortState) -> int:
    """When it last could not be used, by what it says of its past; 0: it never says so."""
    return next((change.at_ns for change in reversed(word.changes) if not (change.carrier and change.admin_up)), 0)
