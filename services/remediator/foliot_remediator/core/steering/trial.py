"""Moves that were made for a gain, until it is known whether the gain has come."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from foliot_remediator.core.state.flow_reports import FlowHistory, FlowWord
    from foliot_remediator.core.state.inventory import Destination
    from foliot_remediator.core.steering.rail_flows import Move
    from foliot_schemas import Event, Placement
    from foliot_schemas.event import Evidence

_FIRST_NS, _LAST_NS = 2_000_000_000, 5_000_000_000
"""What flows get is judged by this time after the last move was answered: queues are empty and TCP has found its rate
by then, and no more is needed to know it."""
_WORD_NS = 1_000_000_000
"""How much longer it may take until the last word of that time is here: two intervals of the senders."""
_GAIN_SHARE = 0.25
"""Share of the predicted gain that must have come. It is more than TCP swings by. A flow that has gained less than was
predicted would have even less at home: its acknowledgements may wait in another queue, the way back."""
_KEPT_SHARE = 0.8
"""Share of what a flow was to keep. TCP's share of a link swings by so much from second to second."""
NOBODY: Mapping[Destination, float] = MappingProxyType({})
_LIMITED_SHARE = 0.5
"""A flow that waits for the network for less than this gets all that it asks for: its rate says nothing of a way."""


@dataclass(slots=True)
class _Measured:
    """What a destination got since the moves had their time.

    While a flow waits for its application, nothing tells what the network would give it. A flow of a job in step waits
    for the job's slowest flow, whatever its own way gives. So its rate is that of the time in which it sends.
    """

    from_ns: int
    until_ns: int
    bits: float = 0.0
    limited_ns: float = 0.0

    def take(self, word: FlowWord) -> None:
        span_ns = word.until_ns - word.from_ns
        self.until_ns = max(self.until_ns, word.until_ns)
        sends_share = min(1.0, max(_LIMITED_SHARE, word.limited_share))
        self.bits += word.rate_bps * span_ns / 1e9 / sends_share
        self.limited_ns += word.limited_share * span_ns

    @property
    def rate_bps(self) -> float:
        return self.bits * 1e9 / (self.until_ns - self.from_ns)

    @property
    def is_limited(self) -> bool:
        return self.limited_ns >= _LIMITED_SHARE * (self.until_ns - self.from_ns)


