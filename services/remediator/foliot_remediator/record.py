"""What events have said so far: each is taken once, and none after a newer one of the same NIC or path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot.recent import Recent
from foliot_remediator.states import Input
from foliot_remediator.ways import Cause

if TYPE_CHECKING:
    from foliot_schemas import Event

_SEEN = 16_384
"""Event ids remembered: near a minute of them at 300 a second, the highest rate planned for."""

INPUTS = {
    ("flap", "down"): Input.CARRIER_LOST,
    ("flap", "up"): Input.CARRIER_BACK,
    ("flap", "admin-down"): Input.ADMIN_DOWN,
    ("flap", "admin-up"): Input.ADMIN_UP,
    ("path", "silent"): Input.SILENT,
    ("path", "lossy"): Input.LOSSY,
    ("path", "speaking"): Input.SPEAKING,
}
"""What an event's kind and state are to the table of states."""


def input_of(event: Event) -> Input | None:
    """What an event is to the table; None: nothing. A NIC that is held back for flapping counts its losses by itself."""
    given = INPUTS.get((event.kind, event.state))
    is_damped = given is Input.CARRIER_LOST and event.evidence.get("suppressed")
    return Input.DAMPED_LOSS if is_damped else given


_GOOD = frozenset({Input.CARRIER_BACK, Input.ADMIN_UP, Input.SPEAKING})


class Record:
    """Remembers events by id, and the last one of each NIC or path."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, Cause, Input]] = {}
        self._seen = Recent(_SEEN)

    def is_old(self, event: Event) -> bool:
        """Whether it came before, or something newer did."""
        return event.id in self._seen or event.at_ns < self._last.get(event.who, (0,))[0]

    def take(self, event: Event) -> Cause:
        """Remembers an event of a kind and state that `INPUTS` has."""
        cause = Cause(event.id, event.fault)
        self._last[event.who] = event.at_ns, cause, INPUTS[event.kind, event.state]
        self._seen.add(event.id)
        return cause

    def cause(self, who: str, fault: str = "") -> Cause:
        """The last event of a NIC or path, or, where none was seen, that it was found as it is."""
        return self._last[who][1] if who in self._last else Cause(f"adopted/{who}", fault)

    def says_good(self, who: str) -> bool:
        """Whether the last event of a NIC or path says that it is good again."""
        return who in self._last and self._last[who][2] in _GOOD
