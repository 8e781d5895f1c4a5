"""Who holds up a job that hangs, by what its ranks say of their collectives.

Each rank stands at its oldest operation that is not done. There it waits for members that have not begun it, or that
stand at another operation. A rank is blamed if it has nothing to do while others wait in what it has not begun, or if
it does not know of the end of what others are through with. Where all members stand at one operation, the network may be
at fault, or a GPU: nobody is blamed. What is not known blames nobody either.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from foliot.analysis.mismatch import Mismatch, mismatches

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foliot.analysis.collectives import Operation, RankRecord

_ONE_SIDED = frozenset({
    "broadcast", "_broadcast_oop", "reduce", "_reduce_oop", "gather", "scatter", "all_to_all", "alltoall",
})  # fmt: skip
"""Collectives with which a rank may be through before others begin them: of an all-to-all, if its parts are empty."""


class Blame(NamedTuple):
    """A rank that holds up others, and waits for nobody."""

    rank: int
    why: str
    """``absent``: it has not begun what others wait in, and all that it began is done. ``behind``: others are through
    with collectives in which it still waits. ``mismatch``: it began something else than most. ``dead``: it says
    nothing, and it alone holds up what hangs."""
    group: str
    collective: str
    number: int
    """Of the collective in its group."""


class Verdict(NamedTuple):
    """What a hang comes from."""

    blamed: tuple[Blame, ...]
    mismatches: tuple[Mismatch, ...]
    is_certain: bool
    """Whether all ranks spoke, and each that waits does so, in the end, for one that is blamed."""
    awaited: tuple[int, ...] = ()
    """Ranks that say nothing, and for which others wait."""


class _Stand(NamedTuple):
    """An operation at which ranks stand: a collective, or a transfer by its two ends."""

    group: str
    number: int
    """Of a collective. Transfers are counted differently by both ends: 0."""
    sender: int | None
    receiver: int | None


def judge(records: Mapping[int, RankRecord], expected: int) -> Verdict:
    """Finds who holds up a job.

    Parameters:
        records: what ranks say, by rank.
        expected: the number of the job's ranks.
    """
    found = _Waits(records)
    differing = tuple(mismatches(records))
    blamed = {
        rank: Blame(rank, "mismatch", each.group, each.collective, each.number)
        for each in differing
        if each.is_decided
        for rank in each.ranks
    }
    for rank in sorted(records.keys() - blamed.keys()):
        if (blame := found.blame(rank)) is not None:
            blamed[rank] = blame
    silent = found.holding.keys() - records.keys()
    if not blamed and len(silent) == 1:
        (rank,) = silent
        blamed[rank] = found.dead(rank)
    decided = {(each.group, each.number) for each in differing if each.is_decided}
    explained = found.waiting_for(
        {
            *blamed,
            *(rank for rank, at in found.heads.items() if not at.is_transfer and (at.group, at.number) in decided),
        }
    )
    # Of several that are idle, one may wait for another in what is not recorded.
    idle = sum(each.why == "absent" for each in blamed.values())
    is_told = idle <= 1 or all(record.is_whole for record in records.values())
    is_certain = is_told and len(records) >= expected and explained >= found.heads.keys()
    return Verdict(tuple(blamed[rank] for rank in sorted(blamed)), differing, is_certain, tuple(sorted(silent)))


class _Waits:
    """Who stands where, and who is missing there."""

    def __init__(self, records: Mapping[int, RankRecord]) -> None:
        self._records = records
        self.heads: dict[int, Operation] = {}
        """By rank: the oldest operation that is not done."""
        self.holding: dict[int, list[_Stand]] = defaultdict(list)
        """By rank: where others stand and wait for it."""
        self._furthest = self._furthest_done()
        self._overtaken: dict[int, Operation] = {}
        self._standing: dict[_Stand, list[int]] = defaultdict(list)
        self._begun: dict[str, Operation] = {}
        """By group: of the collectives that are not done for some rank, the last."""
        for rank, record in records.items():
            if waiting := [each for each in record.operations if not each.is_done]:
                self._take(rank, waiting)
        for stand, ranks in self._standing.items():
            if self._overtaken.keys() >= {*ranks}:
                continue
            for rank in self._members(stand, ranks[0]):
                if self._is_missing(rank, stand):
                    self.holding[rank].append(stand)

    def _take(self, rank: int, waiting: list[Operation]) -> None:
        """Takes the operations of a rank that are not done."""
        self.heads[rank] = min(waiting, key=lambda each: each.order)
        self._standing[_stand(self.heads[rank])].append(rank)
        if (overtaken := self._overtaking(rank, waiting)) is not None:
            self._overtaken[rank] = overtaken
        for each in waiting:
            if not each.is_transfer and each.number >= self._begun.get(each.group, each).number:
                self._begun[each.group] = each

    def blame(self, rank: int) -> Blame | None:
        """The blame of a rank; None: nothing shows that it is at fault."""
        if (at := self._overtaken.get(rank)) is not None:
            return _blame(rank, "behind", at)
        if rank in self.heads:
            return None
        # Of transfers nothing is known but that they are not done: the idle end may have done its part.
        if any(self._has_not_begun(rank, each) for each in self.holding.get(rank, ()) if each.sender is None):
            return _blame(rank, "absent", self._held(rank))
        for name in self._records[rank].groups:
            at = self._begun.get(name)
            if at is not None and self._has_not_begun(rank, _stand(at)):
                return _blame(rank, "absent", at)
        return None

    def _has_not_begun(self, rank: int, stand: _Stand) -> bool:
        """Whether a rank is known not to have begun a collective."""
        progress = self._records[rank].progress.get(stand.group)
        return progress is not None and progress.begun < stand.number

    def dead(self, rank: int) -> Blame:
        """The blame of a rank that says nothing, and for which others wait."""
        return _blame(rank, "dead", self._held(rank))

    def _held(self, rank: int) -> Operation:
        """Where most wait for a rank."""
        stand = max(self.holding[rank], key=lambda each: (each.sender is None, len(self._standing[each])))
        return self.heads[self._standing[stand][0]]

    def waiting_for(self, ranks: set[int]) -> set[int]:
        """These ranks, those that wait for one of them, those that wait for these, and so on."""
        found, due = set(ranks), list(ranks)
        while due:
            for stand in self.holding.get(due.pop(), ()):
                more = [rank for rank in self._standing[stand] if rank not in found]
                found.update(more)
                due += more
        return found

    def _furthest_done(self) -> dict[str, list[tuple[int, int]]]:
        """By group: the two ranks that are through with most, with the numbers of their last collectives."""
        found: dict[str, list[tuple[int, int]]] = {}
        for rank, record in self._records.items():
            for name, progress in record.progress.items():
                found[name] = sorted([*found.get(name, []), (progress.done, rank)], reverse=True)[:2]
        return found

    def _overtaking(self, rank: int, waiting: list[Operation]) -> Operation | None:
        """The first of two collectives of a group in which a rank waits, and with which another is through.

        All had a part in the first, and in the second this rank too, so that nobody held it up: what it waits for has
        happened. One alone may have been cut off in the middle, and of those that run side by side any. A rank from which a broadcast goes out may be through
        before others begin, so that this proves nothing.
        """
        first: dict[str, Operation] = {}
        for each in waiting if self._records[rank].is_in_order else ():
            if each.is_transfer or each.name in _ONE_SIDED:
                continue
            if any(other != rank and done >= each.number for done, other in self._furthest.get(each.group, ())):
                before = first.setdefault(each.group, each)
                if before.number < each.number:
                    return before
        return None

    def _members(self, stand: _Stand, rank: int) -> tuple[int, ...]:
        """The ranks without which an operation does not end, as one that stands there knows them."""
        members = self._records[rank].groups[stand.group].members
        if not members:
            members = tuple(sorted(other for other, record in self._records.items() if stand.group in record.groups))
        if stand.sender is None or stand.receiver is None:
            return members
        return tuple(members[end] for end in (stand.sender, stand.receiver) if 0 <= end < len(members))

    def _is_missing(self, rank: int, stand: _Stand) -> bool:
        """Whether a member is not where others wait for it, as far as is known."""
        if rank not in self._records:
            return True
        if (head := self.heads.get(rank)) is not None:
            return _stand(head) != stand
        progress = self._records[rank].progress.get(stand.group)
        return stand.sender is not None or progress is None or progress.begun < stand.number


def _stand(at: Operation) -> _Stand:
    return _Stand(at.group, 0 if at.is_transfer else at.number, at.sender, at.receiver)


def _blame(rank: int, why: str, at: Operation) -> Blame:
    return Blame(rank, why, at.group, at.name, at.number)
