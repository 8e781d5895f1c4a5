"""Paths: silent although their senders were heard to send, or speaking again.

A receiver says that a path fell silent; that is a claim. The claim becomes an event when a witness shows that the
sender sent on. Then the path is dead, and not the process or the host at its beginning. Until then the claim waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import numpy as np

from foliot_detector.core.detectors.ending import ended
from foliot_detector.core.detectors.path_silence.claim import FRESH_NS, LEAST_INTERVALS, Claim, Judge, evidence
from foliot_detector.core.detectors.path_silence.claim_queue import ClaimQueue
from foliot_detector.core.detectors.path_silence.fault_grouping import FaultGrouping
from foliot_detector.core.state.inventory import Sign
from foliot_detector.core.state.path_table import Delays
from foliot_schemas import Event, Node, Witness
from foliot_schemas.fault import path_fault

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_detector.core.protocol import Seen
    from foliot_detector.core.state.inventory import Inventory
    from foliot_schemas.event import Evidence

_SPEAKING_NS = 200_000_000
"""How long a path must speak before it is said to speak again. It is longer than the silence time of a path in use, so
that one that falls silent at once is the same silence. Each silence that follows within `calm_s` doubles it."""
_MOST_DOUBLINGS = 8
"""Doublings of the time that a path must speak: from 200 ms to 51 s."""
_AGAIN_NS = 1_000_000_000
"""A path that is heard so long after it was said to be silent speaks again, whatever its receiver's clock says. Two
words of one moment never differ by so much on the timeline."""
_AWAY_NS = 60_000_000_000
"""How long the silence of a path is kept whose NICs have left the inventory, as the remediator keeps what befell them.
Agents that restart, and a bus that lost its store, are back in a few seconds."""


class _Word(NamedTuple):
    """A receiver's word on a path, by its own time."""

    said_ns: int = 0
    last_ns: int = 0
    """When it had last heard the path."""
    sequence: int = 0
    """The highest probe that it had heard; 0: not said."""


_NO_WORD = _Word()


@dataclass(slots=True)
class _Silence:
    """A path that was said to be silent."""

    claim: Claim
    event: Event
    spoke_ns: int = 0
    """When, on the timeline, it was first said to be heard again; 0: it was not."""
    spoke_here_ns: int = 0
    """When, on the timeline, it was heard then."""
    spoke: _Word = _NO_WORD
    """The word that said so."""
    fell_again: _Word = _NO_WORD
    """The word that it fell silent once more."""
    left_ns: int = 0
    """When, on the timeline, a NIC at its ends left the inventory; 0: both are there."""

    def is_heard_again(self, seen: Delays, row: np.void) -> bool:
        """Whether a row shows a probe heard after the path last fell silent."""
        if not _is_heard_again(self.claim, seen, row):
            return False
        fell = self.fell_again
        if fell.sequence and row["sequence"]:
            return _is_later(int(row["sequence"]), fell.sequence, seen.at_ns, fell.said_ns)
        return bool(row["last_ns"] > fell.last_ns + self.claim.owed_ns)

    def is_silent_again(self, seen: Delays, row: np.void) -> bool:
        """Whether a row that tells of a silence was said after the path was heard again."""
        spoke, number = self.spoke, int(row["sequence"])
        if spoke.sequence and number:
            return number == spoke.sequence or _is_later(number, spoke.sequence, seen.at_ns, spoke.said_ns)
        return bool(row["last_ns"] >= spoke.last_ns - self.claim.owed_ns)


class PathSilenceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of ``[detector]`` about silent paths."""

    calm_s: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    """A path that falls silent within this time after the last silence has to speak twice as long before it is said
    to."""


class PathSilenceDetector:
    """Events of kind ``path``, states `silent` and `speaking`.

    Paths of one rail that fell silent at once (`FaultGrouping`) share the fault of the first of them, and so a trace.
    Each has its own event. A path has no event while the port of a NIC at either end is known to be down: the port's
    event says it.
    """

    def __init__(self, inventory: Inventory, settings: PathSilenceSettings) -> None:
        self._calm_ns = round(settings.calm_s * 1e9)
        self._inventory = inventory
        self._judge = Judge(inventory)
        self._grouping = FaultGrouping()
        self._late_ns = round(inventory.settings.late_silence_s * 1e9)
        self._waiting = ClaimQueue()
        self._silences: dict[int, _Silence] = {}
        self._spoken: set[int] = set()
        """The paths in `_silences` that were heard again."""
        self._repeats: dict[int, tuple[int, int]] = {}
        """Per path, how often it fell silent again so far, and when it last spoke again."""

    def resume(self, event: Event) -> None:
        """Waits for a path that an earlier run said to be silent."""
        table = self._inventory.paths
        path_id = self._inventory.place_of(event)
        if path_id < 0 or event.state != "silent":
            return
        claim = Claim(
            path_id=path_id, path=table.path(path_id), name=event.who, since_ns=event.since_ns, since_here_ns=0,
            said_ns=event.at_ns, said_here_ns=0, bound_ns=-1, owed_ns=0, confirmed_ns=event.at_ns, confirmed_here_ns=0,
            sequence=int(event.number("last_heard_sequence")),
        )  # fmt: skip
        self._open(claim, event)
        table.silent[path_id] = True

    def observe(self, seen: Seen, now_ns: int) -> list[Event]:
        """Takes the delays that a node reports, and news of the inventory."""
        if isinstance(seen, Node):
            self._forget_unknown(now_ns)
        if not isinstance(seen, Delays) or not len(seen.rows):
            return []
        self._judge.note(seen)
        # Paths that are heard again come first: a path that fell silent anew in the same batch is claimed anew.
        if is_any_silent := bool(self._inventory.paths.silent[seen.ids].any()):
            self._hear(seen, now_ns)
        last_ns = seen.rows["last_ns"]
        late = seen.regular & (seen.at_ns - last_ns > self._late_ns)
        if is_any_silent or seen.tells_at_once or late.any() or not last_ns.all():
            self._claim(seen, late, now_ns)
        return []  # every claim waits, if only for the ports to speak

    def tick(self, now_ns: int) -> list[Event]:
        """Decides what waited for a deadline or for a witness."""
        return self._decide(now_ns) + self._let_speak(now_ns)

    # -- what is said -------------------------------------------------------------------------------------------------

    def _hear(self, seen: Delays, now_ns: int) -> None:
        rows = seen.rows
        spoken = (rows["witness"] == Witness.SPEAKS_AGAIN) | (seen.regular & (rows["received"] > 0))
        for row in np.flatnonzero(spoken & self._inventory.paths.silent[seen.ids]):
            path_id, said = int(seen.ids[row]), rows[row]
            claim = self._waiting.claims.get(path_id)
            if claim is not None and _is_heard_again(claim, seen, said):
                self._waiting.remove(path_id)
                self._inventory.paths.silent[path_id] = False
            silence = self._silences.get(path_id)
            if silence is not None and not silence.spoke_ns and silence.is_heard_again(seen, said):
                silence.spoke_ns, silence.spoke_here_ns = now_ns, int(seen.here_ns[row])
                silence.spoke = _word(seen, said)
                self._spoken.add(path_id)

    def _claim(self, seen: Delays, late: NDArray[np.bool_], now_ns: int) -> None:
        """Begins claims, and holds those that stand.

        The word at once may be lost, or be older than this detector; the regular rows go on telling.

        Parameters:
            late: the regular rows of paths that were not heard for long.
        """
        rows, table = seen.rows, self._inventory.paths
        fell, still = rows["witness"] == Witness.FELL_SILENT, seen.regular & table.silent[seen.ids]
        if self._spoken:
            # Of a path that is out of use the regular rows alone say so. It may be probed so seldom that no other probe
            # was due.
            sent = table.sent["sequence"][seen.ids, -1]
            missed = late & ((sent == 0) | (sent > rows["sequence"]))
            for row in np.flatnonzero((fell | missed) & table.silent[seen.ids]):
                self._fall_again(int(seen.ids[row]), seen, rows[row], now_ns)
        for row in np.flatnonzero(still):  # what was heard of these came before they fell silent, see `_hear`
            claim = self._waiting.claims.get(int(seen.ids[row]))
            # By the timeline too: a clock that was set back says for long what is before.
            if claim is not None and (seen.at_ns > claim.confirmed_ns or seen.at_here_ns > claim.confirmed_here_ns):
                claim.confirmed_ns, claim.confirmed_here_ns = seen.at_ns, seen.at_here_ns
                claim.remembered &= bool(rows["sequence"][row] == claim.sequence)
        fresh = np.flatnonzero((fell | late) & (rows["last_ns"] > 0) & ~table.silent[seen.ids])
        for row in fresh:
            last = int(rows["last_ns"][row]), int(seen.here_ns[row]), int(rows["sequence"][row])
            claim = self._begin(seen, int(seen.ids[row]), last, now_ns)
            claim.told = _told(claim, seen, int(rows["least_ns"][row])) if fell[row] else None
        # A receiver that was started anew never heard what died meanwhile; that its earlier run did is known here.
        heard_ns = np.maximum(table.heard_ns[seen.ids], self._inventory.listening_ns.get(seen.node, 0))
        unheard = seen.regular & (rows["received"] == 0)
        forgotten = (
            unheard & (rows["last_ns"] == 0) & (table.heard_ns[seen.ids] > 0) & (now_ns - heard_ns > self._late_ns)
        )
        lost = np.flatnonzero(forgotten & ~table.silent[seen.ids])
        for row in lost:
            here_ns = int(table.heard_ns[seen.ids[row]])
            self._begin(seen, int(seen.ids[row]), (self._inventory.at_ns(seen.node, here_ns), here_ns, 0), now_ns)

    def _begin(self, seen: Delays, path_id: int, last: tuple[int, int, int], now_ns: int) -> Claim:
        """Begins a claim, and returns it.

        Parameters:
            last: as `Claim` has them, `since_ns`, `since_here_ns` and `sequence`.
        """
        table, (last_ns, here_ns, sequence) = self._inventory.paths, last
        claim = Claim(
            path_id=path_id, path=table.path(path_id), name=table.names[path_id], since_ns=last_ns,
            since_here_ns=here_ns, said_ns=seen.at_ns, said_here_ns=now_ns, bound_ns=seen.bound_ns,
            confirmed_ns=seen.at_ns, confirmed_here_ns=seen.at_here_ns, sequence=sequence,
            owed_ns=min(seen.at_ns - last_ns, self._late_ns) // LEAST_INTERVALS,
        )  # fmt: skip
        self._waiting.add(claim)
        table.silent[path_id] = True
        return claim

    def _fall_again(self, path_id: int, seen: Delays, row: np.void, now_ns: int) -> None:
        if path_id in self._spoken and self._silences[path_id].is_silent_again(seen, row):
            silence = self._silences[path_id]
            silence.spoke_ns, silence.fell_again = 0, _word(seen, row)
            self._spoken.discard(path_id)
            self._repeats[path_id] = (self._repeats.get(path_id, (0, 0))[0] + 1, now_ns)

    def _forget_unknown(self, now_ns: int) -> None:
        """Lets go of paths whose NICs have left the inventory: of claims at once, of what was said later."""
        for path_id, claim in [*self._waiting.claims.items()]:
            if not self._judge.is_known(claim):
                self._waiting.remove(path_id)
                self._inventory.paths.silent[path_id] = False
        for path_id, silence in [*self._silences.items()]:
            is_known, left_ns = self._judge.is_known(silence.claim), silence.left_ns or now_ns
            silence.left_ns = 0 if is_known else left_ns
            if now_ns - left_ns > _AWAY_NS:
                del self._silences[path_id]
                self._spoken.discard(path_id)
                self._inventory.paths.silent[path_id] = False

    # -- what follows -------------------------------------------------------------------------------------------------

    def _decide(self, now_ns: int) -> list[Event]:
        events = []
        for claim in self._waiting.due(now_ns, self._inventory.take_touched(), self._inventory.take_turned()):
            if self._judge.is_ripe(claim, now_ns):
                self._waiting.remove(claim.path_id)
                events.append(self._silent(claim, now_ns))
            else:
                self._waiting.look_again(claim)
        return events

    def _silent(self, claim: Claim, now_ns: int) -> Event:
        fault = self._grouping.join(claim)
        deaf = self._judge.is_deaf(claim)
        at_ns = max(claim.said_ns, self._inventory.at_ns(claim.receiver, now_ns))
        repeats, spoke_ns = self._repeats.get(claim.path_id, (0, 0))
        calm = not spoke_ns or now_ns - spoke_ns > self._calm_ns
        self._repeats[claim.path_id] = (0 if calm else repeats + 1, now_ns)
        event = Event(
            id=f"{path_fault(claim.name, claim.since_ns)}/silent",
            kind="path",
            who=claim.name,
            state="silent",
            at_ns=at_ns,
            since_ns=claim.since_ns,
            # A receiver that hears nobody at all may be cut off, or the trouble may be its own.
            confidence=0.5 if deaf else 1.0,
            evidence=evidence(claim, self._inventory, now_ns)
            | {"silent_ms": (at_ns - claim.since_ns) / 1e6, "receiver_deaf": deaf},
            fault=fault,
        )
        self._open(claim, event)
        return event

    def _open(self, claim: Claim, event: Event) -> None:
        self._silences[claim.path_id] = _Silence(claim, event)
        self._inventory.paths.silences[claim.path_id] += 1

    def _let_speak(self, now_ns: int) -> list[Event]:
        events = []
        for path_id in sorted(self._spoken):
            silence = self._silences[path_id]
            repeats = self._repeats.get(path_id, (0, 0))[0]
            hold_ns = _SPEAKING_NS << min(repeats, _MOST_DOUBLINGS)
            if now_ns - silence.spoke_ns < hold_ns or not self._has_spoken_for(silence, hold_ns, now_ns):
                continue
            del self._silences[path_id]
            self._spoken.discard(path_id)
            self._inventory.paths.silent[path_id] = False
            self._repeats[path_id] = (repeats, now_ns)
            events.append(self._speaking(silence, repeats, now_ns))
        return events

    def _has_spoken_for(self, silence: _Silence, hold_ns: int, now_ns: int) -> bool:
        """Whether a path was heard all that time, by words of its receiver behind which no opposite one may wait."""
        receiver = silence.claim.receiver
        fresh_ns = max(FRESH_NS, self._inventory.interval_ns(receiver))
        heard_ns = int(self._inventory.paths.heard_ns[silence.claim.path_id])
        is_told = now_ns - self._inventory.told_ns.get(receiver, 0) <= fresh_ns
        return is_told and heard_ns + fresh_ns >= silence.spoke_here_ns + hold_ns

    def _speaking(self, silence: _Silence, repeats: int, now_ns: int) -> Event:
        claim = silence.claim
        spoke_ns = silence.spoke.last_ns
        at_ns = max(spoke_ns, self._inventory.at_ns(claim.receiver, now_ns))
        silent_ms = (spoke_ns - claim.since_ns) / 1e6
        evidence: Evidence = {"silent_ms": silent_ms, "spoke_ns": spoke_ns, "silences_before": repeats}
        return ended(silence.event, "speaking", at_ns, evidence, named=path_fault(claim.name, claim.since_ns))


def _told(claim: Claim, seen: Delays, since_ns: int) -> Sign | None:
    """The receiver's own sign that the sender sent a further probe, so long after the last one was heard; 0: none."""
    if not 0 < since_ns <= seen.at_ns - claim.since_ns:
        return None
    sequence = claim.sequence + 1 if claim.sequence else 0
    return Sign(claim.since_here_ns + since_ns, claim.since_ns + since_ns, seen.bound_ns, seen.node, sequence)


