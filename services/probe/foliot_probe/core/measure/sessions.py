"""The sessions of a node: probes sent, heard and echoed on every stream.

A stream is a sequence of probes both ways between two NICs with one entropy. All streams of a node live in one table of
columns, one row per stream. So a batch of probes costs a handful of numpy calls and not a Python object each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from foliot.columns import enlarge
from foliot_probe.core.measure.padded_counts import PaddedCounts, said
from foliot_probe.core.packet import (
    ECHOES,
    IDLE_US,
    IN_USE,
    LEAST_BYTES,
    MAGIC,
    MOST_BYTES,
    PREDECESSORS,
    ROW_BITS,
    USER,
    ProbePacket,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Rows = NDArray[np.intp]

DEPTH = 128
"""Probes that a stream remembers in each direction: two and a half seconds of a stream that sends a coded pair in every
tick. A large fleet waits as long between two reports. A power of two."""

_NEVER = -(1 << 62)
"""Sequence of an empty cell. No probe can name it, not even one of a stranger that echoes sequences never sent."""

_LAST = (1 << 63) - 1
_ROW_MASK = (1 << ROW_BITS) - 1
_COUNT_SHIFT = IN_USE.bit_length()

_BEFORE = np.arange(1, PREDECESSORS + 1)
_ECHO = np.arange(ECHOES)


class Completed(NamedTuple):
    """Probes of which both stamps are known, ordered by row; all columns have the same length."""

    row: Rows
    sequence: NDArray[np.int64]
    transmit_ns: NDArray[np.int64]
    receive_ns: NDArray[np.int64]

    def take(self, some: slice | NDArray[Any]) -> Completed:
        """Some of them."""
        return Completed(*(column[some] for column in self))


_NONE = Completed(*(np.zeros(0, np.int64) for _ in Completed._fields))


def joined(parts: Iterable[Completed]) -> Completed:
    """All of these."""
    return Completed(*map(np.concatenate, zip(_NONE, *parts, strict=True)))


class Ring:
    """One direction of every stream: the last `DEPTH` probes with their stamps (0: not known yet)."""

    def __init__(self, rows: int) -> None:
        cells = rows * DEPTH
        self.sequence = np.full(cells, _NEVER, np.int64)
        self.transmit_ns = np.zeros(cells, np.int64)
        self.receive_ns = np.zeros(cells, np.int64)
        self.host_ns = np.zeros(cells, np.int64)
        """When an own probe left, by the host's clock; 0: it did not yet."""
        self.full = np.zeros(cells, np.bool_)
        """Whether a probe is padded. Padded probes take longer on every link, so their stamps say nothing of clocks."""
        self._ready = np.zeros(cells, np.bool_)

    def forget(self, row: Rows | int) -> None:
        """Empty a row, or several."""
        for column, empty in ((self.sequence, _NEVER), (self._ready, False)):
            column.reshape(-1, DEPTH)[row] = empty

    def place(
        self, row: Rows, sequence: NDArray[np.int64], full: NDArray[np.bool_], receive_ns: NDArray[np.int64]
    ) -> Rows:
        """Take these probes in, in this order; one already known, or older than the ring remembers, changes nothing.

        Returns the rows of those taken in.
        """
        cell = row * DEPTH + (sequence & (DEPTH - 1))
        new = np.flatnonzero(self.sequence[cell] < sequence)
        new = new[_rising(cell[new], sequence[new])]
        taken: Rows = row[new]
        self.put(taken, sequence[new], full[new], receive_ns[new])
        return taken

    def put(
        self,
        row: Rows,
        sequence: NDArray[np.int64],
        full: NDArray[np.bool_],
        receive_ns: NDArray[np.int64] | int = 0,
    ) -> None:
        """Take probes in that are later than all before; of several in a cell the last one stays."""
        cell = row * DEPTH + (sequence & (DEPTH - 1))
        self.sequence[cell] = sequence
        self.transmit_ns[cell] = 0
        self.receive_ns[cell] = receive_ns
        self.host_ns[cell] = 0
        self.full[cell] = full
        self._ready[cell] = False

    def note(
        self, column: NDArray[np.int64], row: Rows, sequence: NDArray[np.int64], stamp_ns: NDArray[np.int64]
    ) -> Rows:
        """Note probes' stamps in a column; returns the cells of those that were not known.

        Repeated ones, stamps of 0 and those of forgotten probes change nothing.
        """
        every = row * DEPTH + (sequence & (DEPTH - 1))
        new = (column[every] == 0) & (self.sequence[every] == sequence) & (stamp_ns != 0)
        cell: Rows = every[new]
        column[cell[::-1]] = stamp_ns[new][::-1]  # of several the last one written stays, which is the first
        self._ready[cell] = (self.transmit_ns[cell] != 0) & (self.receive_ns[cell] != 0)
        return cell

    def leave(
        self, row: Rows, sequence: NDArray[np.int64], host_ns: NDArray[np.int64], by_nic: NDArray[np.bool_]
    ) -> Rows:
        """Note when probes left, by the host's clock; returns the cells of those of which it was not known.

        That is their stamp, but where the NIC's is wanted.
        """
        every = row * DEPTH + (sequence & (DEPTH - 1))
        new = (self.host_ns[every] == 0) & (self.sequence[every] == sequence) & (host_ns != 0)
        cell: Rows = every[new]
        self.host_ns[cell[::-1]] = host_ns[new][::-1]  # as `note` does
        stamped = ~by_nic[new]
        self.note(self.transmit_ns, row[new][stamped], sequence[new][stamped], host_ns[new][stamped])
        return cell

    def recall(self, column: NDArray[np.int64], row: Rows, sequence: NDArray[np.int64]) -> NDArray[np.int64]:
        """The stamps of a column for these probes; 0 where unknown."""
        cell = row * DEPTH + (sequence & (DEPTH - 1))
        stamps: NDArray[np.int64] = column[cell] * (self.sequence[cell] == sequence)
        return stamps

    def stamped(self, rows: Rows) -> Completed:
        """The probes of these rows that it remembers with both stamps."""
        cells = (rows[:, None] * DEPTH + np.arange(DEPTH)).ravel()
        cells = cells[(self.sequence[cells] != _NEVER) & (self.transmit_ns[cells] != 0) & (self.receive_ns[cells] != 0)]
        return Completed(cells // DEPTH, self.sequence[cells], self.transmit_ns[cells], self.receive_ns[cells])

    def take_completed(self) -> Completed:
        """The probes completed since the last call, but for padded ones."""
        cells = np.flatnonzero(self._ready)
        self._ready[cells] = False
        cells = cells[~self.full[cells]]
        return Completed(cells // DEPTH, self.sequence[cells], self.transmit_ns[cells], self.receive_ns[cells])


def _rising(cell: Rows, sequence: NDArray[np.int64]) -> Rows:
    """Selects the probes of which each is later than all before it that have the same cell; those stay in order."""
    _, rank = np.unique(sequence, return_inverse=True)
    order = np.argsort(cell, kind="stable")
    key = cell[order] * len(cell) + rank[order]
    rising = np.ones(len(key), np.bool_)
    rising[1:] = key[1:] > np.maximum.accumulate(key)[:-1]
    return order[rising]


def _said(count: NDArray[np.int64]) -> NDArray[np.uint8]:
    """A count of padded probes, as a probe says it."""
    return (said(count) << _COUNT_SHIFT).astype(np.uint8)


class Sessions:
    """All streams of a node."""

    def __init__(self, rows: int) -> None:
        self.outgoing = Ring(rows)
        self.incoming = Ring(rows)
        self.session = np.zeros(rows, np.uint64)
        """Ours, per row; 0: the row is free."""
        self._peer_session = np.zeros(rows, np.uint64)
        self._head = np.zeros(rows, ProbePacket)
        """A probe of each row, with the fields that are the same in all its next probes."""
        self._head["magic"], self._head["row"] = MAGIC, np.arange(rows)
        self._next = np.zeros(rows, np.int64)
        self._highest = np.full(rows, -1, np.int64)
        self._counted = np.full(rows, -1, np.int64)
        self._received = np.zeros(rows, np.int64)
        """Probes heard since the last count, also those that the ring has forgotten by now."""
        self.mesh_ms = np.zeros(rows, np.int64)
        """How often the peer wants coded pairs; 0: it does not count the stream to the mesh."""
        self.promised_us = np.zeros(rows, np.int64)
        """Within what time the peer promised its next probe; 0: nothing was heard."""
        self._met = np.zeros(rows, np.bool_)
        """The rows whose peers were met since the last call of `take_met`."""
        self.peer_kind = np.full(rows, USER, np.uint8)
        self.full_bytes = np.zeros(rows, np.int64)
        """Size of the padded probes of each row, as packets; 0: none are sent."""
        self._own_bytes = np.zeros(rows, np.int64)
        self._peer_bytes = np.zeros(rows, np.int64)
        self._full_sent = np.zeros(rows, np.int64)
        self._count = np.zeros(rows, np.uint8)
        """The count of padded probes sent, as the next probe says it."""
        self._padded = PaddedCounts(rows)
        self.left_sequence = np.zeros(rows, np.int64)
        """The last probe that left, per row; 0: none did."""
        self.left_ns = np.zeros(rows, np.int64)
        """When it had left for certain, by the clock that stamped it; 0: never."""
        self._left = np.zeros(rows, np.int64)
        """Probes that left since the last count of those that did not."""
        self._left_before = np.zeros(rows, np.int64)
        """The last probe that had left by then, or the one before the stream's first."""
        self.waiting = np.zeros(rows, np.int64)
        """Probes given to the kernel since one left, per row."""
        self.by_nic = np.zeros(rows, np.bool_)
        """Whether own stamps are those of the NIC, per row."""

    def __len__(self) -> int:
        return len(self.session)

    def grow(self, rows: int) -> None:
        """Make room for this many rows."""
        for each in (self, self.outgoing, self.incoming, self._padded):
            enlarge(each, rows)

    def open(self, row: int, session: int, first: int = 0) -> None:
        """Begin a stream in a row under a new session, from a sequence above those of its earlier lives on."""
        self._forget_peer(row)
        self.outgoing.forget(row)
        self.session[row] = session
        self._next[row] = first
        self._met[row] = False
        self.left_sequence[row] = self.left_ns[row] = self._left[row] = self.waiting[row] = 0
        self._left_before[row] = first - 1

    def close(self, row: int) -> None:
        """End the stream of a row."""
        self.open(row, 0)

    def announce(
        self,
        interval_us: NDArray[np.int64],
        in_use: NDArray[np.bool_],
        kind: NDArray[np.int64],
        mesh_ms: NDArray[np.int64],
    ) -> None:
        """Sets what the next probes of each row say of it."""
        self._head["interval_us"] = interval_us
        self._head["use"] = self._count | in_use
        self._head["kind"] = kind
        self._head["mesh_ms"] = mesh_ms

    def set_sizes(self, own_bytes: NDArray[np.int64]) -> None:
        """Sets the largest packet of this end's device, per row; 0: unknown, so nothing is padded or asked to be."""
        self._own_bytes = own_bytes
        self._head["row"] = np.arange(len(self)) | (own_bytes << ROW_BITS)
        self._agree()

    def _agree(self) -> None:
        """Full size is what both ends carry."""
        least = np.minimum(self._own_bytes, self._peer_bytes)
        self.full_bytes = np.where(least >= LEAST_BYTES, np.minimum(least, MOST_BYTES), 0)
        self._count = np.where(self.full_bytes > 0, _said(self._full_sent), np.uint8(0))

    def compose(
        self, row: Rows, number: NDArray[np.integer[Any]] | NDArray[np.bool_], full: NDArray[np.bool_]
    ) -> NDArray[Any]:
        """The next probes of these rows, of which `full` are to be padded.

        A row may occur several times, as for a coded pair: `number` counts its probes from 0, in this order.
        """
        probes = self._head.take(row)
        sequence = self._next[row] + number
        padded = np.flatnonzero(full)
        if len(padded):
            rows = row[padded]
            self._full_sent[rows] += 1
            self._count[rows] = _said(self._full_sent[rows])
            probes["use"][padded] = probes["use"][padded] & IN_USE | self._count[rows]
        heard = self._highest[row]
        probes["session"] = self.session[row]
        probes["sequence"] = sequence
        probes["transmit_ns"] = self.outgoing.recall(
            self.outgoing.transmit_ns, row[:, None], sequence[:, None] - _BEFORE
        )
        probes["peer_session"] = self._peer_session[row]
        probes["heard"] = heard
        probes["receive_ns"] = self.incoming.recall(self.incoming.receive_ns, row[:, None], heard[:, None] - _ECHO)
        self._next[row] = sequence + 1  # of a pair the later one stays
        self.outgoing.put(row, sequence, full)
        return probes

    def left(self, probes: NDArray[Any], transmit_ns: NDArray[np.int64], by_ns: int = 0) -> None:
        """Note the transmit stamps of own probes.

        All had left by `by_ns` for certain, if the stamps were taken before; 0: the stamps say it.
        """
        row = (probes["row"] & _ROW_MASK).astype(np.intp)
        known = row < len(self)
        known[known] = self.session[row[known]] == probes["session"][known]
        if not known.all():
            row, probes, transmit_ns = row[known], probes[known], transmit_ns[known]
        new = self.outgoing.leave(row, probes["sequence"], transmit_ns, self.by_nic[row])
        new.sort()
        rows = new[np.diff(new, prepend=-1) > 0] // DEPTH  # the kernel may hand back a packet twice
        np.add.at(self._left, rows, 1)
        self.waiting[rows] = 0
        np.maximum.at(self.left_sequence, row, probes["sequence"])
        np.maximum.at(self.left_ns, row, np.maximum(transmit_ns, by_ns))

    def find(self, probes: NDArray[Any]) -> tuple[Rows, Rows]:
        """The places in a batch of own probes that are remembered, and their cells."""
        row = (probes["row"] & _ROW_MASK).astype(np.intp)
        place = np.flatnonzero(row < len(self))
        place = place[self.session[row[place]] == probes["session"][place]]
        cell = row[place] * DEPTH + (probes["sequence"][place] & (DEPTH - 1))
        known = self.outgoing.sequence[cell] == probes["sequence"][place]
        return place[known], cell[known]

    def passed_nic(self, probes: NDArray[Any], nic_ns: NDArray[np.int64]) -> None:
        """Note the NIC's transmit stamps of own probes, where these are wanted."""
        place, cell = self.find(probes)
        wanted = self.by_nic[cell // DEPTH]
        place, row = place[wanted], cell[wanted] // DEPTH
        self.outgoing.note(self.outgoing.transmit_ns, row, probes["sequence"][place], nic_ns[place])

    def hear(self, row: Rows, probes: NDArray[Any], receive_ns: NDArray[np.int64], full: NDArray[np.bool_]) -> None:
        """Take in probes of these rows' peers, in the order of arrival, with their receive stamps (0: none).

        `full` of them are padded.
        """
        known = self._peer_session[row] == probes["session"]
        if not known.all():
            known = self._meet(row, probes, known)
            row, probes, receive_ns, full = row[known], probes[known], receive_ns[known], full[known]
        sequence = probes["sequence"]
        # Of a probe on a path that idles the sender tells the stamp half a minute later. What it took says nothing then.
        receive_ns = receive_ns * (probes["interval_us"] <= IDLE_US)
        taken = self.incoming.place(row, sequence, full, receive_ns)
        self._received += np.bincount(taken, minlength=len(self))
        self._padded.hear(row, probes["use"] >> _COUNT_SHIFT, full)
        theirs = probes["row"] >> ROW_BITS
        if (theirs != self._peer_bytes[row]).any():
            self._peer_bytes[row] = theirs
            self._agree()
        before = sequence[:, None] - _BEFORE
        self.incoming.note(self.incoming.transmit_ns, row[:, None], before, probes["transmit_ns"])
        ours = probes["peer_session"] == self.session[row]
        echoed = probes["heard"][:, None] - _ECHO
        self.outgoing.note(self.outgoing.receive_ns, row[:, None], echoed, probes["receive_ns"] * ours[:, None])
        np.maximum.at(self._highest, row, sequence)
        self.mesh_ms[row] = probes["mesh_ms"]
        self.promised_us[row] = probes["interval_us"]
        self.peer_kind[row] = probes["kind"]

    def _meet(self, row: Rows, probes: NDArray[Any], known: NDArray[np.bool_]) -> NDArray[np.bool_]:
        # These peers are new, or have started anew: the latest probe of each says which life is the present one. All
        # are met at once, because a node that starts meets all of its peers in one tick.
        met = np.zeros(len(self), np.bool_)
        met[row[~known]] = True
        self._met |= met
        probe = np.flatnonzero(met[row])
        self._forget_peer(np.flatnonzero(met))
        self._peer_session[row[probe]] = probes["session"][probe]  # of several the last one stays
        present: NDArray[np.bool_] = self._peer_session[row] == probes["session"]
        probe = probe[present[probe]]
        first = np.full(len(self), _LAST)
        np.minimum.at(first, row[probe], probes["sequence"][probe])
        self._highest[met] = self._counted[met] = first[met] - 1
        return present

    def _forget_peer(self, row: Rows | int) -> None:
        self.incoming.forget(row)
        self._peer_session[row] = 0
        self._highest[row] = self._counted[row] = -1
        self._received[row] = 0
        self._padded.forget(row)
        self._peer_bytes[row] = self.full_bytes[row] = self._count[row] = 0
        self.mesh_ms[row] = self.promised_us[row] = 0
        self.peer_kind[row] = USER

    def take_met(self) -> Rows:
        """The rows whose peers were met since the last call: they are new, or have started anew."""
        met = np.flatnonzero(self._met)
        self._met[met] = False
        return met

    @property
    def heard_sequence(self) -> NDArray[np.int64]:
        """The highest probe heard, per row; 0: none was."""
        highest: NDArray[np.int64] = np.maximum(self._highest, 0)
        return highest

    def count(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Probes since the last call, per row: those sent, as the heard sequence numbers prove, and those heard."""
        sent = self._highest - self._counted
        self._counted[:] = self._highest
        received, self._received = self._received, np.zeros_like(self._received)
        return sent, received

    def count_unsent(self) -> NDArray[np.int64]:
        """Probes since the last call, per row, that never left though later ones did: the host itself dropped them."""
        some = self._left > 0
        unsent = np.where(some, self.left_sequence - self._left_before - self._left, 0)
        self._left_before = np.where(some, self.left_sequence, self._left_before)
        self._left[:] = 0
        return np.maximum(unsent, 0)

    def count_full(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Counts padded probes, as `count` counts all."""
        return self._padded.count()
