"""Which routers a path crosses, from the packets whose time to live is over there.

A packet of a path's own addresses and ports takes the path's own way, as far as its TTL lets it. Each path has one
packet on its way at a time. So an answer that quotes nothing of it is still told from another hop's.

The last router passes the packet on to the far host, where nobody answers. So a path is known after `_SILENT` hops
without an answer. A hop that is silent before one that answers is 0. As answers may be lost, each later round asks one
of the hops after the last known one as well.

Source: B. Augustin and others, "Avoiding traceroute anomalies with Paris traceroute", IMC 2006.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from random import Random

Hops: TypeAlias = tuple[int, ...]
"""IPv4 addresses of the routers that a path enters, in its order; 0: a router that does not answer."""
MOST_HOPS = 8
"""Routers of a path. Three tiers up and down are five."""
_TRIES = 3
"""Packets that a hop gets before it counts as silent."""
_SILENT = 2
_DOUBTFUL = -1
"""An answer that may be of anybody."""
_WAIT_NS = 300_000_000
"""How long an answer may take. A router answers when it has nothing better to do."""
_AGAIN_NS = 60_000_000_000
"""How long a path counts as known."""
_SOON_NS = 10_000_000_000
"""The same, if a router was silent that had answered before; and for how long it may be."""


class Ask(NamedTuple):
    """A packet to send."""

    row: int
    """Of the path."""
    ttl: int
    token: int
    """A number that the packet carries. An answer that quotes enough of the packet has it."""


class _Waiting(NamedTuple):
    ask: Ask
    until_ns: int


class HopTracer:
    """Asks for the hops of paths. Every time given to it is monotonic and in ns.

    Parameters:
        rate_hz: packets a second for all paths together.
        random: draws tokens.
    """

    def __init__(self, rate_hz: float, random: Random) -> None:
        self._gap_ns = round(1e9 / rate_hz)
        self._random = random
        self._next_ns = 0
        self._due: list[tuple[int, int]] = []
        """A heap of when which path is asked next. An entry of a path that has another due time is out of date."""
        self._due_ns: dict[int, int] = {}
        self._asking: dict[int, Generator[int, int, tuple[Hops, bool]]] = {}
        self._ttl: dict[int, int] = {}
        """Per path that is asked, the hop that is next."""
        self._waiting: dict[int, _Waiting] = {}
        self._doubted: dict[int, tuple[int, int]] = {}
        """Per path, a hop and who answered for it without a quotation."""
        self._beyond: dict[int, int] = {}
        """Per known path, which of the `_SILENT` hops after its last one its next round asks."""
        self._hops: dict[int, Hops] = {}
        self._unsure_ns: dict[int, int] = {}
        """When it was first found of a path that a router was silent which had answered before."""
        self._changed: set[int] = set()
        self._asked: set[int] = set()
        """Paths whose round ended since the last call of `take_asked`."""
        self._in_doubt: set[int] = set()
        """Paths of which something may have changed since their last round."""
        self._anew: set[int] = set()
        """Those of them whose present round began before that."""

    def begin(self, row: int, now_ns: int) -> None:
        """A path began."""
        self.end(row)
        self._put(row, now_ns)

    def end(self, row: int) -> None:
        """A path is gone; its row may become another's."""
        for each in (
            self._due_ns, self._asking, self._ttl, self._waiting, self._doubted, self._beyond, self._hops,
            self._unsure_ns,
        ):  # fmt: skip
            each.pop(row, None)
        for some in (self._changed, self._asked, self._in_doubt, self._anew):
            some.discard(row)

    def doubt(self, rows: Iterable[int], now_ns: int) -> None:
        """Asks for these paths soon: a link of theirs may have gone. Until then nothing is sure of them."""
        for row in rows:
            if row in self._due_ns:
                self._in_doubt.add(row)
                if row in self._asking:
                    self._anew.add(row)
                if row not in self._waiting:
                    self._put(row, now_ns)

    def hops(self, row: int) -> Hops | None:
        """The path's hops; None: they are not known yet."""
        return self._hops.get(row)

    def is_sure(self, row: int) -> bool:
        """Whether the path's hops are known, all routers said the same when they were asked last, and nothing is in doubt."""
        return row in self._hops and row not in self._unsure_ns and row not in self._in_doubt

    def take_asked(self) -> set[int]:
        """The paths that have been asked, whatever they said, since the last call."""
        asked, self._asked = self._asked, set()
        return asked

    def take_changed(self) -> list[int]:
        """The paths whose hops became known, or others, since the last call."""
        changed, self._changed = sorted(self._changed), set()
        return changed

    @property
    def waiting(self) -> set[int]:
        """The paths whose answer is awaited."""
        return set(self._waiting)

    def due(self, now_ns: int) -> list[Ask]:
        """The packets to send now."""
        for row in [row for row, waiting in self._waiting.items() if waiting.until_ns <= now_ns]:
            self._go_on(row, 0, now_ns)
        self._next_ns = max(self._next_ns, now_ns - _WAIT_NS)  # a pause is no reason for a burst
        asks: list[Ask] = []
        while self._due and self._due[0][0] <= now_ns and self._next_ns <= now_ns:
            at_ns, row = heapq.heappop(self._due)
            if self._due_ns.get(row) == at_ns and row not in self._waiting:
                self._next_ns += self._gap_ns
                asks.append(self._ask(row, now_ns))
        return asks

    def answered(self, row: int, address: int, token: int | None, now_ns: int) -> None:
        """A router said that a packet's time was over.

        Parameters:
            address: the router's, as a number.
            token: what the answer quotes of the packet; None: too little. Then it may be of anybody, and a second one
                has to say the same.
        """
        waiting = self._waiting.get(row)
        if waiting is None or (token is not None and token != waiting.ask.token):
            return  # late, or forged
        if token is None and self._doubted.get(row) != (waiting.ask.ttl, address):
            self._doubted[row] = (waiting.ask.ttl, address)
            address = _DOUBTFUL
        self._go_on(row, address, now_ns)

    def _ask(self, row: int, now_ns: int) -> Ask:
        if row not in self._asking:
            # However often it is in doubt meanwhile: a link that is back may be as it was.
            patient = now_ns - self._unsure_ns.get(row, now_ns) < _SOON_NS
            beyond = self._beyond[row] = self._beyond.get(row, 0) % _SILENT + 1
            asking = self._asking[row] = _round(self._hops.get(row, ()), beyond, patient=patient)
            self._ttl[row] = next(asking)
        ask = Ask(row, self._ttl[row], self._random.randrange(1, 1 << 63))
        self._waiting[row] = _Waiting(ask, now_ns + _WAIT_NS)
        return ask

    def _go_on(self, row: int, answer: int, now_ns: int) -> None:
        """Takes an answer, 0 for none, or that there was a doubtful one. Decides what the path is asked next."""
        del self._waiting[row]
        try:
            self._ttl[row] = self._asking[row].send(answer)
        except StopIteration as over:
            del self._asking[row]
            hops, is_sure = over.value
            if hops != self._hops.get(row):
                self._hops[row] = hops
                self._changed.add(row)
            if is_sure:
                self._unsure_ns.pop(row, None)
            else:
                self._unsure_ns.setdefault(row, now_ns)
            self._asked.add(row)
            if row in self._anew:
                self._anew.discard(row)
                self._put(row, now_ns)
                return
            self._in_doubt.discard(row)
            self._put(row, now_ns + (_AGAIN_NS if is_sure else _SOON_NS))
        else:
            self._put(row, now_ns)

    def _put(self, row: int, at_ns: int) -> None:
        self._due_ns[row] = at_ns
        heapq.heappush(self._due, (at_ns, row))


