"""What senders say of their own traffic: how much each flow gets, and whether the network is what limits it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from foliot_remediator.core.state.inventory import Destination, nics_of
from foliot_remediator.core.state.retention import Retained

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_remediator.core.state.inventory import Inventory
    from foliot_schemas import FlowBatch

_SPELL_NS = 600_000_000_000
"""The best rate counts for one to two of these: a job's phases come again within minutes, and a rate that a wrong word
has told is not believed for ever."""
_MISSING_NS = 1_000_000_000
"""Beyond two intervals and this, a node counts as not heard: one of its words may have been lost, and be late."""
_SILENCE_NS = 2_000_000_000
"""After so long without a word of anybody, this process or the bus stood still: what others send is not known."""
_ALL_NS = 1_500_000_000
"""By then each sender has spoken, and mostly twice."""
_LIMITED_SHARE = 0.5
"""A flow that waits for the network for so much of the time wants more than it gets."""
_GAP_NS = 100_000_000
"""Two words with less time between them follow each other."""


class FlowWord(NamedTuple):
    """A flow in one interval, by its sender's kernel. Times are those of this process."""

    from_ns: int
    until_ns: int
    rate_bps: float
    limited_share: float
    """Share of the time in which it waited for the network, and neither for its application nor for its receiver."""


@dataclass(slots=True)
class _Best:
    """The highest of the rates of this spell and of the one before, in bits/s."""

    spell: int = 0
    now_bps: float = 0.0
    before_bps: float = 0.0

    def take(self, rate_bps: float, at_ns: int) -> None:
        spell = at_ns // _SPELL_NS
        if spell != self.spell:
            self.before_bps = self.now_bps if spell == self.spell + 1 else 0.0
            self.now_bps, self.spell = 0.0, spell
        self.now_bps = max(self.now_bps, rate_bps)

    @property
    def bps(self) -> float:
        return max(self.now_bps, self.before_bps)


@dataclass(slots=True)
class FlowHistory:
    """The last two words of a flow, and the best that it had.

    One interval alone says little: acknowledgements come in bursts.
    """

    destination: Destination
    last: FlowWord
    before: FlowWord | None = None
    best: _Best = field(default_factory=_Best)

    def take(self, word: FlowWord) -> None:
        """Takes the next word."""
        self.before = self.last if word.from_ns - self.last.until_ns < _GAP_NS else None
        self.last = word
        if self.before is not None:
            self.best.take(self.rate_bps, word.until_ns)

    @property
    def rate_bps(self) -> float:
        """The mean of the two, bits/s."""
        return self.last.rate_bps if self.before is None else (self.last.rate_bps + self.before.rate_bps) / 2

    @property
    def best_bps(self) -> float:
        """The best mean of two words that follow each other, bits/s; 0: there were none yet."""
        return self.best.bps

    @property
    def is_limited(self) -> bool:
        """Whether the network was what limited it."""
        shares = [self.last.limited_share, *([] if self.before is None else [self.before.limited_share])]
        return sum(shares) >= _LIMITED_SHARE * len(shares)


@dataclass(slots=True)
class _Sender:
    """A node that speaks of its flows."""

    said_ns: int
    interval_ns: int


@dataclass(slots=True)
class _Sum:
    """What a NIC's service address sent in the last interval, and the best that it ever sent in two."""

    until_ns: int = 0
    rate_bps: float = 0.0
    best: _Best = field(default_factory=_Best)


