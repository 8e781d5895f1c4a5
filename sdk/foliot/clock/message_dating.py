"""Dates a node's messages by the listener's time, whatever the node's clock says and however late they come.

It is the minimum filter of clock synchronisation. The least difference of arrival and the sender's own time is the
clocks' offset and the shortest delay. A message with a greater difference was late by the rest. The bus delays
messages, and so does a sender or listener that stood still.
"""

from __future__ import annotations

from dataclasses import dataclass

_SPAN_NS = 2_000_000_000
"""The least difference of one to two of these spans counts. They have twenty reports at least, of which hardly all come
late. A difference that lasts for longer is the new one."""
_SET_BACK_NS = 20_000_000
"""A clock was set back if its times fall behind earlier ones by more than this. Steering never takes so much at
once."""
_SET_BACK_WORDS = 3
_APART_NS = 80_000_000
"""So many messages in a row must show it, and so far apart, because some may have been overtaken. Messages that
waited come at once, and between two reports of 100 ms."""
_AHEAD_NS = 250_000_000
"""A synchronised clock is ahead of the listener's by less."""


@dataclass(slots=True)
class _Differences:
    """Differences of arrival and a node's own time: its clock's error plus the delay, which alone varies."""

    newest_ns: int
    """The latest of the node's own times."""
    turned_ns: int
    least_ns: int
    before_ns: int
    """The least difference of the span before."""
    behind: int = 0
    """Messages in a row from before the latest time. Of those that came at once, one counts."""
    behind_ns: int = 0
    """When the last of them that counts came."""


class MinimumOffsets:
    """The minimum offset of each node.

    It follows a clock that was set forward at once, and one that was set back as soon as that shows.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, _Differences] = {}

    def learn(self, node: str, at_ns: int, now_ns: int, *, trusted: bool = False) -> int:
        """Dates a message that has just come: by the listener's time, and at its arrival at the latest.

        Parameters:
            at_ns: its own time.
            trusted: its clock is synchronised to the listener's. So even the first message of all shows how late it is.
        """
        difference_ns = now_ns - at_ns
        known = self._nodes.get(node)
        if known is None or (trusted and min(known.least_ns, known.before_ns) < -_AHEAD_NS <= difference_ns):
            # The clock is new, or was put right: its earlier lead says nothing of now.
            first_ns = min(difference_ns, 0) if trusted else difference_ns
            known = self._nodes[node] = _Differences(at_ns, now_ns, difference_ns, first_ns)
        if at_ns >= known.newest_ns - _SET_BACK_NS:
            known.behind = 0
        elif not (known.behind and 0 <= now_ns - known.behind_ns < _APART_NS):
            known.behind, known.behind_ns = known.behind + 1, now_ns
        if known.behind >= _SET_BACK_WORDS:
            known = self._nodes[node] = _Differences(at_ns, now_ns, difference_ns, difference_ns)
        elif not 0 <= now_ns - known.turned_ns < _SPAN_NS:
            # A node that said nothing for long is still compared with its times from before.
            known.turned_ns, known.before_ns, known.least_ns = now_ns, known.least_ns, difference_ns
        elif difference_ns < known.least_ns:
            known.least_ns = difference_ns
        known.newest_ns = max(known.newest_ns, at_ns)
        return at_ns + min(known.least_ns, known.before_ns)

    def offset_ns(self, node: str) -> int | None:
        """The listener's time minus the node's, in ns; None: the node has said nothing."""
        known = self._nodes.get(node)
        return None if known is None else min(known.least_ns, known.before_ns)

    def here_ns(self, node: str, at_ns: int, now_ns: int) -> int:
        """A node's own time in the listener's time, and never later than now."""
        offset_ns = self.offset_ns(node)
        return min(at_ns if offset_ns is None else at_ns + offset_ns, now_ns)

    def forget(self, node: str) -> None:
        """Forgets a node that has left the fleet."""
        self._nodes.pop(node, None)
