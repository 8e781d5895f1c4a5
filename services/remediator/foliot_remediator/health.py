"""What is known of every NIC and path: its state, when it was last heard, and whether its node can be believed."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import numpy as np

from foliot_remediator.lately import Lately
from foliot_remediator.ports import Ports
from foliot_remediator.states import Input, State, Track
from foliot_schemas import Witness
from foliot_schemas.names import ends_at, node_of, parse_path

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from foliot_remediator.fleet import Fleet
    from foliot_remediator.settings import RemediatorSettings
    from foliot_remediator.states import Hold
    from foliot_remediator.troubles import Trouble
    from foliot_schemas import DelayBatch

_REPORTING_NS = 500_000_000
"""A node reports every 100 ms; one that was quiet for longer says nothing of what it hears."""
_LATE_NS = 250_000_000
"""As much as a busy machine may make of the bus's delay."""
_LOSSES_NS = 60_000_000_000
"""Lost probes are counted over one to two of these: at the slow sweep's rate, the detector judges by 40 s."""
_TRANSIT_NS = 20_000_000
"""What was sent before a silence may still have waited in a queue."""
_FELL_NS = 1_000_000_000
"""The detector judges a silence in some 30 ms where all is well, and waits for a proof of its sender's life for half a second."""
_ROOM = 1_024
_FOREIGN = -1
_REGULAR = 8
"""Paths of a batch that is worth remembering. Shorter ones, of silences, are read as fast as looked up, and would displace it."""


class Hearing(enum.Enum):
    """What a path's receiver says of it."""

    HEALTHY = enum.auto()
    UNHEARD = enum.auto()
    """The receiver reports, the sender's process lives, and yet nothing was heard."""
    UNKNOWN = enum.auto()
    """The receiver says nothing, or the sender's process is dead: no judgement."""