class FlowReports:
    """The flows of the fleet, each by the word of its own sender. Some 500 bytes for each flow."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._flows: Retained[str, FlowHistory] = Retained(nics_of)
        self._senders: dict[str, _Sender] = {}
        self._sums: Retained[str, _Sum] = Retained(nics_of)
        """By NIC."""
        self._heard_ns = self._began_ns = 0
        """When anybody was heard last, and since when without a silence."""

    def take(self, batch: FlowBatch, said_ns: int, now_ns: int) -> list[FlowHistory]:
        """Takes what a node says of the flows that it sends; returns those of which that is news.

        Parameters:
            said_ns: the end of the interval, by this process's time.

        Raises:
            ValueError: the batch does not fit together.
        """
        rows, known = batch.rows(), self._senders.get(batch.node)
        if not 0 <= now_ns - self._heard_ns <= _SILENCE_NS:
            self._began_ns = now_ns
        self._heard_ns = now_ns
        if batch.interval_ns <= 0 or (known is not None and said_ns <= known.said_ns <= now_ns):
            return []  # a later word has overtaken it; one that lies ahead was said before the reference was set back
        if known is None or said_ns // _SPELL_NS != known.said_ns // _SPELL_NS:
            self._drop_idle(batch.node, said_ns)
        self._senders[batch.node] = _Sender(said_ns, batch.interval_ns)
        from_ns, per_s = said_ns - batch.interval_ns, 8e9 / batch.interval_ns
        sums: dict[str, float] = {}
        found = []
        waited = rows["busy_ns"] - rows["receiver_limited_ns"] - rows["buffer_limited_ns"]
        for place, acked, waited_ns in zip(
            rows["flow"].tolist(), rows["acked_bytes"].tolist(), waited.tolist(), strict=True
        ):
            share = min(max(waited_ns / batch.interval_ns, 0.0), 1.0)
            word = FlowWord(from_ns, said_ns, acked * per_s, share)
            history = self._told(batch.flows[place], batch.node, word)
            if history is not None:
                nic = batch.flows[place].partition(">")[0]
                sums[nic] = sums.get(nic, 0.0) + word.rate_bps
                found.append(history)
        for nic, rate_bps in sums.items():
            self._sum(nic, rate_bps, from_ns, said_ns)
        return found

    def knows_all(self, now_ns: int) -> bool:
        """Whether it was listened for long enough that whoever sends has said so."""
        return now_ns - self._began_ns >= _ALL_NS

    def is_fresh(self, node: str, now_ns: int) -> bool:
        """Whether a node has spoken of its flows a moment ago."""
        sender = self._senders.get(node)
        return sender is not None and now_ns - sender.said_ns <= 2 * sender.interval_ns + _MISSING_NS

    def is_sending(self, flow: str, now_ns: int) -> bool:
        """Whether a flow's sender said a moment ago that it sends."""
        history = self._flows.get(flow)
        if history is None or not self.is_fresh(history.destination.node, now_ns):
            return False
        said_ns = self._senders[history.destination.node].said_ns
        return history.last.until_ns == said_ns and history.last.rate_bps > 0

    def get(self, flow: str) -> FlowHistory | None:
        """What is known of a flow; None: nothing."""
        return self._flows.get(flow)

    def since(self, at_ns: int) -> Iterator[tuple[str, FlowHistory]]:
        """The flows, by name, that sent anything after a time."""
        for flow in self._flows:
            history = self._flows.get(flow)
            if history is not None and history.last.until_ns > at_ns:
                yield flow, history

    def line_bps(self, rail: str) -> float:
        """The most that the service address of any NIC of a rail has sent, bits/s; 0: nobody sent anything."""
        nics = self._inventory.nics
        return max((self._best_bps(nic) for nic in self._sums if nics.get(nic, ("", ""))[1] == rail), default=0.0)

    def forget(self, node: str) -> None:
        """Forgets that a node spoke."""
        self._senders.pop(node, None)

    def forget_nic(self, nic: str) -> None:
        """Forgets the flows of a NIC that has left the fleet."""
        self._flows.forget(nic)
        self._sums.pop(nic)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _told(self, flow: str, node: str, word: FlowWord) -> FlowHistory | None:
        """Takes a word of a flow of the fleet; None: it is none."""
        history = self._flows.get(flow)
        if history is not None:
            history.take(word)
            return history
        ends = flow.split(">")
        source, sink = (self._inventory.nics.get(end, ("", "")) for end in ends)
        if source[0] != node or not self._inventory.talk(node, sink[0]):
            return None
        history = self._flows[flow] = FlowHistory(Destination(node, *sink), word)
        return history

    def _sum(self, nic: str, rate_bps: float, from_ns: int, until_ns: int) -> None:
        known = self._sums.get(nic)
        if known is None:
            known = self._sums[nic] = _Sum()
        if abs(from_ns - known.until_ns) < _GAP_NS:
            known.best.take((known.rate_bps + rate_bps) / 2, until_ns)
        known.until_ns, known.rate_bps = until_ns, rate_bps

    def _best_bps(self, nic: str) -> float:
        known = self._sums.get(nic)
        return 0.0 if known is None else known.best.bps

    def _drop_idle(self, node: str, now_ns: int) -> None:
        """Forgets flows of a node that have sent nothing for a spell."""
        for rail in self._inventory.rails(node):
            for flow in [*self._flows.of(f"{node}.{rail}")]:
                history = self._flows.get(flow)
                if history is not None and history.last.until_ns < now_ns - _SPELL_NS:
                    self._flows.pop(flow)
