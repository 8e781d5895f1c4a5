"""The nodes' reports on the paths that end at them: last probe heard, losses, and silences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foliot.clock.message_dating import MinimumOffsets
from foliot.columns import blank, widen
from foliot.report_rows import ReportRows
from foliot_schemas import Witness
from foliot_schemas.names import ends_at, node_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from foliot_remediator.core.state.inventory import Inventory
    from foliot_schemas import DelayBatch

_LONGEST_INTERVAL_NS = 10_000_000_000
"""The most that `probe.delay_interval_ms` may be. An interval said to be longer was a stall, or is wrong."""
_MISSING_NS = 800_000_000
"""Beyond two intervals and this, a node counts as not heard. One of its reports may have been lost. A report that
waited for more than a second is left out."""
_UNSYNCHRONISED_NS = 250_000_000
"""Most that a clock that calls itself synchronised may differ from this one. It includes the bus's delay and a busy
machine's lateness."""
_LOSSES_NS = 60_000_000_000
"""Lost probes are counted over one to two of these: at the slow sweep's rate, the detector judges by 40 s."""
_AGAIN_NS = 1_000_000_000
"""A probe that is heard so much later was sent later, also where its sender counts anew from below. Two dates of one
moment never differ by so much."""
_PAUSE_NS = 2_000_000_000
"""A path that was not heard for longer was silent, or idled as another stood for it, or its receiver did not report:
then none of a pair's paths was heard. It is ten probes of the slow sweep. An idle path has a probe each half minute."""
_ROOM = 1_024
_FOREIGN = -1


@dataclass(slots=True)
class _Reporter:
    """A node's regular reports. Times are those at which they were true."""

    at_ns: int
    interval_ns: int
    unbroken_ns: int
    """Since when none was left out."""


class _Fall(NamedTuple):
    """A receiver's word that a path fell silent, which stands until it says otherwise itself."""

    path: str
    sequence: int
    """The highest probe that it had heard by then; 0: not said."""
    begun_ns: int
    """The middle of the silence, as long as it was then: what was heard later was heard again. Two words of the same
    probe differ by less than half of a silence."""
    said_ns: int


