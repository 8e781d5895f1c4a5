"""Nodes with a GPU that has failed, or is to be reset before long, by what its driver logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from foliot_detector.core.detectors.ending import ended
from foliot_detector.core.detectors.gpu_errors.xids import IGNORED
from foliot_schemas import Event, GpuError, Node, PortState
from foliot_schemas.event_kinds import HARDWARE, is_relief

if TYPE_CHECKING:
    from foliot_detector.core.detectors.gpu_errors.settings import GpuErrorSettings
    from foliot_detector.core.detectors.gpu_errors.xids import Consequence
    from foliot_detector.core.protocol import Seen
    from foliot_detector.core.state.inventory import Inventory

_S = 1_000_000_000
_LOOK_NS = _S
_LASTING_NS = 3_600 * _S
"""Nobody says that a GPU was reset. Where a reset is enough, one that logs no such error for so long has been, or needed
none. gpud and NVSentinel wait for a person."""


class _Open(NamedTuple):
    """What is said of a node."""

    event: Event
    consequence: Consequence
    boot: str
    """The node's boot at that time; empty: not known."""
    last_ns: int
    """When the last such error was logged, on the timeline; 0: not known to this run of the detector."""


class GpuErrorDetector:
    """Events of kind ``hardware``, one for each node.

    An error after which more follows than was said gives a new event, any other none.
    """

    def __init__(self, inventory: Inventory, settings: GpuErrorSettings) -> None:
        self._inventory = inventory
        self._consequences = settings.consequences()
        self._open: dict[str, _Open] = {}
        """By node."""
        self._boots: dict[str, str] = {}
        """By node, its present boot, as its probe says with its ports."""
        self._looked_ns = 0

    def resume(self, event: Event) -> None:
        """Waits for a node to start anew of which an earlier run said that a GPU has failed."""
        if event.kind == HARDWARE.name and not is_relief(event):
            consequence = self._consequences.get(round(event.number("xid")), IGNORED)
            self._open[event.who] = _Open(event, consequence, str(event.evidence.get("boot", "")), 0)

    def observe(self, seen: Seen, now_ns: int) -> list[Event]:
        """Takes errors, and what tells that a node has started anew."""
        if isinstance(seen, PortState):
            return self._boot(seen.node, seen.fault, now_ns)
        if isinstance(seen, GpuError):
            return self._error(seen, now_ns)
        if isinstance(seen, Node) and not seen.nics:
            self._boots.pop(seen.name, None)
            self._open.pop(seen.name, None)
        return []

    def tick(self, now_ns: int) -> list[Event]:
        """Ends what a reset has mended, as far as that shows."""
        if abs(now_ns - self._looked_ns) < _LOOK_NS:
            return []
        self._looked_ns = now_ns
        events = []
        for node, known in list(self._open.items()):
            last_ns = known.last_ns or self._inventory.here_ns(node, known.event.at_ns, now_ns)
            self._open[node] = known._replace(last_ns=last_ns)
            if known.consequence.cure == "reset" and now_ns - last_ns >= _LASTING_NS:
                events.append(self._ended(node, now_ns))
        return events

    def _boot(self, node: str, boot: str, now_ns: int) -> list[Event]:
        if not boot or self._boots.get(node) == boot:
            return []
        self._boots[node] = boot
        known = self._open.get(node)
        if known is None:
            return []
        if known.boot:
            return [self._ended(node, now_ns)] if known.boot != boot else []
        self._open[node] = known._replace(boot=boot)
        return []

    def _error(self, error: GpuError, now_ns: int) -> list[Event]:
        consequence = self._consequences.get(error.xid)
        if consequence is None:
            return []
        here_ns, known = self._inventory.here_ns(error.node, error.at_ns, now_ns), self._open.get(error.node)
        if consequence.cure == "reset" and now_ns - here_ns >= _LASTING_NS:
            return []  # an agent that was started anew reads what the kernel keeps
        if known is not None and consequence.weight <= known.consequence.weight:
            self._open[error.node] = known._replace(last_ns=max(known.last_ns, here_ns))
            return []
        boot = self._boots.get(error.node, "")
        event = _begun(error, consequence, boot)
        self._open[error.node] = _Open(event, consequence, boot, here_ns)
        return [event]

    def _ended(self, node: str, now_ns: int) -> Event:
        event = self._open.pop(node).event
        at_ns = max(self._inventory.at_ns(node, now_ns), event.since_ns)
        relief = ended(event, "restarted", at_ns, {"lasted_s": (at_ns - event.since_ns) / _S})
        return msgspec.structs.replace(relief, related=event.related)


def _begun(error: GpuError, consequence: Consequence, boot: str) -> Event:
    fault = f"{error.node}/gpu{f'-{error.device}' if error.device else ''}/xid-{error.xid}-{error.at_ns}"
    return Event(
        id=fault, kind=HARDWARE.name, who=error.node, state=consequence.severity, at_ns=error.at_ns,
        since_ns=error.at_ns, fault=fault,
        evidence={
            "xid": error.xid, "device": error.device, "cure": consequence.cure, "message": error.message, "boot": boot,
        },
        related={"nodes": (error.node,)},
    )  # fmt: skip
