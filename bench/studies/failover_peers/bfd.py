"""BFD between hosts, through the fabric, and between hosts and their leaves. It finds faults, and moves nothing."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from bench.studies.clock_peers.children import Children
from bench.studies.clock_peers.counting import Counters
from bench.studies.failover_peers import frr, session_paths
from bench.studies.failover_peers.frr import Ends
from bench.studies.failover_peers.rows import Row, last, ms
from bench.studies.failover_peers.stage import PeerError, until
from foliot.clock import HostClock
from foliot_lab.report.blast_radius import scope
from foliot_schemas.names import nic_name

if TYPE_CHECKING:
    from bench.studies.failover_peers.rows import Coverage
    from bench.studies.failover_peers.stage import Cut, Stage
    from foliot_lab.measure.outages import End, Pair

_UP_S = 20.0
"""The time until a session is up. Until then it sends once a second (RFC 5880, 6.8.3), and three such packets make
it."""
_STEADY_S = 0.5
"""The time after the last session has come up, in which all agree on the interval."""
_COUNTED_S = 1.0
_PATIENCE_S = 1.0
"""The wait for a session to go down: many times the longest detection time here."""


Hops: TypeAlias = Literal["hosts", "leaf", "leaf by interface"]


class Bfd:
    """bfdd on all hosts and, for some kinds of session, on their leaves.

    Parameters:
        hops: the kind of session. "hosts": every pair of hosts on every rail. "leaf": each NIC with its leaf.
            "leaf by interface": as "leaf", and the sessions name the NIC as well. bfdd 8.4 then hears when the NIC goes
            away, but does not listen to its carrier.
    """

    def __init__(self, stage: Stage, interval_ms: int, hops: Hops = "hosts") -> None:
        self.name = f"bfd {hops} 3x{interval_ms}"
        self._devices = devices(stage) if hops == "leaf by interface" else None
        self._stage = stage
        self._plan = stage.fabric.plan
        self._interval_ms = interval_ms
        self._multihop = hops == "hosts"
        self._sessions = sessions_of_hosts(stage) if self._multihop else sessions_of_leaves(stage)
        self._folder = stage.folder / self.name.replace(" ", "-")
        self._clock = HostClock("lab")
        self._children: Children | None = None
        self._logs = frr.Logs([])
        self._strays: set[Ends] = set()
        self._packets_per_s = 0.0
        self._coverage: Coverage | None = None

    async def start(self) -> None:
        """Starts all sessions, waits until each is up at both ends, and counts packets for a second."""
        binary = frr.find(self._stage.unpacked)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._children = Children(self._folder)
        launcher = frr.Launcher(binary, self._children, self._folder, self._interval_ms, self._multihop, self._devices)
        fabric = self._stage.fabric
        logs = [await launcher.start(owner, fabric.namespace(owner), own) for owner, own in self._sessions.items()]
        self._logs = frr.Logs(logs)
        await self._all_up()
        self._strays.clear()
        await self._count()

    async def measure(self, cut: Cut, rep: int) -> Row:
        """Measures the sessions' reaction to one fault."""
        self._note_strays()
        strays, self._strays = self._strays, set()
        pairs = scope(cut.kind, cut.where, self._plan).pairs()
        ought = {pair: self._session(pair) for pair in pairs}
        told: dict[Ends, int] = {}

        def all_told() -> bool:
            for change in self._logs.news():
                if change.was == "up":
                    told.setdefault(change.ends, self._lab_ns(change.at_ns))
            return told.keys() >= set(ought.values())

        injected_ns = self._stage.time.now_ns()
        cut.action.inject()
        try:
            await until(all_told, _PATIENCE_S)
        finally:
            cut.action.heal()
        await self._all_up()
        concerned = {ends: at_ns for ends, at_ns in told.items() if self._concerned(ends, ought)}
        moments = [told.get(ends) for ends in ought.values()]
        return Row(
            variant=cut.variant, where=cut.where, tool=self.name, rep=rep,
            detect_ms=ms(injected_ns, min(concerned.values(), default=None)),
            detect_all_ms=ms(injected_ns, last(moments)),
            ought=len(ought), did=sum(moment is not None for moment in moments),
            strays=len(strays) + len(told) - len(concerned), packets_per_s=round(self._packets_per_s, 1),
        )  # fmt: skip

    async def stop(self) -> None:
        """Ends all sessions."""
        if self._children is not None:
            await self._children.close()
        self._children = None

    def coverage(self) -> Coverage | None:
        """The coverage of paths between hosts. A session with a leaf takes none."""
        return self._coverage

    def _session(self, pair: Pair) -> Ends:
        """The session by which the sender of a pair knows whether its way is good."""
        local = self._address(pair.source)
        if self._multihop:
            return Ends(local, self._address(pair.destination))
        return Ends(local, self._leaf_address(pair.source))

    def _concerned(self, ends: Ends, ought: dict[Pair, Ends]) -> bool:
        """Whether a session is one of those, at either end."""
        return ends in ought.values() or Ends(ends.peer, ends.local) in ought.values()

    def _address(self, end: End) -> str:
        return self._plan.underlay(end.node, end.rail)

    def _leaf_address(self, end: End) -> str:
        return self._plan.links[nic_name(end.node, end.rail)].far.address.partition("/")[0]

    def _lab_ns(self, realtime_ns: int) -> int:
        (local_ns,) = self._clock.realtime_to_local(np.array([realtime_ns], dtype=np.int64))
        return int(local_ns) + self._stage.time.base_ns

    def _note_strays(self) -> None:
        """Counts the sessions that go down while no fault is on."""
        self._strays |= {change.ends for change in self._logs.news() if change.was == "up"}

    async def _all_up(self) -> None:
        """Waits for every session, at both ends.

        Raises:
            PeerError: one does not come up.
            ChildError: a bfdd has ended.
        """
        every = {ends for sessions in self._sessions.values() for ends in sessions}

        def up() -> bool:
            assert self._children is not None
            self._children.check()
            self._note_strays()
            return all(self._logs.states.get(ends) == "up" for ends in every)

        if not await until(up, _UP_S):
            down = sum(self._logs.states.get(ends) != "up" for ends in every)
            raise PeerError(f"{down} of {len(every)} ends of BFD sessions are not up after {_UP_S:g} s")
        await asyncio.sleep(_STEADY_S)

    async def _count(self) -> None:
        fabric = self._stage.fabric
        port = frr.MULTI_HOP_PORT if self._multihop else frr.ONE_HOP_PORT
        doors = [(fabric.namespace(link.far.owner), link.far.device) for link in self._plan.nics]
        with (
            contextlib.closing(Counters(doors, {self.name: (port,)})) as counters,
            contextlib.closing(session_paths.Listeners(fabric, port)) as listeners,
        ):
            counters.take()
            await asyncio.sleep(_COUNTED_S)
            self._packets_per_s = counters.take()[self.name] / _COUNTED_S / len(doors)
            if self._multihop:
                self._coverage = session_paths.coverage(fabric, self.name, listeners.heard())


def sessions_of_hosts(stage: Stage) -> dict[str, list[Ends]]:
    """The sessions of each host, to every other on every rail."""
    plan = stage.fabric.plan
    return {
        host: [
            Ends(plan.underlay(host, rail), plan.underlay(peer, rail))
            for rail in plan.rails
            for peer in plan.hosts
            if peer != host
        ]
        for host in plan.hosts
    }


def sessions_of_leaves(stage: Stage) -> dict[str, list[Ends]]:
    """The sessions of each NIC with its leaf, both ends."""
    found: dict[str, list[Ends]] = {}
    for link in stage.fabric.plan.nics:
        near, far = (port.address.partition("/")[0] for port in (link.near, link.far))
        found.setdefault(link.near.owner, []).append(Ends(near, far))
        found.setdefault(link.far.owner, []).append(Ends(far, near))
    return found


def devices(stage: Stage) -> dict[str, str]:
    """The devices of NICs and of their leaves' ports, by address."""
    ports = [port for link in stage.fabric.plan.nics for port in (link.near, link.far)]
    return {port.address.partition("/")[0]: port.device for port in ports}
