"""What a process of a replaceable training job tells the agent by the Unix socket. Anybody could write it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from foliot_agent.core.rank_report import Number  # noqa: TC001 - msgspec reads annotations at run time
from foliot_schemas.bounds import Name, Text, check_name
from foliot_schemas.collective import MOST_RANKS
from foliot_schemas.worker import NO_RANK, Stage

_HEAD = b'{"kind"'
"""The first key of a worker's packet. A recorder's has none of this name."""
_LONGEST_PLACE = 320
"""A host's name has at most 255 characters (RFC 1035), and a port five digits."""
_LONGEST_REASON = 512
"""Of 128 workers that all have one, a batch is some 70 KB. NATS takes a megabyte by default."""
_Rank = Annotated[int, msgspec.Meta(ge=NO_RANK, lt=MOST_RANKS)]


class WorkerReport(msgspec.Struct, frozen=True, gc=False):
    """One packet, see `foliot_schemas.WorkerState`; times are of CLOCK_MONOTONIC_RAW, and 0 is none."""

    kind: Literal["worker"]
    job: Name
    process: Number
    rank: _Rank
    size: Annotated[int, msgspec.Meta(ge=1, le=MOST_RANKS)]
    stage: Stage
    generation: Number = 0
    step: Number = 0
    meet: Annotated[str, msgspec.Meta(max_length=_LONGEST_PLACE)] = ""
    reason: Text = ""
    left_ns: Number = 0
    formed_ns: Number = 0
    copied_ns: Number = 0
    first_step_ns: Number = 0
    state_bytes: Number = 0
    state_from: _Rank = NO_RANK
    lost_steps: Number = 0

    @property
    def why(self) -> str:
        """The reason, as far as a batch has room for it."""
        return self.reason[:_LONGEST_REASON]


def is_of_worker(packet: bytes) -> bool:
    """Whether a packet is meant to be a worker's."""
    return packet.startswith(_HEAD)


def read(packet: bytes) -> WorkerReport:
    """The report in a packet.

    Raises:
        ValueError: it is none, or contradicts itself.
    """
    try:
        report = msgspec.json.decode(packet, type=WorkerReport)
    except (msgspec.DecodeError, RecursionError) as error:  # a ValidationError is the former
        raise ValueError(str(error)) from None
    check_name(report.job)
    if report.rank >= report.size:
        raise ValueError(f"rank {report.rank} of {report.size}")
    if report.stage == "spare" and report.rank != NO_RANK:
        raise ValueError(f"a spare that has rank {report.rank}")
    return report