def _round(known: Hops, beyond: int, *, patient: bool) -> Generator[int, int, tuple[Hops, bool]]:
    """Asks for a path's hops: yields the TTL to ask with, and is sent who answered (0: nobody; or `_DOUBTFUL`).

    Returns the hops, and whether all of them answered that did before. Of a path that is known only those are asked, and
    the one that lies so far `beyond` the last. If that one answers, or one of the others says something else, all are;
    and if one of them is silent, unless one is `patient`: it may be busy.
    """
    answers = []
    for ttl, before in enumerate(known, 1):
        answers.append((yield from _hop(ttl)) if before else 0)
        if answers[-1] != before and (answers[-1] or not patient):
            break
    else:
        if known and not (yield from _after(len(known) + beyond)):
            return known, tuple(answers) == known
    found: list[int] = []
    while len(found) < MOST_HOPS and (len(found) < _SILENT or any(found[-_SILENT:])):
        found.append((yield from _hop(len(found) + 1)))
    while found and not found[-1]:
        found.pop()
    return tuple(found), True


def _hop(ttl: int) -> Generator[int, int, int]:
    """Asks one hop until it answers, `_TRIES` times at most."""
    for _ in range(_TRIES):
        if (answer := (yield ttl)) > 0:
            return answer
    return 0


def _after(ttl: int) -> Generator[int, int, bool]:
    """Asks a hop once that mostly is none, and again if the answer is doubtful. Returns whether a router answered."""
    if ttl > MOST_HOPS:
        return False
    answer = yield ttl
    if answer == _DOUBTFUL:
        answer = yield ttl
    return answer > 0
