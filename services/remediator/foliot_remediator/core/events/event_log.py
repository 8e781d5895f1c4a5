"""The record of all events so far. Each is taken once, unless another one of the same NIC or path has overtaken it.

Counts of the kernel and of the probes say which of two is the newer. If both tell of one loss, its end comes after it.
Times alone do not say it: clocks are set back.

A loss of which counts say nothing is taken as it comes, and has to stand before the second witness. The end of a loss
before the last is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot.bus.recent_ids import RecentIds
from foliot_remediator.core.state.inventory import nics_of
from foliot_remediator.core.state.retention import Retained
from foliot_remediator.core.state.routing_table import Cause
from foliot_remediator.core.state.state_machine import Input

if TYPE_CHECKING:
    from foliot_schemas import Event

_SEEN = 16_384
"""Event ids remembered: near a minute of them at 300 a second, the highest rate planned for."""
_COUNTS = {"flap": "carrier_down_count", "path": "last_heard_sequence"}
"""Evidence that rises from one loss to the next, by kind of event."""
_HALF_WRAP = 1 << 31

INPUTS = {
    ("flap", "down"): Input.CARRIER_LOST,
    ("flap", "up"): Input.CARRIER_BACK,
    ("flap", "admin-down"): Input.ADMIN_DOWN,
    ("flap", "admin-up"): Input.ADMIN_UP,
    ("path", "silent"): Input.SILENT,
    ("path", "lossy"): Input.LOSSY,
    ("path", "speaking"): Input.SPEAKING,
}
"""Inputs of the table of states, by an event's kind and state."""


def input_of(event: Event) -> Input | None:
    """The input that an event is to the table; None: none. A damped NIC counts its losses by itself."""
    given = INPUTS.get((event.kind, event.state))
    is_damped = given is Input.CARRIER_LOST and event.evidence.get("suppressed")
    return Input.DAMPED_LOSS if is_damped else given


_GOOD = frozenset({Input.CARRIER_BACK, Input.ADMIN_UP, Input.SPEAKING})


class EventLog:
    """Remembers events by id, and the last one of each NIC or path."""

    def __init__(self) -> None:
        self._last: Retained[str, Event] = Retained(nics_of)
        self._seen = RecentIds(_SEEN)

    def is_old(self, event: Event) -> bool:
        """Whether it came before, or something newer did."""
        last = self._last.get(event.who)
        return last is not None and (event.id in self._seen or _is_overtaken(event, last))

    def take(self, event: Event) -> None:
        """Remembers an event of a kind and state that `INPUTS` has."""
        self._last[event.who] = event
        self._seen.add(event.id)

    def forget(self, nic: str) -> None:
        """Forgets a NIC that has left the fleet: what is said of one of its name and of its paths is new."""
        self._last.forget(nic)

    def cause(self, who: str, fault: str = "") -> Cause:
        """The last event of a NIC or path as a cause; where none was seen, that it was found as it is."""
        last = self._last.get(who)
        return Cause(f"adopted/{who}", fault) if last is None else Cause(last.id, last.fault)

    def says_good(self, who: str) -> bool:
        """Whether the last event of a NIC or path says that it is good again."""
        last = self._last.get(who)
        return last is not None and INPUTS[last.kind, last.state] in _GOOD


def _is_overtaken(event: Event, last: Event) -> bool:
    """Whether an event is older than the last one about the same NIC or path."""
    rose, earlier = _rose(event, last), event.since_ns < last.since_ns
    if rose:
        return rose < 0 and earlier  # what counts anew is no older for that
    good = INPUTS[event.kind, event.state] in _GOOD
    if _is_of_one_loss(event, last):
        return not good and INPUTS[last.kind, last.state] in _GOOD
    return good and earlier


def _rose(event: Event, last: Event) -> int:
    """By how much the count of both rose; below 0: it fell; 0: it did neither, or they do not count the same."""
    name = _COUNTS[event.kind]
    count, before = int(event.number(name)), int(last.number(name))
    if event.kind == "path":
        return count - before if count and before else 0
    if name not in event.evidence or name not in last.evidence or _device(event) != _device(last):
        return 0
    # A kernel's count goes on at 0 after 2 ** 32 - 1.
    return (count - before + _HALF_WRAP) % (2 * _HALF_WRAP) - _HALF_WRAP


def _is_of_one_loss(event: Event, last: Event) -> bool:
    # Silences share a fault with others of the same moment, so that a path may have two of one fault.
    return bool(event.fault) and event.fault == last.fault and (event.kind == "flap" or event.since_ns == last.since_ns)


def _device(event: Event) -> str:
    """Boot, NIC and device, by which a fault is named before the count (`foliot_schemas.fault.port_fault`)."""
    return event.fault.rpartition("/carrier-")[0]
