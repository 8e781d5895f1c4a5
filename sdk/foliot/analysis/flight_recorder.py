"""Reads dumps of PyTorch's Flight Recorder: pickles and JSON, of NCCL and of Gloo.

A dump is a file of bytes from elsewhere: no code in it runs, and what it says is bounded by its size. The format is that
of torch/csrc/distributed/c10d/FlightRecorder.hpp, versions 2.9 and 2.10.
"""

from __future__ import annotations

import io
import pickle
import re
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import msgspec

from foliot.analysis.collectives import Group, Operation, Progress, RankRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_MOST_BYTES = 256 * 2**20
"""Of a dump. The recorder's ring has 2,000 entries by default, of about 1 kB each."""
_NAME = re.compile(r"(?:^|.*\D)(\d+)(?:\.(?:json|pickle|pkl))?")
"""A dump's file name ends with the rank."""
_TRANSFER = re.compile(r"(?:send|recv) (\d+)(?:->|<-)(\d+)")
_MOST_RANK = 10_000_000
_COALESCED = "coalesced"
_DIGITS = 19


class DumpError(Exception):
    """A file that cannot be read as a dump; the message says why."""


class Dumps(NamedTuple):
    """The dumps of a job."""

    records: dict[int, RankRecord]
    """By rank."""
    expected: int
    """The number of the job's ranks, as groups tell or, where they do not, file names."""
    broken: tuple[tuple[str, str], ...]
    """Files that could not be read, by name, and why."""


_Rank = Annotated[int, msgspec.Meta(ge=0, lt=_MOST_RANK)]
_Text = Annotated[str, msgspec.Meta(max_length=1_000)]
_ENTRY_BYTES = 32
"""The least that an entry takes in a pickle that was not made to be larger than it is: its keys alone are as long."""
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]


class _Config(msgspec.Struct):
    name: _Text = ""
    desc: _Text = ""
    ranks: str = "[]"


class _Status(msgspec.Struct):
    last_enqueued_collective: _Int64 = -1
    last_completed_collective: _Int64 = -1


class _Entry(msgspec.Struct):
    """An entry; what it says beyond this is not asked."""

    profiling_name: _Text
    record_id: _Int64 = 0
    pg_id: _Int64 = 0
    process_group: tuple[_Text, _Text] = ("", "")
    collective_seq_id: _Int64 = 0
    p2p_seq_id: _Int64 = 0
    input_sizes: list[list[_Int64]] = []
    output_sizes: list[list[_Int64]] = []
    input_dtypes: list[_Text] = []
    output_dtypes: list[_Text] = []
    state: str = ""
    retired: bool = False
    is_p2p: bool = False


class _Dump(msgspec.Struct):
    entries: list[_Entry]
    pg_config: dict[_Text, _Config] = {}
    pg_status: dict[_Int64, _Status] = {}


