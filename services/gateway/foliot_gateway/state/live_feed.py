"""The changes for live readers: tiles that changed, and events.

Each is encoded once per transport, however many read it.

Nothing is queued for a reader. Tiles and events stand here once. A reader has a number up to which it has read, and
takes what came after that when it is ready to. A slow reader gets the newest state of each tile and nothing in between.
A change that all have read costs the same as one that nobody has.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, TypeVar

import msgspec

from foliot.text.events import sentence
from foliot.text.messages import is_bad
from foliot_gateway.state.nic_condition import Tile  # noqa: TC001 - msgspec reads annotations at run time
from foliot_schemas import Event  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

_MOST_DIGITS = 20
"""Most digits of a number of events; Python converts none of more than 4,300."""
MOST_EVENTS = 1_000
"""Events kept for readers that come back."""
_FIRST = 200
"""Events for a page that has none yet."""


Encoded = TypeVar("Encoded")


class Tiles(msgspec.Struct, frozen=True, kw_only=True):
    """Tiles that changed, or all of them."""

    whole: bool
    """These are all there are."""
    tiles: tuple[Tile, ...]
    gone: tuple[str, ...]


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """An event, and what it says in words."""

    event: Event
    words: str
    bad: bool
    """It tells of trouble, not of its end."""


class Missed(msgspec.Struct, frozen=True, kw_only=True):
    """A reader was away for so long that events it has not read are no longer here."""

    events: int


class State(msgspec.Struct, frozen=True, kw_only=True):
    """How the gateway is, once a second: that it comes at all is the sign of life."""

    now_ns: int
    """Reference time."""
    bus: bool
    """The bus answers."""
    past: bool
    """What happened before the gateway started has been read."""
    heard_ms: int | None
    """How long ago any probe was last heard of; None: never."""


class Change:
    """One thing that readers are told.

    Parameters:
        number: of an event: by it, a reader that comes back names the last one that it has had. Empty of all else.
    """

    __slots__ = ("_encoded", "number", "said")

    def __init__(self, said: Tiles | Told | Missed | State, number: str = "") -> None:
        self.said = said
        self.number = number
        self._encoded: dict[Callable[[Change], Any], Any] = {}

    def encoded(self, encode: Callable[[Change], Encoded]) -> Encoded:
        """The change as a transport sends it: the function is called once, for the first of all readers."""
        if encode not in self._encoded:
            self._encoded[encode] = encode(self)
        found: Encoded = self._encoded[encode]
        return found


class Board:
    """The tiles, and in which order they changed."""

    def __init__(self) -> None:
        self.version = 0
        """How often any tile changed."""
        self._tiles: OrderedDict[str, tuple[int, Tile | None]] = OrderedDict()
        """Per NIC the version in which it last changed, the newest at the end; None: it is gone."""
        self._changes: dict[int, Change] = {}

    def update(self, tiles: Mapping[str, Tile | None]) -> bool:
        """Takes the tiles that may have changed; returns whether any did."""
        changed = {nic: tile for nic, tile in tiles.items() if self._tiles.get(nic, (0, None))[1] != tile}
        if not changed:
            return False
        self.version += 1
        self._changes.clear()
        for nic, tile in changed.items():
            self._tiles[nic] = self.version, tile
            self._tiles.move_to_end(nic)
        return True

    def since(self, version: int) -> Change:
        """The change that brings a reader from a version to the present one; 0: it has nothing."""
        if version not in self._changes:
            self._changes[version] = self._change(version)
        return self._changes[version]

    def _change(self, version: int) -> Change:
        newer: dict[str, Tile | None] = {}
        for nic, (changed, tile) in reversed(self._tiles.items()):
            if changed <= version:
                break
            newer[nic] = tile
        there = tuple(tile for _, tile in sorted(newer.items()) if tile is not None)
        gone = tuple(sorted(nic for nic, tile in newer.items() if tile is None)) if version else ()
        return Change(Tiles(whole=not version, tiles=there, gone=gone))


class Journal:
    """The newest events by number.

    It begins when the past has been read: before, nobody could say what a reader has missed.
    """

    def __init__(self) -> None:
        self.last = 0
        """Number of the newest event."""
        self._run = secrets.token_hex(4)
        """Tells these numbers from those of an earlier process, which mean nothing here."""
        self._changes: deque[Change] = deque(maxlen=MOST_EVENTS)
        self.is_open = False
        """The events before the start have been read from the streams."""

    def open(self, past: Iterable[Event]) -> None:
        """Begins, with the events so far, oldest first."""
        self.is_open = True
        for event in past:
            self.append(event)

    def append(self, event: Event) -> None:
        """Takes an event; before `open` it is left to the past."""
        if self.is_open:
            self.last += 1
            told = Told(event=event, words=sentence(event), bad=is_bad(event))
            self._changes.append(Change(told, f"{self._run}-{self.last}"))

    def start(self, last_id: str) -> int:
        """The number up to which a reader has read, by the id of the last event that it got.

        A reader with an id of an earlier process gets all there is. Events have ids of their own, so that a reader
        knows those it has had.
        """
        run, _, number = last_id.rpartition("-")
        if run == self._run and number.isdecimal() and len(number) < _MOST_DIGITS:
            return min(int(number), self.last)
        return self._before_first if last_id else max(self._before_first, self.last - _FIRST)

    def after(self, number: int) -> tuple[Change, ...]:
        """All events after a number, with a word before them if some are no longer here."""
        missed = max(0, self._before_first - number)
        word = (Change(Missed(events=missed)),) if missed else ()
        kept = len(self._changes)
        count = min(self.last - number, kept)
        return (*word, *(self._changes[index] for index in range(kept - count, kept)))

    @property
    def _before_first(self) -> int:
        return self.last - len(self._changes)
