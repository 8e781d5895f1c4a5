"""The upsets of a host at a time, by the plan of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bench.clock_days.upsets import LIES, TURNED_S, UNHEARD_S, WINDOW_S
from foliot_lab.simulate.clocks.streams import name

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bench.clock_days.upsets import Plan, Upset

    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]

CAUSE_S = 30.0
"""A lapse is put down to an upset until so long after its end."""
ALONE = "alone"
"""The last word of a cause that is no upset."""
_OF_LINKS = "uplink lost"


class Causes:
    """Looks up what befalls hosts.

    Parameters:
        plan: of the run.
        hosts: how many there are.
    """

    def __init__(self, plan: Plan, hosts: int) -> None:
        self._plan, self._hosts = plan, hosts
        self._upset = self._spans(lambda each: each.kind not in {LIES, "fan"}, CAUSE_S)
        self._lies = self._spans(lambda each: each.kind == LIES, CAUSE_S)
        self._halted = self._spans(lambda each: each.halts, 0.0)

    def upset(self, moments_s: Floats) -> Mask:
        """Where a host's clock may be wrong for what has befallen it; one row a moment, one column a host."""
        return _within(self._upset, moments_s)

    def lies(self, moments_s: Floats) -> Mask:
        """Where a host's stamps are worse than it says; rows and columns as above."""
        return _within(self._lies, moments_s)

    def halted(self, moments_s: Floats) -> Mask:
        """Where nothing runs on a host; rows and columns as above."""
        return _within(self._halted, moments_s)

    def load(self, at_s: float) -> float:
        """The load of all links."""
        return next(each.share for each in reversed(self._plan.loads) if each.from_s <= at_s)

    def regime(self, host: int, at_s: float) -> str:
        """The circumstances in which a host's clock is measured."""
        current = self._current(at_s)
        if any(each.host == host and each.kind != LIES for each in current):
            return "after an upset of its own"
        if any(each.is_of_leader for each in current):
            return "after a change of leaders"
        lies = [each.host for each in current if each.kind == LIES]
        if lies:
            return "the node that lies" if host in lies else "beside the node that lies"
        return f"load {self.load(at_s):.0%}"

    def cause(self, host: int, against: int, at_s: float) -> str:
        """The cause of a lapse of a host's clock, held against another."""
        current = self._current(at_s)
        found = [each.kind for each in current if each.host == host]
        found = found or [f"{each.kind}, {name(against)}" for each in current if each.host == against]
        found = found or [each.kind for each in current if each.is_of_leader or each.kind == _OF_LINKS]
        found = found or [f"{each.kind}, {name(each.host)}" for each in current if each.kind == LIES]
        return found[-1] if found else f"load {self.load(at_s):.0%} {ALONE}"

    def permits(self, bound: str, host: int, against: int, at_s: float) -> bool:
        """Whether docs/clock.md ("When it is wrong") permits a lapse.

        A clock that was stepped is wrong until it is heard. One whose rate turns is outside of its statistical bound
        for three windows. Stamps that are worse than they say break both bounds of their clock.
        """
        for each in self._current(at_s):
            since_s = at_s - each.at_s
            if each.host not in {host, against}:
                continue
            if each.kind == LIES or (each.kind == "stepped" and since_s <= UNHEARD_S):
                return True
            if each.kind == "fan" and bound == "statistical" and since_s <= WINDOW_S + TURNED_S:
                return True
        return False

    def _current(self, at_s: float) -> list[Upset]:
        return [each for each in self._plan.upsets if each.at_s <= at_s < each.ends_s + CAUSE_S]

    def _spans(self, which: Callable[[Upset], bool], after_s: float) -> list[Floats]:
        """Of each host, the beginnings and the ends of some upsets."""
        return [
            np.array(
                [(each.at_s, each.ends_s + after_s) for each in self._plan.upsets if each.host == host and which(each)]
            ).reshape(-1, 2)
            for host in range(self._hosts)
        ]


def _within(spans: list[Floats], moments_s: Floats) -> Mask:
    inside = [((span[:, :1] <= moments_s) & (moments_s < span[:, 1:])).any(axis=0) for span in spans]
    return np.stack(inside, axis=1)