class _NoClasses(pickle.Unpickler):
    """Numbers, strings and containers. Whatever else a pickle asks for ends the reading."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        """Refuses."""
        raise pickle.UnpicklingError(f"it asks for {module_name}.{global_name}"[:200])


def rank_of(name: str) -> int | None:
    """The rank that a file's name ends with; None: it is no dump's name."""
    found = _NAME.fullmatch(name)
    rank = int(found[1][-12:]) if found else _MOST_RANK
    return rank if rank < _MOST_RANK else None


def read(files: Iterable[Path]) -> Dumps:
    """Reads the dumps of a job, a file a rank. A file that cannot be read takes no other with it."""
    raw: dict[int, _Dump] = {}
    broken: list[tuple[str, str]] = []
    named = set()
    for file in sorted(files):
        told = rank_of(file.name)
        try:
            rank, dump = _read(file, told)
        except DumpError as error:
            broken.append((_printable(file.name), _printable(str(error))))
        else:
            if rank in raw:
                broken.append((_printable(file.name), f"there is another dump of rank {rank}"))
            raw.setdefault(rank, dump)
        if told is not None:
            named.add(told)
    transferring = {
        entry.process_group[0] for dump in raw.values() for entry in dump.entries if _transfer(entry.profiling_name)
    }
    records = {rank: _record(rank, dump, transferring) for rank, dump in raw.items()}
    members = {member for record in records.values() for group in record.groups.values() for member in group.members}
    last = max((members or named) | records.keys(), default=-1)
    return Dumps(records, last + 1, tuple(broken))


def _read(file: Path, told: int | None) -> tuple[int, _Dump]:
    """A dump, and whose it is."""
    if told is None:
        raise DumpError("its name does not end with a rank")
    dump = _decoded(_bytes(file))
    return _own_rank(dump, told), dump


def _bytes(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            found = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise DumpError(error.strerror or "it cannot be read") from None
    if len(found) > _MOST_BYTES:
        raise DumpError(f"it is longer than {_MOST_BYTES >> 20} MiB")
    if not found:
        raise DumpError("it is empty")
    return found


def _decoded(data: bytes) -> _Dump:
    try:
        raw = msgspec.json.decode(data) if data.lstrip()[:1] == b"{" else _NoClasses(io.BytesIO(data)).load()
    except Exception as error:  # noqa: BLE001 - the bytes of a pickle decide what the unpickler raises
        raise DumpError(f"it is neither a pickle nor JSON as the recorder writes it: {_said(error)}") from None
    if not isinstance(raw, dict) or not isinstance(raw.get("entries"), list | tuple):
        raise DumpError("it has no entries")
    if _weight(raw) > len(data):
        raise DumpError("it says more than its bytes can hold")
    try:
        # JSON has numbers as strings here and there.
        found = msgspec.convert(raw, _Dump, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        raise DumpError(_said(error)) from None
    names = {*found.pg_config, *(each.process_group[0] for each in found.entries)}
    if not all(map(str.isprintable, names)):
        raise DumpError("a group's name is no text")
    return found


def _said(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:200]


def _weight(raw: Mapping[str, Any]) -> int:
    """The number of values that will be copied, of which each takes a byte at least. A pickle may name one twice."""
    weight = 0
    for entry in raw["entries"]:
        weight += _ENTRY_BYTES
        for key in ("input_sizes", "output_sizes", "input_dtypes", "output_dtypes"):
            values = entry.get(key) if isinstance(entry, dict) else None
            for each in values if isinstance(values, list | tuple) else ():
                weight += len(each) if isinstance(each, list | tuple) else 1
    for key in ("pg_config", "pg_status"):
        for each in raw[key].values() if isinstance(raw.get(key), dict) else ():
            ranks = each.get("ranks") if isinstance(each, dict) else None
            weight += 1 + (len(ranks) if isinstance(ranks, str) else 0)
    return weight


def _own_rank(dump: _Dump, told: int) -> int:
    """The rank that made a dump: it alone is a member of all its groups. Groups that say too little leave the name's."""
    common: set[int] | None = None
    for members in _members(dump).values():
        if members:
            common = {*members} if common is None else common & {*members}
    if common is None or told in common:
        return told
    if len(common) == 1:
        return min(common)
    raise DumpError(f"its name says rank {told}, which is not in all of its groups")


def _members(dump: _Dump) -> dict[str, tuple[int, ...]]:
    read_before: dict[str, tuple[int, ...]] = {}
    found = {}
    for name, config in dump.pg_config.items():
        if config.ranks not in read_before:
            try:
                read_before[config.ranks] = tuple(msgspec.json.decode(config.ranks, type=list[_Rank]))
            except msgspec.MsgspecError as error:
                raise DumpError(f"the ranks of group {name[:40]} cannot be read: {error}") from None
        found[name] = read_before[config.ranks]
    return found


def _transfer(name: str) -> tuple[int, int] | None:
    """Sender and receiver of a transfer, by their ranks in its group. ``recv 3<-0`` is by rank 3."""
    found = _TRANSFER.search(name)
    if found is None:
        return None
    left, right = int(found[1][-12:]), int(found[2][-12:])
    return (left, right) if "->" in found[0] else (right, left)


def _record(rank: int, dump: _Dump, transferring: set[str]) -> RankRecord:
    """What a dump says.

    Parameters:
        rank: whose it is.
        dump: what was read.
        transferring: groups with transfers. Their status may count these, by numbers that differ from rank to rank.
    """
    members = _members(dump)
    described = {name: config.desc for name, config in dump.pg_config.items() if name}
    described |= {entry.process_group[0]: entry.process_group[1] for entry in dump.entries}
    groups = {name: Group(name, _printable(text), members.get(name, ())) for name, text in described.items()}
    statuses = _statuses(dump)
    told = {name: each for name, each in statuses.items() if name not in transferring}
    entries = sorted(dump.entries, key=lambda each: each.record_id)
    done = _Done(entries, statuses, told)
    operations = tuple(_operation(each, is_done=done.is_done(each)) for each in entries if not _is_batch(each))
    is_whole = not any(each.profiling_name.startswith("gloo:") for each in entries)
    return RankRecord(rank, groups, _progress(operations, told), operations, is_whole)


