"""An extension: NICs whose received errors rise. One kind of event and its detector, with settings of its own; nothing of Foliot's is touched."""

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
    states=(EventState("rising", "{who} receives broken frames"), EventState("still", "{who} receives no more broken frames", is_relief=True)),
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
        count = seen.counters.get(self._settings.counter) if isinstance(seen, PortState) else None
        if count is None or seen.nic not in self._inventory.nics:
            return []
        rose = count - self._counts.get(seen.nic, count)
        is_first, self._counts[seen.nic] = seen.nic not in self._counts, count
        began = self._rising.get(seen.nic)
        if is_first or (rose >= self._settings.least) == (began is not None):
            return []
        fault = f"{seen.nic}/errors-{seen.at_ns}" if began is None else began.fault
        event = Event(
            id=f"{fault}/{'rising' if began is None else 'still'}", kind=ERRORS.name, who=seen.nic, state="rising" if began is None else "still",
            at_ns=seen.at_ns, since_ns=seen.at_ns if began is None else began.since_ns, evidence={"count": rose}, fault=fault,
            cause="" if began is None else began.id,
        )  # fmt: skip
        if self._rising.pop(seen.nic, None) is None:
            self._rising[seen.nic] = event
        return [event]

    def tick(self, now_ns: int) -> list[Event]:
        """Nothing: ports speak every second."""
        return []


def extend(service: str) -> None:
    """Everybody knows the kind; only the detector looks for it, and is installed where it runs."""
    event_kinds.register(ERRORS)
    if service == "detector":
        from foliot_detector.core import registry  # noqa: PLC0415

        settings = own_settings(ErrorSettings, __name__)
        registry.register("errors", lambda inventory: ErrorDetector(inventory, settings))
