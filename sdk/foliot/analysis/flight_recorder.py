"""What dumps of PyTorch's Flight Recorder say of their ranks' collectives."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from foliot.analysis import dump_format
from foliot.analysis.collectives import Group, Operation, Progress, RankRecord
from foliot.analysis.dump_format import DumpError, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from foliot.analysis.dump_format import Dump, Entry, Status

_NAME = re.compile(r"(?:^|.*\D)(\d{1,7})(?:\.(?:json|pickle|pkl))?")
"""A dump's file name ends with the rank."""
_COALESCED = "coalesced"
_DIGITS = 18
"""Of a group's name that is a number, at most."""


class Dumps(NamedTuple):
    """The dumps of a job."""

    records: dict[int, RankRecord]
    """By rank."""
    expected: int
    """The number of the job's ranks, as groups tell or, where they do not, file names."""
    broken: tuple[tuple[str, str], ...]
    """Files that could not be read, by name, and why."""


def rank_of(name: str) -> int | None:
    """The rank that a file's name ends with; None: it is no dump's name."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def read(files: Iterable[Path]) -> Dumps:
    """Reads the dumps of a job, a file a rank. A file that cannot be read takes no other with it."""
    raw: dict[int, Dump] = {}
    broken: list[tuple[str, str]] = []
    named = set()
    for file in sorted(files):
        told = rank_of(file.name)
        try:
            rank, dump = _read(file, told)
        except DumpError as error:
            broken.append((printable(file.name), printable(str(error))))
        else:
            if rank in raw:
                broken.append((printable(file.name), f"there is another dump of rank {rank}"))
            raw.setdefault(rank, dump)
        if told is not None:
            named.add(told)
    transferring = {entry.group for dump in raw.values() for entry in dump.entries if entry.is_transfer}
    records = {rank: _record(rank, dump, transferring) for rank, dump in raw.items()}
    members = {member for record in records.values() for group in record.groups.values() for member in group.members}
    last = max((members or named) | records.keys(), default=-1)
    return Dumps(records, last + 1, tuple(broken))


def _read(file: Path, told: int | None) -> tuple[int, Dump]:
    """A dump, and whose it is."""
    if told is None:
        raise DumpError("its name does not end with a rank")
    dump = dump_format.read(file)
    return _own_rank(dump, told), dump


def _own_rank(dump: Dump, told: int) -> int:
    """The rank that made a dump: it alone is a member of all its groups. Groups that say too little leave the name's."""
    common: set[int] | None = None
    for members in dump_format.members(dump).values():
        if members:
            common = {*members} if common is None else common & {*members}
    if common is None or told in common:
        return told
    if len(common) == 1:
        return min(common)
    raise DumpError(f"its name says rank {told}, which is not in all of its groups")


def _record(rank: int, dump: Dump, transferring: set[str]) -> RankRecord:
    """What a dump says.

    Parameters:
        rank: whose it is.
        dump: what was read.
        transferring: groups with transfers. Their status may count these, by numbers that differ from rank to rank.
    """
    members = dump_format.members(dump)
    described = {name: config.desc for name, config in dump.pg_config.items() if name}
    described |= {entry.group: entry.process_group[1] for entry in dump.entries}
    groups = {name: Group(name, printable(text), members.get(name, ())) for name, text in described.items()}
    statuses = _statuses(dump)
    of_collectives = {name: each for name, each in statuses.items() if name not in transferring}
    of_either = {name: each for name, each in statuses.items() if name in transferring}
    entries = sorted(dump.entries, key=lambda each: each.record_id)
    done = _Done(entries, of_collectives, of_either)
    # Transfers that were begun as one have entries of their own, beside that of their batch.
    operations = tuple(
        _operation(each, is_done=done.is_done(each)) for each in entries if each.ends is not None or not each.is_p2p
    )
    is_whole = not any(each.profiling_name.startswith("gloo:") for each in entries)
    return RankRecord(rank, groups, _progress(operations, of_collectives), operations, is_whole, is_in_order=is_whole)