class _Done:
    """What of a rank is done, which not every entry says of itself.

    Of collectives or transfers that were begun as one, the last entry, ``coalesced``, is retired, and the others never
    are. A group's collectives end in their order.
    """

    def __init__(self, entries: list[_Entry], statuses: Mapping[str, _Status], told: Mapping[str, _Status]) -> None:
        self._told = told
        self._batches = {_together(each) for each in entries if _name(each) == _COALESCED and _says_done(each)}
        self._collectives: dict[str, int] = {}
        """By group: the last collective that is done."""
        self._transfers: dict[str, int] = {}
        """By group whose status counts transfers: the last that is done. It counts what was last, and transfers if
        there are no collectives of such numbers."""
        most: dict[str, int] = {}
        for each in entries:
            group = each.process_group[0]
            most[group] = max(each.collective_seq_id, most.get(group, 0))
            if _says_done(each) and not each.is_p2p and _transfer(each.profiling_name) is None:
                self._collectives[group] = max(each.collective_seq_id, self._collectives.get(group, 0))
        for group, status in statuses.items():
            if group not in told and status.last_completed_collective > most.get(group, 0):
                self._transfers[group] = status.last_completed_collective

    def is_done(self, entry: _Entry) -> bool:
        """Whether an operation is done."""
        group = entry.process_group[0]
        if _says_done(entry) or _together(entry) in self._batches:
            return True
        if entry.is_p2p or _transfer(entry.profiling_name) is not None:
            return 0 < entry.p2p_seq_id <= self._transfers.get(group, 0)
        told = self._told[group].last_completed_collective if group in self._told else -1
        return entry.collective_seq_id <= max(told, self._collectives.get(group, -1))


def _says_done(entry: _Entry) -> bool:
    return entry.retired or entry.state == "completed"


def _is_batch(entry: _Entry) -> bool:
    """Whether an entry stands for transfers that were begun as one. They have entries of their own."""
    return entry.is_p2p and _transfer(entry.profiling_name) is None


def _together(entry: _Entry) -> tuple[str, bool, int]:
    """What operations that were begun as one have in common."""
    is_transfer = entry.is_p2p or _transfer(entry.profiling_name) is not None
    return entry.process_group[0], is_transfer, entry.p2p_seq_id if is_transfer else entry.collective_seq_id


def _statuses(dump: _Dump) -> dict[str, _Status]:
    """How far groups are, by their names. A status has a number that only entries join with a name.

    A group without entries gets its name by the order of both, if there are as many numbers as names.
    """
    names = {entry.pg_id: entry.process_group[0] for entry in dump.entries}
    numbers = sorted(dump.pg_status.keys() - names.keys())
    known = {*names.values()}
    others = [name for name in dump.pg_config if name.isdecimal() and len(name) < _DIGITS and name not in known]
    if len(numbers) == len(others):
        names |= dict(zip(numbers, sorted(others, key=int), strict=True))
    return {names[number]: status for number, status in dump.pg_status.items() if number in names}


def _name(entry: _Entry) -> str:
    return _printable(entry.profiling_name.partition(":")[2].partition(" ")[0] or entry.profiling_name)


def _operation(entry: _Entry, *, is_done: bool) -> Operation:
    sender, receiver = _transfer(entry.profiling_name) or (None, None)
    return Operation(
        order=entry.record_id,
        group=entry.process_group[0],
        number=entry.collective_seq_id,
        name=_name(entry),
        sender=sender,
        receiver=receiver,
        sizes=(_shapes(entry.input_sizes), _shapes(entry.output_sizes)),
        types=(tuple(entry.input_dtypes), tuple(entry.output_dtypes)),
        is_done=is_done,
    )


def _printable(text: str) -> str:
    """A text that a terminal shows as it is, and that can be encoded: what it is not is written as its code."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def _shapes(sizes: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(each) for each in sizes)


def _progress(operations: tuple[Operation, ...], told: Mapping[str, _Status]) -> dict[str, Progress]:
    """How far a rank is in each group, by what its status says or, where it does not, by its operations."""
    begun: dict[str, int] = {}
    waiting: dict[str, int] = {}
    for each in operations:
        begun[each.group] = max(each.number, begun.get(each.group, each.number))
        if not each.is_done and not each.is_transfer:
            waiting[each.group] = min(each.number, waiting.get(each.group, each.number))
    found = {name: Progress(number, waiting.get(name, number + 1) - 1) for name, number in begun.items()}
    for name, status in told.items():
        most = max(status.last_enqueued_collective, begun.get(name, status.last_enqueued_collective))
        found[name] = Progress(most, status.last_completed_collective)
    return found
