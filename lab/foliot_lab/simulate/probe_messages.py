"""The messages of a synthetic fleet's probes during a storm, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot_schemas import Witness
from foliot_schemas.names import Path, nic_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_lab.simulate.fault_storm import Step
    from foliot_lab.simulate.synthetic_fleet import SyntheticFleet
    from foliot_schemas import DelayBatch, PortState

_LAST_NS = 10_000_000
"""The time before a cut at which the path was last heard."""
_SILENCE_NS = 130_000_000
"""The delay of the report that a path fell silent."""


class ProbeMessages:
    """Applies a storm's steps to a fleet, and makes the resulting messages."""

    def __init__(self, fleet: SyntheticFleet) -> None:
        self._fleet = fleet
        self.begun: dict[str, int] = {}
        """Per NIC or path, the time of the first message about its last fault, ns."""

    def of(self, step: Step, now_ns: int) -> Iterator[DelayBatch | PortState]:
        """The messages of a step that is made now."""
        fleet, node = self._fleet, step.node
        nic = nic_name(fleet.name(node), step.rail) if step.rail else ""
        match step.kind:
            case "report":
                yield fleet.report(node, now_ns)
            case "port":
                yield fleet.port(node, step.rail, now_ns, change=False)
            case "lose":
                fleet.lose(nic, now_ns)
                self.begun[nic] = now_ns
                yield fleet.port(node, step.rail, now_ns, change=True)
            case "return":
                fleet.lost.pop(nic, None)
                yield fleet.port(node, step.rail, now_ns, change=True)
            case "mute":
                yield from self._turn_all(step, now_ns, Witness.FELL_SILENT, now_ns - _SILENCE_NS - _LAST_NS)
            case "unmute":
                yield from self._turn_all(step, now_ns, Witness.SPEAKS_AGAIN, now_ns)
            case "cut":
                fleet.cut[str(self._path(step))] = now_ns
            case "fell":
                path = self._path(step)
                self.begun[str(path)] = now_ns
                yield fleet.word(step.peer, now_ns, Witness.FELL_SILENT, [path], fleet.cut[str(path)] - _LAST_NS)
            case "mend":
                fleet.cut.pop(str(self._path(step)), None)
                yield fleet.word(step.peer, now_ns, Witness.SPEAKS_AGAIN, [self._path(step)], now_ns)

    def _path(self, step: Step) -> Path:
        name = self._fleet.name
        return Path(nic_name(name(step.node), step.rail), nic_name(name(step.peer), step.rail), 0)

    def _turn_all(self, step: Step, now_ns: int, witness: int, last_ns: int) -> Iterator[DelayBatch]:
        """The paths in use of a lost NIC, by all nodes that no longer hear them, or hear them again."""
        fleet = self._fleet
        lost = nic_name(fleet.name(step.node), step.rail)
        others = {peer: nic_name(fleet.name(peer), step.rail) for peer in fleet.neighbours(step.node)}
        others = {peer: nic for peer, nic in others.items() if nic not in fleet.lost}
        yield fleet.word(step.node, now_ns, witness, (Path(nic, lost, 0) for nic in others.values()), last_ns)
        for peer, nic in others.items():
            yield fleet.word(peer, now_ns, witness, [Path(lost, nic, 0)], last_ns)
