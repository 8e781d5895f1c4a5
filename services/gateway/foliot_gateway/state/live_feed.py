"""What live pages are told: the tiles that changed, and the events, each encoded once however many read them.

Nothing is queued for a reader. Tiles and events stand here once; a reader has a number up to which it has read, and takes what came
after it when it is ready to. One that is slow gets the newest state of each tile and nothing in between; what all have read,
and what nobody has, costs the same.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from typing import TYPE_CHECKING

import msgspec

from foliot.text.events import sentence
from foliot.text.messages import is_bad
from foliot_gateway.state.nic_condition import Tile  # noqa: TC001 - msgspec reads annotations at run time
from foliot_schemas import Event  # noqa: TC001 - as above

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MOST_DIGITS = 20
"""Of a number of events; Python converts none of more than 4,300."""
_FIRST = 200
"""Events that a page which has none yet is given."""


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


def frame(name: str, data: object, number: str = "") -> bytes:
    """A server-sent event (WHATWG HTML, 9.2): JSON in one line."""
    identity = f"id: {number}\n" if number else ""
    return b"%sevent: %s\ndata: %s\n\n" % (identity.encode(), name.encode(), msgspec.json.encode(data))


class Board:
    """The tiles, and in which order they changed."""

    def __init__(self) -> None:
        self.version = 0
        """How often any tile changed."""
        self._tiles: OrderedDict[str, tuple[int, Tile | None]] = OrderedDict()
        """Per NIC the version in which it last changed, the newest at the end; None: it is gone."""
        self._frames: dict[int, bytes] = {}

    def update(self, tiles: Mapping[str, Tile | None]) -> bool:
        """Takes the tiles that may have changed; whether any did."""
        changed = {nic: tile for nic, tile in tiles.items() if self._tiles.get(nic, (0, None))[1] != tile}
        if not changed:
            return False
        self.version += 1
        self._frames.clear()
        for nic, tile in changed.items():
            self._tiles[nic] = self.version, tile
            self._tiles.move_to_end(nic)
        return True

    def since(self, version: int) -> bytes:
        """The frame that brings a reader from a version to the present one; 0: it has nothing."""
        if version not in self._frames:
            self._frames[version] = self._frame(version)
        return self._frames[version]

    def _frame(self, version: int) -> bytes:
        newer: dict[str, Tile | None] = {}
        for nic, (changed, tile) in reversed(self._tiles.items()):
            if changed <= version:
                break
            newer[nic] = tile
        there = tuple(tile for _, tile in sorted(newer.items()) if tile is not None)
        gone = tuple(sorted(nic for nic, tile in newer.items() if tile is None)) if version else ()
        return frame("tiles", Tiles(whole=not version, tiles=there, gone=gone))


class Journal:
    """The newest events by number. It begins when the past has been read: before, nobody could say what a reader has missed.

    Parameters:
        limit: how many events are kept.
        run: tells this journal's numbers from those of an earlier process, which mean nothing here.
    """

    def __init__(self, limit: int = 1_000, run: str = "") -> None:
        self.limit = limit
        self.last = 0
        """Number of the newest event."""
        self._run = run or secrets.token_hex(4)
        self._frames: deque[bytes] = deque(maxlen=limit)
        self.is_open = False

    def open(self, past: Iterable[Event]) -> None:
        """Begins, with what happened so far, oldest first."""
        self.is_open = True
        for event in past:
            self.append(event)

    def append(self, event: Event) -> None:
        """Takes an event; before `open` it is left to the past."""
        if self.is_open:
            self.last += 1
            told = Told(event=event, words=sentence(event), bad=is_bad(event))
            self._frames.append(frame("event", told, f"{self._run}-{self.last}"))

    def start(self, last_id: str) -> int:
        """Up to where a reader has read, by the id of the last event that it got; one of an earlier process gets all there is.

        Events have ids of their own, so that a reader knows those it has had.
        """
        run, _, number = last_id.rpartition("-")
        if run == self._run and number.isdecimal() and len(number) < _MOST_DIGITS:
            return min(int(number), self.last)
        return self._before_first if last_id else max(self._before_first, self.last - _FIRST)

    def after(self, number: int) -> bytes:
        """The frames of all events after a number, with a word before them if some are no longer here."""
        missed = max(0, self._before_first - number)
        word = frame("missed", Missed(events=missed)) if missed else b""
        count = min(self.last - number, len(self._frames))
        return word + b"".join(self._frames[index] for index in range(len(self._frames) - count, len(self._frames)))

    @property
    def _before_first(self) -> int:
        return self.last - len(self._frames)
