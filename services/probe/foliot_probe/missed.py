"""What befell ports while the bus was away, told in its order when it is back, and before what is so now.

Counters alone would say how often a carrier was lost, but not when; and each loss has a name, under which this node's agent has told what it did.
"""

from __future__ import annotations

import collections
import contextvars
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from foliot_schemas import PortState

_KEPT = 256
"""Changes; of more, the oldest are told by the kernel's counters alone."""
_NOTICED_S = 3.5
"""A cut is noticed after two to three seconds: what was said in them was heard by nobody, perhaps."""
_AGAIN_S = 3.0
"""For how long after the return it is told again with every state: readers find the bus again in their own time, and must not hear first what is
so now. Who has heard it leaves it out, by the counters."""


class Change(NamedTuple):
    """A change of a port, and the span in which it was told."""

    at_s: float
    state: PortState
    context: contextvars.Context


class Missed:
    """Of one node. Times are of any clock that runs evenly."""

    def __init__(self) -> None:
        self._changes: collections.deque[Change] = collections.deque(maxlen=_KEPT)
        self._since_s = self._until_s = 0.0
        self._is_away = False

    def take(self, state: PortState, now_s: float) -> None:
        """A port is in this state, said in the present span."""
        if state.change:
            self._changes.append(Change(now_s, state, contextvars.copy_context()))

    def away(self, now_s: float) -> None:
        """The bus does not answer."""
        if not self._is_away and now_s > self._until_s:  # else some may not have heard of the time before yet
            self._since_s = now_s - _NOTICED_S
        self._is_away = True

    def back(self, now_s: float) -> None:
        """It answers again."""
        self._is_away = False
        self._until_s = now_s + _AGAIN_S

    def before(self, state: PortState, now_s: float) -> list[Change]:
        """What is to be told before this state of a port; nothing, if the bus was not away lately."""
        if now_s > self._until_s:
            return []
        return [
            each
            for each in self._changes
            if each.state.nic == state.nic and each.at_s >= self._since_s and each.state is not state
        ]
