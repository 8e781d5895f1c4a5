"""Where queues stand: the link that the delays of all paths together point to."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot.link_map import is_between_routers
from foliot_detector.core.detectors.contention.link_index import NONE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_detector.core.detectors.contention.link_index import LinkIndex
    from foliot_detector.core.detectors.contention.path_queues import PathQueues

_ODD_SHARE = 0.15
"""A link's queue delays all paths that cross it, but for one whose few probes found a gap. So the queue is what all
but this share of them show at least. Two links share fewer paths than the rest where there is any choice of ways."""
_HEARD_SHARE = 0.5
"""Share of a link's paths that must be heard; else too little is known of it. Those that cross the same links between
the same NICs count as one, as the probe may let one stand for the others."""
_NEAR = 0.7
"""Queues that differ by less than this factor may be one: of those links, the one with the most paths explains the
delays of all. The paths over the others are among its own."""
_NOISES = 3.0
"""A queue is so many times what most paths show now."""
_BOUNDS = 2.0
"""And so many times the error of the clocks, which move against each other by no more than that."""


class Place(NamedTuple):
    """Links that cannot be told apart, as the same paths cross them. A queue stands at one of them."""

    links: tuple[int, ...]
    """In the order of the path on which it was found."""
    queue_ns: float
    paths: int
    """Probed paths that show it."""


class HotPlaces:
    """The queues of links in one moment; each link is looked at once."""

    def __init__(self, queues: PathQueues, links: LinkIndex, least_ns: float) -> None:
        self._queues = queues
        self._links = links
        self.least_ns = max(least_ns, _NOISES * queues.calm_ns())
        """The least queue that counts, but for the error of clocks."""
        self._found: dict[int, tuple[float, float]] = {}

    def queue_ns(self, link: int) -> float:
        """A link's queue; NaN: too few of its paths were heard."""
        return self._look(link)[0]

    def threshold_ns(self, link: int) -> float:
        """The least queue that counts at a link."""
        return self._look(link)[1]

    def is_cold(self, link: int, beside_ns: float) -> bool:
        """Whether a link is known to have no queue that counts beside another one."""
        queue_ns, threshold_ns = self._look(link)
        return queue_ns < max(threshold_ns, (1 - _NEAR) * beside_ns)

    def excess_ns(self, path_id: int) -> float:
        """How late a path is; NaN: it was not heard."""
        return float(self._queues.excess_ns(np.array([path_id], np.intp))[0])

    def is_late(self, path_id: int) -> bool:
        """Whether a path is so late that a queue stands on it."""
        return self.excess_ns(path_id) >= self._threshold_ns(np.array([path_id], np.intp))

    def is_on_time(self, path_id: int, beside_ns: float) -> bool:
        """Whether a path was heard, and has no queue that counts beside another one."""
        return self.excess_ns(path_id) < max(self._threshold_ns(np.array([path_id], np.intp)), (1 - _NEAR) * beside_ns)

    def on(self, path_id: int) -> Place | None:
        """The place of the longest queue on a path; None: there is none, or it is not known where."""
        links = self._links.of(path_id)
        queues = [(self.queue_ns(link), link) for link in links if link != NONE]
        if not queues or any(np.isnan(queue_ns) for queue_ns, _ in queues):
            return None
        longest_ns, _ = max(queues)
        near = [link for queue_ns, link in queues if queue_ns >= _NEAR * longest_ns]
        link = max(near, key=lambda each: len(self._links.crossing(each)))
        if self.queue_ns(link) < self.threshold_ns(link):
            return None
        if NONE in links and is_between_routers(self._links.names[link]):
            return None  # the queue may as well be where the router does not answer
        return self.of(tuple(each for each in links if each != NONE and self._is_same(each, link)))

    def of(self, links: tuple[int, ...]) -> Place:
        """A place of these links."""
        return Place(links, self.queue_ns(links[0]), len(self._links.crossing(links[0])))

    def _is_same(self, one: int, other: int) -> bool:
        return one == other or np.array_equal(self._links.crossing(one), self._links.crossing(other))

    def _look(self, link: int) -> tuple[float, float]:
        found = self._found.get(link)
        if found is None:
            paths = self._links.crossing(link)
            excess = self._queues.excess_ns(paths)
            is_heard = ~np.isnan(excess)
            queue_ns = float("nan")
            if self._are_enough(paths, is_heard):
                heard = np.sort(excess[is_heard])
                queue_ns = float(heard[int(_ODD_SHARE * len(heard))])
            found = self._found[link] = queue_ns, self._threshold_ns(paths)
        return found

    def _are_enough(self, paths: NDArray[np.intp], is_heard: NDArray[np.bool_]) -> bool:
        """Whether so many of a link's paths were heard that its queue is known."""
        if is_heard.all():
            return len(paths) > 0
        return self._links.count_routes(paths[is_heard]) >= max(_HEARD_SHARE * self._links.count_routes(paths), 1)

    def _threshold_ns(self, paths: NDArray[np.intp]) -> float:
        return max(self.least_ns, _BOUNDS * self._queues.bound_ns(paths))