class PathReports:
    """Per path, the last word of its receiver.

    Each word counts as of when it was true, and never for later, however late it comes. If two words say what was heard
    last, and both have the probe's number, the number tells which is the later. Times given and returned are those of
    the `now_ns` given.
    """

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._offsets = MinimumOffsets()
        self._reporters: dict[str, _Reporter] = {}
        self.newest_ns = 0
        """When the newest regular report of all nodes was true."""
        self._bounds: dict[str, tuple[int, int]] = {}
        self._ids: dict[str, int] = {}
        self._free: list[int] = []
        self._reported = ReportRows()
        self._heard_ns: NDArray[np.int64] = np.zeros(_ROOM, np.int64)
        self._sequence: NDArray[np.int64] = np.zeros(_ROOM, np.int64)
        """The number of the probe heard then; 0: not said."""
        self._resumed_ns: NDArray[np.int64] = np.zeros(_ROOM, np.int64)
        """When it was first heard, or first again after its last pause."""
        self._missed_ns: NDArray[np.int64] = np.zeros(_ROOM, np.int64)
        """When the receiver last said that in a whole interval it heard nothing."""
        self._lost: NDArray[np.int64] = np.zeros((_ROOM, 2), np.int64)
        """The probes that the receiver missed in this spell and in the one before."""
        self._spell = 0
        self._falls: dict[int, _Fall] = {}
        self._has_fallen: NDArray[np.bool_] = np.zeros(_ROOM, np.bool_)
        """Whether the path at a place has one."""

    # -- in -----------------------------------------------------------------------------------------------------------

    def take(self, batch: DelayBatch, now_ns: int) -> tuple[list[str], list[str]]:
        """Takes what a node heard, but only of paths of the fleet that end at it and concern the shard.

        Returns the paths that it says fell silent, and those that it shows to speak again.

        Raises:
            ValueError: the batch does not fit together.
        """
        rows = batch.rows()
        self._begin_spell(now_ns)
        witness, last_ns = rows["witness"], rows["last_ns"]
        said_ns = self._offsets.learn(batch.node, batch.at_ns, now_ns, trusted=batch.bound_ns >= 0)
        if not len(rows) or witness[0] <= Witness.DESTINATION:
            self._take_report(batch, said_ns)
        self._take_bound(batch, now_ns)
        ids = self._reported.of(batch.node, batch.paths, lambda path: self._id(path, batch.node))[rows["path"]]
        received, ends_here = rows["received"], ids != _FOREIGN
        regular = ends_here & (witness == Witness.DESTINATION)
        changes = len(rows) > 0 and int(witness.max()) > Witness.DESTINATION
        hears = regular & (received > 0)
        if changes:
            hears |= ends_here & (witness == Witness.SPEAKS_AGAIN)
        heard = np.flatnonzero(hears & (last_ns > 0))
        # Ages are of the node's own clock, so that its error cancels.
        heard_ns = said_ns - np.maximum(batch.at_ns - last_ns[heard], 0)
        sequence = rows["sequence"][heard]
        self._hear(ids[heard], heard_ns, sequence)
        again = self._take_back(ids[heard], heard_ns, sequence) if self._falls else []
        missed = ids[regular & (received == 0)]
        if len(missed):
            self._missed_ns[missed] = np.maximum(self._missed_ns[missed], said_ns)
        losing = regular & (rows["sent"] > received)
        if losing.any():
            np.add.at(self._lost[:, 0], ids[losing], rows["sent"][losing].astype(np.int64) - received[losing])
        fell = [
            batch.paths[rows["path"][row]]
            for row in (np.flatnonzero(ends_here & (witness == Witness.FELL_SILENT)) if changes else ())
            if self._fall(int(ids[row]), batch.paths[rows["path"][row]], batch.at_ns, said_ns, rows[row])
        ]
        return fell, again

    def _take_report(self, batch: DelayBatch, said_ns: int) -> None:
        self.newest_ns = max(self.newest_ns, said_ns)
        # The time that a report covers is longer after a stall and shorter after a silence. Nodes of an earlier version
        # say nothing else.
        interval_ns = min(batch.every_ns or batch.interval_ns, _LONGEST_INTERVAL_NS)
        known = self._reporters.get(batch.node)
        if known is None:
            self._reporters[batch.node] = _Reporter(said_ns, interval_ns, said_ns)
            return
        if said_ns - known.at_ns > 2 * known.interval_ns:  # that of before: a stall shows in its own
            known.unbroken_ns = said_ns
        known.at_ns, known.interval_ns = max(said_ns, known.at_ns), interval_ns

    def _take_bound(self, batch: DelayBatch, now_ns: int) -> None:
        # By the node's own clock, which is what it speaks of: one that calls itself synchronised and is far behind is
        # not.
        said_ns = batch.at_ns if now_ns - batch.at_ns > _UNSYNCHRONISED_NS else now_ns
        if batch.bound_ns < 0 or said_ns >= self._bounds.get(batch.node, (0, 0))[1]:
            self._bounds[batch.node] = batch.bound_ns, said_ns

    def _hear(self, ids: NDArray[np.int32], heard_ns: NDArray[np.int64], sequence: NDArray[np.int64]) -> None:
        known_ns, known = self._heard_ns[ids], self._sequence[ids]
        later = (heard_ns > known_ns) & (sequence > known)
        if not later.all():
            # A number may be missing, or the sender counts anew.
            later |= (heard_ns > known_ns) & ((sequence == 0) | (known == 0) | (heard_ns > known_ns + _AGAIN_NS))
            ids, heard_ns, sequence, known_ns = ids[later], heard_ns[later], sequence[later], known_ns[later]
        paused = heard_ns - known_ns > _PAUSE_NS
        if paused.any():
            self._resumed_ns[ids[paused]] = heard_ns[paused]
        self._heard_ns[ids], self._sequence[ids] = heard_ns, sequence

    def _begin_spell(self, now_ns: int) -> None:
        """Begins a new spell of lost probes when it is time."""
        if self._spell != (spell := now_ns // _LOSSES_NS):
            self._lost[:, 1] = self._lost[:, 0] if spell == self._spell + 1 else 0
            self._lost[:, 0], self._spell = 0, spell

    def _fall(self, place: int, path: str, at_ns: int, said_ns: int, row: np.void) -> bool:
        """Takes the word of a silence, unless its receiver has said something later already."""
        last_ns, sequence = int(row["last_ns"]), int(row["sequence"])
        begun_ns = said_ns - max(at_ns - last_ns, 0) // 2 if last_ns > 0 else said_ns
        if self._heard_ns[place] > begun_ns and not 0 < self._sequence[place] <= sequence:
            return False
        self._falls[place], self._has_fallen[place] = _Fall(path, sequence, begun_ns, said_ns), True
        return True

    def _take_back(self, ids: NDArray[np.int32], heard_ns: NDArray[np.int64], sequence: NDArray[np.int64]) -> list[str]:
        """Drops the words of silences after which something was heard."""
        again = []
        for row in np.flatnonzero(self._has_fallen[ids]):
            fall = self._falls.get(int(ids[row]))
            if fall is not None and _is_later(fall, int(heard_ns[row]), int(sequence[row])):
                again.append(fall.path)
                del self._falls[int(ids[row])]
                self._has_fallen[ids[row]] = False
        return again

    # -- out ----------------------------------------------------------------------------------------------------------

    def here_ns(self, node: str, at_ns: int, now_ns: int) -> int:
        """A node's own time by the time of this process. Nothing is of later than now."""
        return self._offsets.here_ns(node, at_ns, now_ns)

    def reported_ns(self, node: str) -> int:
        """When its last regular report was true; 0: there is none."""
        reporter = self._reporters.get(node)
        return 0 if reporter is None else reporter.at_ns

    def is_reporting(self, node: str, now_ns: int) -> bool:
        """Whether a node reports, as often as it does."""
        reporter = self._reporters.get(node)
        return reporter is not None and now_ns - reporter.at_ns <= 2 * reporter.interval_ns + _MISSING_NS

    def bound_ns(self, node: str, now_ns: int, within_ns: int) -> int:
        """The bound of a node's clock as it last said; -1 if unknown, or not said recently enough."""
        bound_ns, at_ns = self._bounds.get(node, (-1, 0))
        return bound_ns if now_ns - at_ns <= within_ns else -1

    def heard_ns(self, path: str) -> int:
        """When the path was last heard; 0: never."""
        place = self._ids.get(path)
        return 0 if place is None else int(self._heard_ns[place])

    def resumed_ns(self, path: str) -> int:
        """When the path was first heard, or first again after it was not heard for 2 s; 0: never."""
        place = self._ids.get(path)
        return 0 if place is None else int(self._resumed_ns[place])

    def heard_sequence(self, path: str) -> int:
        """The number of the probe that was last heard on the path; 0: not known."""
        place = self._ids.get(path)
        return 0 if place is None else int(self._sequence[place])

    def unheard_ns(self, path: str) -> int:
        """For how long the path's receiver has heard nothing, by its own word; 0: for no time, or nobody can say.

        Only time counts in which the sender's node left out no report.
        """
        place, sender = self._ids.get(path), self._reporters.get(node_of(path.partition(">")[0]))
        if place is None or sender is None:
            return 0
        until_ns = min(int(self._missed_ns[place]), sender.at_ns)
        return max(until_ns - max(int(self._heard_ns[place]), sender.unbroken_ns), 0)

    def has_fallen(self, path: str) -> bool:
        """Whether its receiver's last word is that it fell silent."""
        return self._ids.get(path) in self._falls

    def lost(self, path: str) -> int:
        """The number of probes that the receiver missed in the last minute or two."""
        place = self._ids.get(path)
        return 0 if place is None else int(self._lost[place].sum())

    # -- what there is ------------------------------------------------------------------------------------------------

    def forget(self, node: str) -> None:
        """Forgets a node that has left the fleet."""
        for memory in (self._reporters, self._bounds):
            memory.pop(node, None)
        self._offsets.forget(node)

    def forget_paths(self, paths: Iterable[str]) -> None:
        """Forgets paths that left the fleet; what paths a batch names is looked up anew."""
        self._reported.forget()
        for path in paths:
            place = self._ids.pop(path, None)
            if place is not None:
                self._falls.pop(place, None)
                blank(self, place)
                self._free.append(place)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _id(self, path: str, node: str) -> int:
        if not ends_at(path, node):  # half of what a node speaks of; quicker than parsing it
            return _FOREIGN
        known = self._ids.get(path)
        if known is not None:
            return known
        ends = self._inventory.path(path)
        if ends is None or not self._inventory.has_nic(ends.destination, node):
            return _FOREIGN
        sender = node_of(ends.source)
        if not (self._inventory.owns(node) or self._inventory.owns(sender)):
            return _FOREIGN  # another shard's
        if not self._inventory.talk(sender, node):
            return _FOREIGN  # nobody sends there
        self._ids[path] = place = self._free.pop() if self._free else len(self._ids)
        if place == len(self._heard_ns):
            widen(self, 2 * place)
        return place


def _is_later(fall: _Fall, heard_ns: int, sequence: int) -> bool:
    """Whether something was heard after a path fell silent."""
    if fall.sequence and sequence:
        return sequence > fall.sequence or heard_ns > fall.said_ns + _AGAIN_NS
    return heard_ns > fall.begun_ns
