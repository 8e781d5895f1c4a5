"""What a rank has begun and ended, of bounded size. Several threads write to it, one reads it."""

from __future__ import annotations

import itertools
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_DONE = 8_192
"""Of those that are done, the newest are kept until they are told: some seconds' worth of a busy rank."""
_MOST_OPEN = 2_048
"""Of those that are not done, the oldest are kept: at the first of them the rank stands."""
_MOST_TOLD = 256
"""Of those, so many are told."""
_MOST_GROUPS = 256
"""Of those that were used last, it is told how far the rank is."""


class Group:
    """A process group, and how many collectives of it this rank has begun.

    Parameters:
        members: ranks of the job, in the order of their ranks in the group; empty: not known.
        lives: whether PyTorch has the group still.
    """

    def __init__(
        self, name: str, description: str = "", members: tuple[int, ...] = (), lives: Callable[[], bool] = lambda: True
    ) -> None:
        self.name = name
        self.description = description
        self.members = members
        self.lives = lives
        self.begun = self.last_order = 0
        self.is_told = False
        self.failed_at = 0
        """The number of the first that ended with an error; 0: none did."""


class Entry:
    """One collective, or one side of a transfer; times are of CLOCK_MONOTONIC_RAW."""

    __slots__ = (
        "began_ns", "bytes", "elements_in", "elements_out", "ended_ns", "group", "number", "operation", "order",
        "peer", "type", "work",
    )  # fmt: skip

    def __init__(self, group: Group, operation: str, peer: int) -> None:
        self.group = group
        self.operation = operation
        self.peer = peer
        """The other end of a transfer, by its rank in the group; -1: it is a collective."""
        self.number = 0
        self.order = 0
        self.elements_in = self.elements_out = self.bytes = 0
        self.type = ""
        self.began_ns = self.ended_ns = 0
        self.work: Any = None
        """To be asked whether it is done, where nothing tells."""


class Taken(NamedTuple):
    """What is to be told now."""

    groups: list[Group]
    """Those of which it is told how far the rank is."""
    done: list[Entry]
    """Since last time."""
    open: list[Entry]
    progress: list[tuple[Group, int, int]]
    """Group, the number of the last collective that was begun, and of the last with which the rank is through."""


class CollectiveLog:
    """The record of one process."""

    def __init__(self) -> None:
        self.began_ns = now_ns()
        self.dropped = 0
        self.data_ns = 0
        """How long the program has waited for its data."""
        self.rank = self.size = 0
        """In the job; a size of 0: not known yet."""
        self.generation = 0
        """Of the job's groups: it rises as ranks are replaced."""
        self.groups: list[Group] = []
        self._names: Counter[str] = Counter()
        self._orders = itertools.count(1)
        self._open: dict[int, Entry] = {}
        self._done: deque[Entry] = deque(maxlen=_MOST_DONE)
        self._moved_ns = self.began_ns
        """When something began or ended last."""

    def group(
        self, name: str, description: str, members: tuple[int, ...], lives: Callable[[], bool] = lambda: True
    ) -> Group:
        """A new group. One of the same name was there before and is over: the new one has another name here."""
        if self.generation:
            name = f"{name}@{self.generation}"
        again = self._names[name]
        self._names[name] += 1
        made = Group(f"{name}~{again}" if again else name, description, members, lives)
        self.groups.append(made)
        return made

    def leave(self) -> None:
        """Takes that all groups are over, and nothing of theirs goes on."""
        self._open.clear()
        self.groups = []

    def begin(self, entry: Entry) -> None:
        """Takes an operation that begins now."""
        group = entry.group
        if entry.peer < 0:
            group.begun += 1
        entry.number, entry.order = group.begun, next(self._orders)
        group.last_order = entry.order
        self.ask()  # what is over by now must not seem to go on beside this one
        self._moved_ns = entry.began_ns = now_ns()
        if len(self._open) < _MOST_OPEN:
            self._open[entry.order] = entry
        else:
            self.dropped += 1

    def end(self, entry: Entry) -> None:
        """Takes the end of an operation."""
        if self._open.pop(entry.order, None) is None:
            return  # another thread has just seen it
        self._moved_ns = entry.ended_ns = now_ns()
        entry.work = None
        if len(self._done) == _MOST_DONE:
            self.dropped += 1
        self._done.append(entry)

    def withdraw(self, entry: Entry) -> None:
        """Takes that an operation was refused before it began: it does not count, if none of its group came after."""
        if entry.peer < 0 and entry.group.begun == entry.number:
            self._open.pop(entry.order, None)
            entry.group.begun -= 1
        else:
            self.fail(entry)

    def fail(self, entry: Entry) -> None:
        """Takes an operation's end with an error: it is not done, and nobody stands there any more."""
        entry.work = None
        self._open.pop(entry.order, None)
        if entry.peer < 0 and not entry.group.failed_at:
            entry.group.failed_at = entry.number

    def ask(self) -> None:
        """Asks of what is open whether it is done."""
        for entry in list(self._open.values()):
            if (work := entry.work) is not None:
                self._ask(entry, work)

    def take(self) -> Taken:
        """Takes what is to be told now."""
        self.ask()
        self.groups = [group for group in self.groups if group.lives()]
        told = sorted(self.groups, key=lambda each: each.last_order)[-_MOST_GROUPS:]
        # First: what is begun meanwhile is neither done nor seen to be open.
        begun = {group: group.begun for group in told}
        waiting = list(self._open.values())
        done = [self._done.popleft() for _ in range(len(self._done))]
        first: dict[Group, int] = {}
        for entry in waiting:
            if entry.peer < 0:
                first.setdefault(entry.group, entry.number)
        progress = []
        for group, number in begun.items():
            through = min(number, first.get(group, number + 1) - 1)
            if group.failed_at:
                through = min(through, group.failed_at - 1)
            progress.append((group, number, through))
        return Taken(told, done, waiting[:_MOST_TOLD], progress)

    def unfinished(self) -> list[Any]:
        """The works of what is not done."""
        self.ask()
        return [entry.work for entry in list(self._open.values()) if entry.work is not None]

    def overdue(self, within_s: float) -> Entry | None:
        """What began first of all that goes on for longer than that; None: nothing does.

        A transfer of Gloo's is not done before the program waits for it, if it ever does. So it counts only where
        nothing else has begun or ended either.
        """
        before_ns = now_ns() - within_s * 1e9
        stands = self._moved_ns < before_ns
        late = (each for each in list(self._open.values()) if each.began_ns < before_ns)
        return next((each for each in late if stands or each.peer < 0), None)

    @property
    def is_idle(self) -> bool:
        """Whether all that was begun is done."""
        return not self._open

    def _ask(self, entry: Entry, work: Any) -> None:
        try:
            is_done, has_failed = work.is_completed(), False
            has_failed = is_done and work.exception() is not None
        except Exception:  # noqa: BLE001 - whatever it is, the operation has failed
            has_failed = True
        if has_failed:
            self.fail(entry)
        elif is_done:
            self.end(entry)


def now_ns() -> int:
    """The time of the host that no daemon bends."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
