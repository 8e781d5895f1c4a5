"""The user's own thresholds: what they are about, how much is too much, and for how long."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

from foliot_schemas import Job
from foliot_schemas.bounds import LongName, check_name
from foliot_schemas.names import Path, parse_path

_Positive = Annotated[float, msgspec.Meta(gt=0)]
_Microseconds = Annotated[float, msgspec.Meta(ge=1.0, le=2e6)]
"""Delays are counted in buckets from one microsecond to two seconds."""
_JOB = "job:"
LONGEST_S = 600.0
"""The longest that a threshold may ask for. The detector keeps the reports of that time of each path that is over."""


class Pair(NamedTuple):
    """All traffic from one node to another, by whichever path it goes."""

    source: str
    destination: str


class Rail(NamedTuple):
    """All traffic that a rail carries."""

    name: str


class OfJob(NamedTuple):
    """All traffic of a registered job."""

    name: str


class ThresholdRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[[detector.thresholds]]``: a limit of the p99 one-way delay."""

    name: LongName
    """Names the threshold in events, as their `who`. Each has its own."""
    of: str
    """What it is about: a path (``node0.rail0>node3.rail0#2``), the traffic from a node to another (``node0>node3``),
    all traffic that a rail carries (``rail0``), or that of a registered job (``job:pretrain-7``)."""
    p99_us: _Microseconds
    """The p99 one-way delay that is over it, in microseconds: from 1 to 2,000,000."""
    for_s: _Positive
    """For how long the delay must be over it without a break, and under 0.8 of it to be under again. At most
    600."""

    def about(self) -> Path | Pair | Rail | OfJob:
        """What it is about.

        Raises:
            ValueError: `of` names no path, pair of nodes, rail or job.
        """
        if self.of.startswith(_JOB):
            name = self.of.removeprefix(_JOB)
            Job(name=name, nics=()).check()
            return OfJob(name)
        if "#" in self.of:
            return parse_path(self.of)
        source, between, destination = self.of.partition(">")
        for name in (source, destination) if between else (source,):
            check_name(name)
        return Pair(source, destination) if between else Rail(source)


class DelayThresholdSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of ``[detector]`` about thresholds."""

    thresholds: tuple[ThresholdRule, ...] = ()
    """Limits of the p99 one-way delay of paths, pairs of nodes, rails and jobs, each with an event of its own."""

    def __post_init__(self) -> None:
        """Refuses thresholds that cannot be told or watched.

        Raises:
            ValueError: two have one name, or one is about nothing; the message names the key.
        """
        names = [rule.name for rule in self.thresholds]
        for rule in self.thresholds:
            if names.count(rule.name) > 1:
                raise ValueError(f"field `thresholds`: there are two named {rule.name!r}")
            if rule.for_s > LONGEST_S:
                raise ValueError(
                    f"field `thresholds`: for_s of {rule.name} is at most {LONGEST_S:g}, got {rule.for_s:g}"
                )
            try:
                rule.about()
            except ValueError as error:
                expected = "a path (a.rail0>b.rail0#1), a pair of nodes (a>b), a rail (rail0) or a job (job:name)"
                raise ValueError(f"field `thresholds`: of of {rule.name} is not {expected}: {error}") from error
