"""Which outgoing paths of a node take the same links, as far as routers say so beyond doubt.

Two paths between the same two NICs are one if their packets enter the same ports of the same routers. A node hears of
the routers of its own paths. The last ones may be silent, and nothing shows it. So a path's routers count as known only
if the peer has told of the way back: that its first router answers, and that the way is as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from foliot.link_map import missing_at_end

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from foliot_probe.core.measure.hop_tracer import Hops

_FRESH_NS = 90_000_000_000
"""How long a peer's word counts: it tells everything each half minute, and two messages may be lost."""
UNKNOWN = 0
"""The route of a path of which it is not known."""


class _Told(NamedTuple):
    hops: Hops
    told_ns: int


class KnownRoutes:
    """The routes of outgoing paths, by row. Every time given to it is monotonic and in ns."""

    def __init__(self) -> None:
        self._back: dict[int, _Told] = {}

    def told(self, row: int, hops: Hops, now_ns: int) -> None:
        """Takes the routers of a path's way back, from the peer's NIC on; 0: one that does not answer."""
        self._back[row] = _Told(hops, now_ns)

    def end(self, rows: Iterable[int]) -> None:
        """The paths of these rows ended."""
        for row in rows:
            self._back.pop(row, None)

    def of(self, row: int, between: Hashable, hops: Hops | None, now_ns: int) -> int:
        """A number that the path has in common with all others that take the same links, or `UNKNOWN`.

        Parameters:
            between: the ends of the path.
            hops: its routers, if they are sure.
        """
        back = self._back.get(row)
        if not hops or back is None or now_ns - back.told_ns > _FRESH_NS or not _is_whole(hops, back.hops):
            return UNKNOWN
        return hash((between, hops)) or 1


def _is_whole(hops: Hops, back: Hops) -> bool:
    """Whether all routers of a path answered, and each by the port that the path enters.

    A router that has one address for all ports would have it on both ways. Several links to it look like one then.
    """
    return all(hops) and _ends(hops, back) and _ends(back, hops) and len({*hops} - {*back}) == len(hops)


def _ends(hops: Hops, back: Hops) -> bool:
    return bool(back) and not missing_at_end(len(hops), len(back), answers=bool(back[0]))
