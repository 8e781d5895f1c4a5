"""How long a rank's program has run by itself, outside of the collectives and transfers in which it waited."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

_MOST_AHEAD = 64
"""Operations that are known beyond one that is not: then that one is given up."""
_MOST_KEPT = 4_096


class Mark(NamedTuple):
    """How long the program had run when it began an operation. Marks of different spells cannot be compared."""

    spell: int
    ran_ns: int


class _Operation(NamedTuple):
    order: int
    began_ns: int
    ended_ns: int
    """0: it is not known to have ended."""


class ProgramTime:
    """Goes through a rank's operations in the order in which its program began them.

    The program waited in an operation if it began the next one after that had ended. If it began the next one before,
    it ran on meanwhile.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Operation] = {}
        """Operations that wait for earlier ones to be told."""
        self._last: _Operation | None = None
        self._spell = self._ran_ns = 0
        self._marks: OrderedDict[int, Mark] = OrderedDict()

    def take(self, order: int, began_ns: int, ended_ns: int) -> None:
        """Takes what is known of an operation. All that is told at one time is to be taken before `advance`."""
        last = self._last
        if last is not None and order <= last.order:
            if order == last.order and ended_ns:
                self._last = last._replace(ended_ns=ended_ns)
            return
        self._known[order] = _Operation(order, began_ns, ended_ns)

    def advance(self) -> None:
        """Goes on as far as operations are known."""
        while self._known:
            due = min(self._known) if self._last is None else self._last.order + 1
            if due not in self._known:
                if len(self._known) <= _MOST_AHEAD:
                    return
                self._last, self._spell = None, self._spell + 1
                continue
            operation = self._known.pop(due)
            if (last := self._last) is not None:
                waited = 0 < last.ended_ns <= operation.began_ns
                self._ran_ns += max(0, operation.began_ns - (last.ended_ns if waited else last.began_ns))
            self._last = operation
            self._marks[due] = Mark(self._spell, self._ran_ns)
            if len(self._marks) > _MOST_KEPT:
                self._marks.popitem(last=False)

    def at(self, order: int) -> Mark | None:
        """How long the program had run when it began an operation; None: that is not known."""
        return self._marks.get(order)
