"""What a training job's process tells the agent by the Unix socket. `foliot.torch` writes it, and anybody could."""

from __future__ import annotations

from typing import Annotated

import msgspec

from foliot_schemas.bounds import FAR_NS, LongName, Name, Text, Word, check_name
from foliot_schemas.collective import MOST_RANKS

MOST_BYTES = 1 << 18
"""The largest packet: more than a Unix socket sends by default."""
_MOST_ROWS = 1_024
_MOST_GROUPS = 256
Number = Annotated[int, msgspec.Meta(ge=0, lt=FAR_NS // 2)]
"""A count, or a time of CLOCK_MONOTONIC_RAW: with the reference time of its beginning it is still within bounds."""
_Rank = Annotated[int, msgspec.Meta(ge=0, lt=MOST_RANKS)]
_Peer = Annotated[int, msgspec.Meta(ge=-1, lt=MOST_RANKS)]


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One collective or transfer, see `foliot_schemas.CollectiveRow`; times are of CLOCK_MONOTONIC_RAW."""

    group: LongName
    operation: Word
    number: Number
    order: Number
    peer: _Peer
    began_ns: Number
    ended_ns: Number
    elements_in: Number
    elements_out: Number
    type: Word
    bytes: Number


class Progress(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far it is in a group."""

    group: LongName
    begun: Number
    done: Number


class GroupTold(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A group, as in `foliot_schemas.CollectiveGroup`."""

    name: LongName
    description: Text
    members: Annotated[tuple[tuple[_Rank, _Rank, _Rank], ...], msgspec.Meta(max_length=4_096)]


class RankReport(msgspec.Struct, frozen=True):
    """One packet. Lists that are left out are as they were."""

    job: Name
    rank: _Rank
    size: Annotated[int, msgspec.Meta(ge=1, le=MOST_RANKS)]
    began_ns: Number
    """When the process began to record: by it, one that was started anew is told from its predecessor."""
    generation: Number = 0
    """The number of its process group, see `foliot_schemas.RankState`."""
    data_ns: Number = 0
    cpu_delay_ns: Number = 0
    dropped: Number = 0
    over: bool = False
    progress: Annotated[tuple[Progress, ...], msgspec.Meta(max_length=_MOST_GROUPS)] = ()
    groups: Annotated[tuple[GroupTold, ...], msgspec.Meta(max_length=_MOST_GROUPS)] = ()
    open: Annotated[tuple[Row, ...], msgspec.Meta(max_length=_MOST_ROWS)] | None = None
    """What is not done; None: as it was told before."""
    done: Annotated[tuple[Row, ...], msgspec.Meta(max_length=_MOST_ROWS)] = ()


def read(packet: bytes) -> RankReport:
    """The report in a packet.

    Raises:
        ValueError: it is none, or contradicts itself.
    """
    try:
        report = msgspec.json.decode(packet, type=RankReport)
    except (msgspec.DecodeError, RecursionError) as error:  # a ValidationError is the former
        raise ValueError(str(error)) from None
    check_name(report.job)
    if report.rank >= report.size:
        raise ValueError(f"rank {report.rank} of {report.size}")
    for each in report.progress:
        if each.done > each.begun:
            raise ValueError(f"in the group {each.group[:64]} more is done than begun")
    for group in report.groups:
        if _last(group.members) >= report.size or any(not step and count > 1 for _, step, count in group.members):
            raise ValueError(f"the group {group.name[:64]} has members that the job does not have")
    return report


def _last(members: tuple[tuple[int, int, int], ...]) -> int:
    """The highest rank of a group's runs, or how many they have, if that is more."""
    highest = max((first + step * max(count - 1, 0) for first, step, count in members), default=0)
    return max(highest, sum(count for _, _, count in members) - 1)
