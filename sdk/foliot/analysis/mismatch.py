"""Where ranks began different things as the same collective of a group."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from foliot.analysis.collectives import Operation, RankRecord

_UNEQUAL = ("all_to_all", "alltoall", "gather", "scatter", "coalesced", "barrier")
"""In their names: collectives whose tensors may differ from rank to rank, and one whose tensor means nothing."""
_EQUAL = ("all_gather", "allgather", "reduce_scatter")
"""In theirs: collectives of the names above that may not."""


class Mismatch(NamedTuple):
    """Ranks that differ from the others in one collective."""

    group: str
    number: int
    collective: str
    """As most have it."""
    field: str
    """``op``, ``size`` or ``dtype``."""
    ranks: tuple[int, ...]
    """The fewer; all of them where no more agree than differ."""
    is_decided: bool
    """Whether most agree."""


def mismatches(records: Mapping[int, RankRecord]) -> Iterator[Mismatch]:
    """The mismatches among collectives that did not end, the first of each group.

    What comes after a group's first is its consequence.
    """
    begun: dict[tuple[str, int, int], dict[int, Operation]] = defaultdict(dict)
    for rank, record in records.items():
        parts: Counter[tuple[str, int]] = Counter()
        for each in record.operations:
            if not each.is_transfer:
                # Collectives that were begun as one have one number.
                begun[each.group, each.number, parts[each.group, each.number]][rank] = each
                parts[each.group, each.number] += 1
    told: set[str] = set()
    for (group, number, _), by_rank in sorted(begun.items()):
        if group in told or all(each.is_done for each in by_rank.values()):
            continue
        if (found := _mismatch(group, number, by_rank)) is not None:
            told.add(group)
            yield found


def _mismatch(group: str, number: int, by_rank: Mapping[int, Operation]) -> Mismatch | None:
    names = {rank: each.name for rank, each in by_rank.items()}
    comparable = _has_equal_sizes(next(iter(by_rank.values())).name)
    seen: list[tuple[str, Mapping[int, Hashable]]] = [("op", names)]
    if comparable:
        seen.append(("size", {rank: _counts(each) for rank, each in by_rank.items()}))
    # In and out, as the root of a gather has a list of tensors and others have none.
    seen.append(("dtype", {rank: frozenset(each.types[0] + each.types[1]) for rank, each in by_rank.items()}))
    for field, values in seen:
        if (found := _fewer(values)) is not None:
            ranks, is_decided = found
            usual = next((names[rank] for rank in sorted(names) if rank not in ranks), min(names.values()))
            return Mismatch(group, number, usual, field, ranks, is_decided)
    return None


def _counts(each: Operation) -> tuple[tuple[int, ...], ...]:
    """How many numbers each tensor has: their shapes may differ."""
    return tuple(tuple(math.prod(shape) for shape in shapes) for shapes in each.sizes)


def _has_equal_sizes(name: str) -> bool:
    return any(part in name for part in _EQUAL) or not any(part in name for part in _UNEQUAL)


def _fewer(values: Mapping[int, Hashable]) -> tuple[tuple[int, ...], bool] | None:
    """The ranks with another value than most have, and whether more than half agree; None: all agree."""
    by_value: dict[Hashable, list[int]] = defaultdict(list)
    for rank in sorted(values):
        by_value[values[rank]].append(rank)
    if len(by_value) <= 1:
        return None
    most = max(by_value.values(), key=len)
    if 2 * len(most) > len(values):
        return tuple(rank for rank in sorted(values) if rank not in most), True
    return tuple(sorted(values)), False
