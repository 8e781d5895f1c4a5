"""An extension: NICs whose received errors rise.

One kind of event and its detector, with settings of its own; nothing of Foliot's is touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from foliot.runtime.extensions import own_settings
from foliot_schemas import Event, EventKind, PortState, event_kinds
from foliot_schemas.event_kinds import EventState

if TYPE_CHECKING:
    from foliot_detector.core.protocol import Seen
    from foliot_detector.core.state.inventory import Inventory

ERRORS = EventKind(
    name="errors", concerns="nic", summary="a NIC that receives broken frames",
    states=(EventState("rising", "{who} receives broken frames"),
            EventState("still", "{who} receives no more broken frames", is_relief=True)),
    words=lambda event: f" ({event.number('count'):.0f} in a second)" if event.state == "rising" else "",
)  # fmt: skip


class ErrorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[extensions.toy_detector]``."""

    least: int = 10
    """Between two words of a port, which come every second."""
    counter: str = "rx_errors"
    """The kernel's name of it."""


class ErrorDetector:
    """Events of kind ``errors``."""

    def __init__(self, inventory: Inventory, settings: ErrorSettings) -> None:
        self._inventory, self._settings = inventory, settings
        self._counts: dict[str, int] = {}
        self._rising: dict[str, Event] = {}

    def resume(self, event: Event) -> None:
        """A NIC that an earlier run said to have errors is waited for."""
        if event.kind == ERRORS.name and event.state == "rising":
            self._rising[event.who] = event

    def observe(self, seen: Seen, now_ns: int) -> list[Event]:
        """Takes the counters of a port of the inventory."""
        counter = self._settings.counter
        if not isinstance(seen, PortState) or seen.nic not in self._inventory.nics or counter not in seen.counters:
            return []
        before, self._counts[seen.nic] = self._counts.get(seen.nic), seen.counters[counter]
        if before is None:
            return []
        rose, began = seen.counters[counter] - before, self._rising.get(seen.nic)
        if rose >= self._settings.least and began is None:
            self._rising[seen.nic] = event = _rising(seen, rose)
            return [event]
        if rose < self._settings.least and began is not None:
            return [_still(seen, rose, self._rising.pop(seen.nic))]
        return []

    def tick(self, now_ns: int) -> list[Event]:
        """Nothing: ports speak every second."""
        return []


def _rising(seen: PortState, rose: int) -> Event:
    fault = f"{seen.nic}/errors-{seen.at_ns}"
    return Event(
        id=f"{fault}/rising", kind=ERRORS.name, who=seen.nic, state="rising", at_ns=seen.at_ns, since_ns=seen.at_ns,
        evidence={"count": rose}, fault=fault,
    )  # fmt: skip


def _still(seen: PortState, rose: int, began: Event) -> Event:
    return Event(
        id=f"{began.fault}/still", kind=ERRORS.name, who=seen.nic, state="still", at_ns=seen.at_ns,
        since_ns=began.since_ns,
        evidence={"count": rose}, fault=began.fault, cause=began.id,
    )  # fmt: skip


def extend(service: str) -> None:
    """Everybody knows the kind; only the detector looks for it, and is installed where it runs."""
    event_kinds.register(ERRORS)
    if service == "detector":
        from foliot_detector.core import registry  # noqa: PLC0415

        settings = own_settings(ErrorSettings, __name__)
        registry.register("errors", lambda inventory: ErrorDetector(inventory, settings))
