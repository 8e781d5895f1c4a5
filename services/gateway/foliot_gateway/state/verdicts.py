"""Which verdict of the detector on each path, NIC and process is the last."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foliot_gateway.state.date import Date
    from foliot_schemas import Event


class Verdicts:
    """The last ones. The caller limits how many things there are."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Date, str]] = {}
        """Per thing: the date of the last verdict, and the id of the event that began the trouble that it is about."""

    def take(self, event: Event, date: Date) -> bool:
        """Takes a verdict, unless a later one is known, and returns whether it did.

        The end of a trouble comes after its beginning, whatever their dates. Others come in the order of their dates.
        """
        trouble = event.cause or event.id
        last, before = self._last.get(event.who, (date, ""))
        is_overtaken = not event.cause if trouble == before else date.is_before(last)
        if is_overtaken:
            return False
        self._last[event.who] = date, trouble
        return True

    def forget(self, who: str) -> None:
        """Forgets a thing that has left."""
        self._last.pop(who, None)