class Trial:
    """Moves that were commanded together.

    Parameters:
        event: the event for which they were made.
        rail: the rail that carries what was moved.
        moves: the moves, and what the home of each was when somebody had chosen it; None: the default.
    """

    def __init__(self, event: Event, rail: str, moves: Iterable[tuple[Move, Placement | None]]) -> None:
        self.event, self.rail = event, rail
        self.moves = {move.destination: (move, home) for move, home in moves}
        self._open = set(self.moves)
        """Moves that are not answered yet."""
        self._answered_ns = 0
        self._measured: dict[Destination, _Measured] = {}
        self._taken_ns: dict[str, int] = {}
        """The end of the last word of each flow that was taken."""

    def is_of(self, event: str, rail: str) -> bool:
        """Whether it was made for this event, by its id, on this rail."""
        return self.event.id == event and self.rail == rail

    @property
    def is_answered(self) -> bool:
        """Whether all moves that were not dropped were answered."""
        return not self._open

    @property
    def due_ns(self) -> int:
        """When it can be judged, once it is answered."""
        return self._answered_ns + _LAST_NS + _WORD_NS

    def is_settled(self, now_ns: int) -> bool:
        """Whether flows have found by now what they get."""
        return self.is_answered and now_ns - self._answered_ns >= _FIRST_NS

    def concerns(self, node: str) -> bool:
        """Whether a node sends or receives anything of it."""
        return any(node in (each.node, each.peer) for move, _ in self.moves.values() for each in _watched(move))

    def answer(self, destinations: Iterable[Destination], now_ns: int) -> None:
        """Notes that moves were made."""
        self._open.difference_update(destinations)
        self._answered_ns = now_ns

    def drop(self, destination: Destination) -> None:
        """Leaves a move out."""
        self.moves.pop(destination, None)
        self._open.discard(destination)

    def take(self, told: Iterable[tuple[str, FlowHistory | None]]) -> None:
        """Takes the last word of flows, by name; None: the fleet has no such flow."""
        if not self.is_answered:
            return
        begin_ns, end_ns = self._answered_ns + _FIRST_NS, self._answered_ns + _LAST_NS
        for flow, history in told:
            if history is None or history.last.until_ns <= self._taken_ns.get(flow, 0):
                continue
            word, destination = history.last, history.destination
            if begin_ns <= word.from_ns < end_ns and self._watches(destination):
                self._taken_ns[flow] = word.until_ns
                measured = self._measured.get(destination)
                if measured is None:
                    measured = self._measured[destination] = _Measured(word.from_ns, word.until_ns)
                measured.take(word)

    def without_gain(self, came_bps: Mapping[Destination, float] = NOBODY) -> dict[Destination, Evidence]:
        """The moves whose gain has not come, or that cost others more than was predicted, with the numbers.

        A move for flows of higher priorities is judged by their gain alone: it may cost the one that is moved.

        Those that have taken the place of such a move go with it. A flow of which nothing was heard is not judged, nor
        is one that the network does not limit any more.

        Parameters:
            came_bps: what other traffic has that came to the way of a move since. It explains as much of what is
                missing.
        """
        failed = {each: against for each in self.moves if (against := self._against(each, came_bps.get(each, 0.0)))}
        while more := [each for each in self.moves if each not in failed and self._took_place(each, failed)]:
            failed |= {each: {"follows": 1} for each in more}
        return failed

    # -- inside -------------------------------------------------------------------------------------------------------

    def _watches(self, destination: Destination) -> bool:
        return any(destination in _watched(move) for move, _ in self.moves.values())

    def _against(self, destination: Destination, came_bps: float) -> Evidence | None:
        move, _ = self.moves[destination]
        if (missing := self._missing(move, came_bps)) is not None:
            return missing
        for other, kept_bps in move.beside.items():
            least_bps = _KEPT_SHARE * kept_bps
            if other not in self.moves and (short := self._short(other, least_bps, came_bps)) is not None:
                return {"beside": _flow(other), "beside_mbps": short / 1e6, "kept_mbps": kept_bps / 1e6}
        return None

    def _missing(self, move: Move, came_bps: float) -> Evidence | None:
        """The gain that has not come: its own, or that of all whom it made room for."""
        if not move.gaining:
            return self._missing_of(move.destination, move.rate_bps, move.predicted_bps, came_bps)
        missing = [self._missing_of(each.destination, each.rate_bps, each.predicted_bps) for each in move.gaining]
        if missing[0] is None or None in missing:
            return None
        return {"for": _flow(move.gaining[0].destination), **missing[0]}

    def _missing_of(
        self, destination: Destination, rate_bps: float, predicted_bps: float, came_bps: float = 0.0
    ) -> Evidence | None:
        gain_bps = predicted_bps - rate_bps
        least_bps = rate_bps + _GAIN_SHARE * gain_bps if gain_bps > 0 else _KEPT_SHARE * predicted_bps
        if (short := self._short(destination, least_bps, came_bps)) is None:
            return None
        return {"before_mbps": rate_bps / 1e6, "after_mbps": short / 1e6, "predicted_mbps": predicted_bps / 1e6}

    def _short(self, destination: Destination, least_bps: float, came_bps: float) -> float | None:
        """What it gets, if that is less than it should, also with what others took; None: it is not, or nobody can say."""
        measured = self._measured.get(destination)
        if measured is None or not measured.is_limited or measured.rate_bps + came_bps >= least_bps:
            return None
        return measured.rate_bps

    def _took_place(self, destination: Destination, failed: Collection[Destination]) -> bool:
        taken = self.moves[destination][0].taken
        return any(taken & self.moves[other][0].left for other in failed)


def _watched(move: Move) -> set[Destination]:
    """The traffic by which a move is judged."""
    return {move.destination, *move.beside, *(each.destination for each in move.gaining)}


def _flow(destination: Destination) -> str:
    return f"{destination.node}>{destination.peer}/{destination.rail}"
