"""The time without a valid state after each upset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from bench.clock_days.causes import CAUSE_S
from bench.clock_days.upsets import LIES, WINDOW_S
from foliot_lab.simulate.clocks.streams import name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.clock_days.upsets import Plan, Upset

    Mask = NDArray[np.bool_]

_FOLLOWED_S = 300.0
MOMENTS = 4
"""Moments of a window that are judged: as of `error_stats`, without the last, which is the first of the next window."""
_STEP_S = WINDOW_S / MOMENTS


class Recovery(msgspec.Struct, kw_only=True):
    """The time without a valid state after an upset.

    A state is valid if its reader believes it and the value is within its hard bound.
    """

    kind: str
    host: str
    """Empty: of no host."""
    at_s: float
    lasts_s: float
    size: float
    beside: str
    """Upsets at about the same time."""
    promised_s: float | None
    """The longest time without a valid state that docs/clock.md permits; of upsets at about the same time, the most.
    null: it promises nothing."""
    own_s: float
    """Of the host that it befell, as long as that ran."""
    others_s: float
    """Of any other host. Of hours in which a node lies it is 0: what befalls others then is an upset of their own."""
    wrong_s: float
    """The longest time in which a host that it befell, or any other, believed a value outside of its hard bound."""
    jump_ns: float
    """The greatest change of the common time, by the median of the clocks that nothing befell, where new states took
    the place of old ones."""


class _Followed:
    """An upset, and what came after it; counts of moments, one element a host."""

    def __init__(self, upset: Upset, hosts: int) -> None:
        self.upset = upset
        self.without, self.longest = np.zeros(hosts, np.int64), np.zeros(hosts, np.int64)
        self.wrong = np.zeros(hosts, np.int64)
        self.jump_ns = 0.0


class Recoveries:
    """Follows upsets until the next one comes, or for five minutes.

    Parameters:
        plan: of the run.
        hosts: how many there are.
    """

    def __init__(self, plan: Plan, hosts: int) -> None:
        self._upsets = plan.upsets
        self._lies = [each for each in plan.upsets if each.kind == LIES]
        self._hosts = hosts
        self._next = 0
        self._open: list[_Followed] = []
        self._settled = np.zeros(hosts, np.bool_)
        """Hosts that have had a valid state."""
        self.found: list[Recovery] = []

    def window(self, now_s: float, valid: Mask, halted: Mask, wrong: Mask, jump_ns: float) -> None:
        """Takes a window: rows are its moments, which begin now, and columns are hosts."""
        lying = np.zeros(self._hosts, np.bool_)
        for lie in self._lies:
            lying[lie.host] |= lie.at_s <= now_s < lie.ends_s + CAUSE_S
        while self._next < len(self._upsets) and self._upsets[self._next].at_s < now_s + WINDOW_S:
            self._open.append(_Followed(self._upsets[self._next], self._hosts))
            self._next += 1
        for moment in range(MOMENTS):
            self._settled |= valid[moment]
            for each in self._open:
                if now_s + moment * _STEP_S < each.upset.at_s:
                    continue
                # A node that lies makes its own clock useless, whatever befalls others meanwhile.
                counts = ~halted[moment] & self._settled & (~lying | (each.upset.kind == LIES))
                each.without = np.where(valid[moment] | ~counts, 0, each.without + 1)
                each.longest = np.maximum(each.longest, each.without)
                each.wrong += wrong[moment] & counts
        for each in self._open:
            each.jump_ns = max(each.jump_ns, jump_ns)
        ended = [each for each in self._open if now_s + WINDOW_S >= self._until_s(each.upset)]
        for each in ended:
            self._tell(each)
            self._open.remove(each)

    def close(self) -> None:
        """Ends the run, and tells of the recoveries that it still follows."""
        for each in self._open:
            self._tell(each)
        self._open = []

    def _until_s(self, upset: Upset) -> float:
        if upset.kind == LIES:
            return upset.ends_s + CAUSE_S
        later = [each.at_s for each in self._upsets if each.at_s > upset.ends_s + CAUSE_S and each.kind != LIES]
        return min([upset.ends_s + _FOLLOWED_S, *later[:1]])

    def _tell(self, each: _Followed) -> None:
        upset, own = each.upset, np.arange(self._hosts) == each.upset.host
        beside = [
            other
            for other in self._upsets
            if other != upset
            and LIES not in {other.kind, upset.kind}
            and other.at_s <= upset.ends_s + CAUSE_S
            and other.ends_s >= upset.at_s - CAUSE_S
        ]
        self.found.append(
            Recovery(
                kind=upset.kind,
                host="" if upset.host < 0 else name(upset.host),
                at_s=round(upset.at_s, 1),
                lasts_s=round(upset.lasts_s, 1),
                size=upset.size,
                beside=", ".join(other.kind for other in beside),
                promised_s=_most(upset, *beside),
                own_s=float(each.longest[own].max(initial=0)) * _STEP_S,
                others_s=0.0 if upset.kind == LIES else float(each.longest[~own].max(initial=0)) * _STEP_S,
                wrong_s=float(each.wrong.max()) * _STEP_S,
                jump_ns=each.jump_ns,
            )
        )


def _most(*upsets: Upset) -> float | None:
    promised_s = [each.promised_s for each in upsets if each.promised_s is not None]
    return round(max(promised_s), 1) if promised_s else None
