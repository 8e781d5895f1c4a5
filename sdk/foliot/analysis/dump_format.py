"""A dump of PyTorch's Flight Recorder, from bytes to what it says: pickles and JSON, of NCCL and of Gloo.

A dump is a file of bytes from elsewhere: no code in it runs, and what it says is bounded by its size. The format is that
of torch/csrc/distributed/c10d/FlightRecorder.hpp, versions 2.9 and 2.10.
"""

from __future__ import annotations

import io
import pickle
import re
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MOST_RANK = 9_999_999
"""Of seven digits, as file names and the ends of transfers."""
_MOST_BYTES = 256 * 2**20
"""Of a dump. The recorder's ring has 2,000 entries by default, of about 1 kB each."""
_ENTRY_BYTES = 32
"""The least that an entry takes in a pickle that was not made to be larger than it is: its keys alone are as long."""
_TRANSFER = re.compile(r"(?:send|recv) (\d{1,7})(?:->|<-)(\d{1,7})\b")

_Rank = Annotated[int, msgspec.Meta(ge=0, le=_MOST_RANK)]
_Text = Annotated[str, msgspec.Meta(max_length=1_000)]
_Int64 = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]


class DumpError(Exception):
    """A file that cannot be read as a dump; the message says why."""


class GroupConfig(msgspec.Struct):
    """A process group of the rank."""

    name: _Text = ""
    desc: _Text = ""
    ranks: str = "[]"
    """Its members, as a list in JSON. Gloo leaves it empty."""


class Status(msgspec.Struct):
    """How far a group is. NCCL counts collectives or transfers, whichever were last."""

    last_enqueued_collective: _Int64 = -1
    last_completed_collective: _Int64 = -1


class Entry(msgspec.Struct):
    """An operation; what an entry says beyond this is not asked."""

    profiling_name: _Text
    """Of a library, an operation and, of a transfer, its ends by their ranks in the group: ``nccl:recv 3<-0``."""
    record_id: _Int64 = 0
    pg_id: _Int64 = 0
    process_group: tuple[_Text, _Text] = ("", "")
    """Name and description."""
    collective_seq_id: _Int64 = 0
    p2p_seq_id: _Int64 = 0
    input_sizes: list[list[_Int64]] = []
    output_sizes: list[list[_Int64]] = []
    input_dtypes: list[_Text] = []
    output_dtypes: list[_Text] = []
    state: str = ""
    retired: bool = False
    is_p2p: bool = False

    @property
    def group(self) -> str:
        """The group's name."""
        return self.process_group[0]

    @property
    def name(self) -> str:
        """The operation's name alone."""
        return printable(self.profiling_name.partition(":")[2].partition(" ")[0] or self.profiling_name)

    @property
    def ends(self) -> tuple[int, int] | None:
        """Sender and receiver of a transfer, by their ranks in the group; None: it is none, or one of several."""
        found = _TRANSFER.search(self.profiling_name)
        if found is None:
            return None
        left, right = int(found[1]), int(found[2])
        return (left, right) if "->" in found[0] else (right, left)

    @property
    def is_transfer(self) -> bool:
        """Whether it is a transfer, or several that were begun as one."""
        return self.is_p2p or self.ends is not None

    @property
    def says_done(self) -> bool:
        """Whether it is marked as done. One that is not may be done all the same."""
        return self.retired or self.state == "completed"


class Dump(msgspec.Struct):
    """What a rank left."""

    entries: list[Entry]
    pg_config: dict[_Text, GroupConfig] = {}
    pg_status: dict[_Int64, Status] = {}


class _NoClasses(pickle.Unpickler):
    """Numbers, strings and containers. Whatever else a pickle asks for ends the reading."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        """Refuses."""
        raise pickle.UnpicklingError(f"it asks for {module_name}.{global_name}"[:200])


def read(file: Path) -> Dump:
    """Reads a file.

    Raises:
        DumpError: it is no dump, or says more than its bytes can hold.
    """
    return _decoded(_bytes(file))


def members(dump: Dump) -> dict[str, tuple[int, ...]]:
    """The ranks of each group, by its name; of many groups they are one text.

    Raises:
        DumpError: they are no list of ranks.
    """
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


def printable(text: str) -> str:
    """A text that a terminal shows as it is, and that can be encoded: what it is not is written as its code."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


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


def _decoded(data: bytes) -> Dump:
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
        found = msgspec.convert(raw, Dump, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        raise DumpError(_said(error)) from None
    names = {*found.pg_config, *(each.group for each in found.entries)}
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
