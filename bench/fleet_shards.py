"""The shards of `bench.fleet`: the parts of its fleet for each detector and remediator."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from foliot.node.shard import ShardSettings
from foliot_schemas.names import node_of, parse_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_lab.simulate.synthetic_fleet import SyntheticFleet


class Process(NamedTuple):
    """A detector or remediator."""

    name: str
    service: str
    environment: dict[str, str]
    """The settings of its shard."""


class Plan(NamedTuple):
    """The division of the fleet into shards."""

    starts: tuple[str, ...]
    """The first node of each shard but the first."""
    running: tuple[int, ...]
    """The shards that have processes."""

    @classmethod
    def of(cls, fleet: SyntheticFleet, shards: int, only: int | None) -> Plan:
        """The division into so many shards of equal size. All of them have processes, or one alone."""
        starts = tuple(fleet.name(fleet.nodes * number // shards) for number in range(1, shards))
        return cls(starts, tuple(range(shards)) if only is None else (only,))

    def processes(self) -> Iterator[Process]:
        """All detectors, then all remediators."""
        for name in ("detector", "remediator"):
            for number in self.running:
                environment = {
                    "FOLIOT_SHARD__STARTS": json.dumps(self.starts), "FOLIOT_SHARD__NUMBER": str(number)
                }  # fmt: skip
                yield Process(f"{name}-{number}" if self.starts else name, name, environment)

    def sees_to(self, who: str) -> bool:
        """Whether a running shard has to report and answer a lost NIC or a silent path."""
        node = node_of(parse_path(who).destination if ">" in who else who)
        shards = (ShardSettings(starts=self.starts, number=number).shard() for number in self.running)
        return any(shard.owns(node) for shard in shards)