def _statuses(dump: Dump) -> dict[str, Status]:
    """How far groups are, by their names. A status has a number that only entries join with a name.

    A group without entries gets its name by the order of both, if there are as many numbers as names.
    """
    names = {entry.pg_id: entry.group for entry in dump.entries}
    numbers = sorted(dump.pg_status.keys() - names.keys())
    known = {*names.values()}
    others = [name for name in dump.pg_config if name.isdecimal() and len(name) <= _DIGITS and name not in known]
    if len(numbers) == len(others):
        names |= dict(zip(numbers, sorted(others, key=int), strict=True))
    return {names[number]: status for number, status in dump.pg_status.items() if number in names}


class _Done:
    """What of a rank is done, which not every entry says of itself.

    Of operations that were begun as one, the last entry, ``coalesced``, is retired, and the others never are. A group's
    collectives end in their order, and so do its transfers by what its status says.

    Parameters:
        entries: all of the rank's.
        of_collectives: by group, a status that counts collectives.
        of_either: by group, one that counts collectives or transfers: transfers, if there are no collectives of such
            numbers.
    """

    def __init__(
        self, entries: Sequence[Entry], of_collectives: Mapping[str, Status], of_either: Mapping[str, Status]
    ) -> None:
        self._batches = {_batch(each) for each in entries if each.name == _COALESCED and each.says_done}
        self._collectives = {name: status.last_completed_collective for name, status in of_collectives.items()}
        """By group: the last collective that is done."""
        most: dict[str, int] = {}
        for each in entries:
            most[each.group] = max(each.collective_seq_id, most.get(each.group, 0))
            if each.says_done and not each.is_transfer:
                last = self._collectives.get(each.group, -1)
                self._collectives[each.group] = max(each.collective_seq_id, last)
        self._transfers = {
            name: status.last_completed_collective
            for name, status in of_either.items()
            if status.last_completed_collective > most.get(name, 0)
        }
        """By group: the last transfer that is done, by the rank's own number."""

    def is_done(self, entry: Entry) -> bool:
        """Whether an operation is done."""
        if entry.says_done or _batch(entry) in self._batches:
            return True
        if entry.is_transfer:
            return 0 < entry.p2p_seq_id <= self._transfers.get(entry.group, 0)
        return entry.collective_seq_id <= self._collectives.get(entry.group, -1)


def _batch(entry: Entry) -> tuple[str, bool, int]:
    """What operations that were begun as one have in common."""
    return entry.group, entry.is_transfer, entry.p2p_seq_id if entry.is_transfer else entry.collective_seq_id


def _operation(entry: Entry, *, is_done: bool) -> Operation:
    sender, receiver = entry.ends or (None, None)
    return Operation(
        order=entry.record_id,
        group=entry.group,
        number=entry.collective_seq_id,
        name=entry.name,
        sender=sender,
        receiver=receiver,
        sizes=(_shapes(entry.input_sizes), _shapes(entry.output_sizes)),
        types=(tuple(entry.input_dtypes), tuple(entry.output_dtypes)),
        is_done=is_done,
    )


def _shapes(sizes: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(each) for each in sizes)


def _progress(operations: tuple[Operation, ...], statuses: Mapping[str, Status]) -> dict[str, Progress]:
    """How far a rank is in each group, by what its status says or, where it does not, by its operations."""
    begun: dict[str, int] = {}
    waiting: dict[str, int] = {}
    for each in operations:
        begun[each.group] = max(each.number, begun.get(each.group, each.number))
        if not each.is_done and not each.is_transfer:
            waiting[each.group] = min(each.number, waiting.get(each.group, each.number))
    found = {name: Progress(number, waiting.get(name, number + 1) - 1) for name, number in begun.items()}
    for name, status in statuses.items():
        most = max(status.last_enqueued_collective, begun.get(name, status.last_enqueued_collective))
        found[name] = Progress(most, status.last_completed_collective)
    return found