def _is_heard_again(claim: Claim, seen: Delays, row: np.void) -> bool:
    """Whether a row is newer than the claim: by the probe's number, or else by the receiver's own time.

    The row of the interval in which the silence began repeats when the path was last heard. That time is some
    microseconds off, as the node's clock is set all the time.
    """
    if claim.sequence and row["sequence"]:
        return _is_later(int(row["sequence"]), claim.sequence, seen.at_ns, claim.said_ns)
    if seen.at_ns > claim.said_ns and row["last_ns"] > claim.since_ns + claim.owed_ns:
        return True
    # Or the clock was set back meanwhile. An earlier run's timeline is not known.
    heard_here_ns = seen.at_here_ns - max(seen.at_ns - int(row["last_ns"]), 0)
    return claim.said_here_ns > 0 and heard_here_ns > claim.said_here_ns + _AGAIN_NS


def _is_later(sequence: int, before: int, said_ns: int, said_before_ns: int) -> bool:
    """Whether a probe's number is later than another, both as they were said."""
    # A lower number is of another life of the sender, whose host has an earlier date now.
    return sequence > before or (sequence < before and said_ns > said_before_ns)


def _word(seen: Delays, row: np.void) -> _Word:
    return _Word(seen.at_ns, int(row["last_ns"]), int(row["sequence"]))