class Health:
    """States of NICs and paths (those never in trouble are not stored), and what their nodes report.

    All times are those of the `now_ns` given, so that a node with a wrong clock is wrong about itself alone.
    """

    def __init__(self, settings: RemediatorSettings, hold: Hold, fleet: Fleet) -> None:
        self.nics: dict[str, Track] = {}
        self.paths: dict[str, Track] = {}
        self.troubled: dict[str, set[str]] = {}
        """Per NIC, its paths that are not up."""
        self.dead: set[str] = set()
        """Nodes whose probe is dead: silence says nothing of their paths."""
        self._hold = hold
        self._fleet = fleet
        self._within_ns = round(settings.healthy_within_s * 1e9)
        self._ids: dict[str, int] = {}
        self._heard_ns: NDArray[np.int64] = np.zeros(_ROOM, np.int64)
        self._batches: dict[str, tuple[int, NDArray[np.int32]]] = {}
        """Per node, the hash of its last regular batch's paths, which themselves take 15 kB, and their places."""
        self._reported_ns: dict[str, int] = {}
        self._bounds: dict[str, tuple[int, int]] = {}
        self.ports = Ports()
        self._lost: NDArray[np.int64] = np.zeros((2, _ROOM), np.int64)
        """Per path, the probes that its receiver missed in this spell and in the one before."""
        self._spell = 0
        self.fell = Lately(_FELL_NS)
        """Paths of which their receivers said so; a batch that was on its way for long may seem to say otherwise since."""

    # -- in -----------------------------------------------------------------------------------------------------------

    def feed_nic(self, nic: str, given: Input, now_ns: int) -> State:
        """Takes an input to a NIC's state; returns the state before."""
        return self.nics.setdefault(nic, Track()).feed(given, now_ns, self._hold)

    def feed_path(self, path: str, given: Input, now_ns: int) -> State:
        """Takes an input to a path's state; returns the state before."""
        track = self.paths.setdefault(path, Track())
        before = track.feed(given, now_ns, self._hold)
        ends = parse_path(path)
        for nic in (ends.source, ends.destination):
            if track.state is State.UP:
                self.troubled.get(nic, set()).discard(path)
            else:
                self.troubled.setdefault(nic, set()).add(path)
        if track.state is State.UP and not track.strikes:
            del self.paths[path]
        return before

    def settle(self, who: str, at_ns: int) -> None:
        """Up to this time nobody said anything of a NIC or path: a probation that was over by then had ended well."""
        track = self.nics.get(who) or self.paths.get(who)
        if track is not None and track.state is State.PROBATION and track.due_ns <= at_ns:
            (self.feed_nic if who in self.nics else self.feed_path)(who, Input.TIMER, track.due_ns)

    def take_delays(self, batch: DelayBatch, now_ns: int) -> None:
        """Takes what a node heard: of paths of the fleet that end at it and concern the shard, and of no others.

        Raises:
            ValueError: the batch does not fit together.
        """
        rows = batch.rows()
        # After a cut the bus delivers what waited: that says how it was, not how it is. By clocks that are good; others say nothing of that.
        is_late = batch.bound_ns >= 0 and now_ns - batch.at_ns > _LATE_NS
        said_ns = batch.at_ns if is_late else now_ns
        self._reported_ns[batch.node] = max(said_ns, self._reported_ns.get(batch.node, 0))
        if said_ns >= self._bounds.get(batch.node, (0, 0))[1]:
            self._bounds[batch.node] = batch.bound_ns, said_ns
        ids = self._ids_of(batch)[rows["path"]]
        rows, ids = rows[ids != _FOREIGN], ids[ids != _FOREIGN]
        heard = (rows["last_ns"] > 0) & (
            (rows["witness"] == Witness.SPEAKS_AGAIN)
            | ((rows["witness"] == Witness.DESTINATION) & (rows["received"] > 0))
        )
        # Ages are of the node's own clock, so that its error cancels.
        age_ns = np.maximum(batch.at_ns - rows["last_ns"][heard], 0)
        np.maximum.at(self._heard_ns, ids[heard], said_ns - age_ns)
        self._take_losses(rows, ids, now_ns)
        for index in rows["path"][rows["witness"] == Witness.FELL_SILENT]:
            self.feed_path(batch.paths[index], Input.FELL_SILENT, now_ns)
            self.fell.note(batch.paths[index], now_ns)
        self._clear_suspects((batch.paths[index] for index in rows["path"][heard]), now_ns)

    def _clear_suspects(self, paths: Iterable[str], now_ns: int) -> None:
        if not self.paths:
            return
        for path in paths:
            track = self.paths.get(path)
            if track is not None and track.state is State.SUSPECT and self.heard_ns(path) > track.since_ns:
                self.feed_path(path, Input.SPEAKS_AGAIN, now_ns)

    def _take_losses(self, rows: NDArray[np.void], ids: NDArray[np.int32], now_ns: int) -> None:
        losing = (rows["witness"] == Witness.DESTINATION) & (rows["sent"] > rows["received"])
        if not losing.any():
            return
        if self._spell != (spell := now_ns // _LOSSES_NS):
            self._lost[1] = self._lost[0] if spell == self._spell + 1 else 0
            self._lost[0], self._spell = 0, spell
        np.add.at(self._lost[0], ids[losing], rows["sent"][losing].astype(np.int64) - rows["received"][losing])

    # -- out: NICs and nodes ------------------------------------------------------------------------------------------

    def nic_state(self, nic: str) -> State:
        """The NIC's state; one whose port is reported to be down is not up, whatever events said."""
        track = self.nics.get(nic)
        state = State.UP if track is None else track.state
        port = self.ports.get(nic)
        return State.SUSPECT if state is State.UP and port is not None and not port.good else state

    def port_good_for_ns(self, nic: str, now_ns: int) -> int:
        """For how long reports have said that the NIC's port is good; -1 if the last one did not, or there is none."""
        port = self.ports.get(nic)
        return now_ns - port.since_ns if port is not None and port.good else -1

    def bound_ns(self, node: str, now_ns: int, within_ns: int) -> int:
        """The bound of a node's clock as it last said; -1 if unknown, or not said recently enough."""
        bound_ns, at_ns = self._bounds.get(node, (-1, 0))
        return bound_ns if now_ns - at_ns <= within_ns else -1

    # -- out: paths ---------------------------------------------------------------------------------------------------

    def path_state(self, path: str) -> State:
        """The path's own state; its NICs have theirs."""
        track = self.paths.get(path)
        return State.UP if track is None else track.state

    def heard_ns(self, path: str) -> int:
        """When the path was last heard; 0: never."""
        place = self._ids.get(path)
        return 0 if place is None else int(self._heard_ns[place])

    def lost(self, path: str) -> int:
        """How many probes its receiver missed in the last minute or two."""
        place = self._ids.get(path)
        return 0 if place is None else int(self._lost[:, place].sum())

    def is_reported(self, path: str, now_ns: int) -> bool:
        """Whether the node that hears the path, or does not, reports."""
        return now_ns - self._reported_ns.get(node_of(parse_path(path).destination), 0) <= _REPORTING_NS

    def is_heard(self, path: str, now_ns: int) -> bool:
        """Whether the path was heard a moment ago."""
        return now_ns - self.heard_ns(path) <= self._within_ns

    def hearing(self, path: str, now_ns: int) -> Hearing:
        """What the path's receiver says of it."""
        if self.is_heard(path, now_ns):
            return Hearing.HEALTHY
        ends = parse_path(path)
        sender, receiver = node_of(ends.source), node_of(ends.destination)
        reporting = now_ns - self._reported_ns.get(receiver, 0) <= _REPORTING_NS
        judged = reporting and not {sender, receiver} & self.dead
        return Hearing.UNHEARD if judged else Hearing.UNKNOWN

    def confirms(self, trouble: Trouble, now_ns: int) -> bool:
        """Whether a recent observation says the same as an event of long ago."""
        if trouble.is_nic:
            port = self.ports.get(trouble.who)
            return port is not None and not port.good and port.is_recent(now_ns)
        reported_ns = self._reported_ns.get(node_of(parse_path(trouble.who).destination), 0)
        unheard = self.heard_ns(trouble.who) <= trouble.since_ns + _TRANSIT_NS
        return unheard and now_ns - reported_ns <= _REPORTING_NS

    def _ids_of(self, batch: DelayBatch) -> NDArray[np.int32]:
        known, names = self._batches.get(batch.node), hash(batch.paths)
        if known is not None and known[0] == names and len(known[1]) == len(batch.paths):
            return known[1]
        ids = np.array([self._id(path, batch.node) for path in batch.paths], np.int32)
        if len(self._ids) > len(self._heard_ns):
            grown = np.zeros(2 * len(self._ids), np.int64)
            grown[: len(self._heard_ns)] = self._heard_ns
            self._heard_ns, self._lost = grown, np.pad(self._lost, ((0, 0), (0, len(grown) - self._lost.shape[1])))
        if len(batch.paths) >= _REGULAR:
            self._batches[batch.node] = names, ids
        return ids

    def _id(self, path: str, node: str) -> int:
        if not ends_at(path, node):  # half of what a node speaks of; quicker than parsing it
            return _FOREIGN
        known = self._fleet.path(path)
        if known is None or not self._fleet.has_nic(known.destination, node):
            return _FOREIGN
        if not (self._fleet.owns(node) or self._fleet.owns(node_of(known.source))):
            return _FOREIGN  # another shard's
        return self._ids.setdefault(path, len(self._ids))

    def forget(self, node: str) -> None:
        """A node has left the fleet."""
        for memory in (self._reported_ns, self._bounds):
            memory.pop(node, None)
        self.dead.discard(node)
        self.ports.forget(node)

    def forget_batches(self) -> None:
        """The inventory has changed: what paths a batch names is looked up anew."""
        self._batches.clear()
