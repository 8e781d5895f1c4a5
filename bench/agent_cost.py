"""The steps of an agent's event loop with 64 peers: a whole agent process that builds its overlay on veth pairs.

    make bench NAME=agent-cost ARGS="--json FILE"

A real bus runs beside it, and this process plays the remediator and the peers. A peer answers notices at once. Nothing
is behind its service addresses, so that no echo is answered: the agent asks each one again for two seconds, which is
the most that confirming costs. `own` is the processor time of the loop's thread in a step, see
`foliot.runtime.loop_steps`. So the work of the rest of the machine is not in it.

| act | it lasts until |
|---|---|
| start | all peers are joined and their backups armed |
| nothing | the time is over |
| carrier lost | the agent has told of its move |
| carrier back | the traffic is restored by command |
| rerouted | a command has moved all traffic of a rail, route by route |
| restored | a command has moved it back |
| peers lost | all peers have said at once that they lost a NIC, and the agent has told of each move |
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench import place
from bench.document import Document
from bench.probe_fabric import Wires, node_settings
from foliot.bus.client import Bus
from foliot.node.addressing import describe
from foliot.runtime import loop_steps
from foliot.runtime.loop_steps import Counted, Histogram
from foliot.runtime.supervisor import LAST, Supervisor, nats_server, service
from foliot.settings import BusSettings
from foliot.text.toml_text import toml
from foliot_agent.core.overlay_layout import BACKUP_TABLE
from foliot_agent.core.peer_protocol import Seal
from foliot_agent.peers.sockets import PeerSockets
from foliot_lab.fabric.iproute import IP
from foliot_lab.fabric.namespaces import enter_control, inside
from foliot_lab.measure.host_latency import LatenessSampler
from foliot_schemas import ClockState, Command, Node, NodePaths, Outcome, Placement
from foliot_schemas.notice import Notice, NoticeSeen
from foliot_schemas.subjects import CLOCKS, COMMAND, INVENTORY, OUTCOME, PATHS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

_NODE = "node0"
_PORT = 4222
_RAILS = ("rail0", "rail1")
_KEY = "a key that this bench alone has"
_PATIENCE_S = 60.0
_LOOK_S = 0.05
_SETTLE_S = 3.0
"""After each act, counted to it: longer than the agent waits for echoes and for answers to notices."""
_HOUR_NS = 3_600_000_000_000


class Row(msgspec.Struct, kw_only=True):
    """The steps of one act, of all repetitions together."""

    act: str
    peers: int
    repetitions: int
    steps: int
    step_own_p50_ms: float
    """Processor time of the loop's thread in a step."""
    step_own_p99_ms: float
    step_own_max_ms: float
    steps_own_over_10ms: int
    """Steps that used more than 10 ms of processor time."""
    steps_over_10ms: int
    """Steps that lasted more than 10 ms."""


class Fleet:
    """The remediator and the peers of one agent.

    Parameters:
        wires: the agent's, at whose far ends the peers are.
    """

    def __init__(self, bus: Bus, node: Node, peers: Sequence[Node], wires: Wires) -> None:
        self._bus = bus
        self._node = node
        self._peers = peers
        self._wires = wires
        self._sockets: dict[str, PeerSockets] = {}
        self._outcomes: list[Outcome] = []
        self._commands = 0

    async def begin(self) -> None:
        """Puts everything into the bus's buckets that an agent with armed backups needs, and listens."""
        await self._bus.subscribe_kept(OUTCOME, self._heard, durable="bench")
        now_ns = _now_ns()
        clock = ClockState(
            clock=_NODE, reference=_NODE, offset_ns=0, drift_ppb=0.0, hard_bound_ns=1, bound_ns=1, growth_ppb=0.0,
            as_of_ns=now_ns, void_after_ns=now_ns + _HOUR_NS, status="synchronised",
        )  # fmt: skip
        await self._bus.put(CLOCKS, _NODE, clock)
        for peer in self._peers:
            await self._bus.put(INVENTORY, peer.name, peer)
            sockets = PeerSockets(Seal(_KEY), peer.agent_port, _answering(peer.name))
            with inside(self._wires.far):
                for nic in peer.nics:
                    sockets.open(nic.address)
            self._sockets[peer.name] = sockets
        backups = tuple(way for rail, other in (_RAILS, _RAILS[::-1]) for way in self._ways(rail, other, entropy=1))
        await self._bus.put(PATHS, _NODE, NodePaths(node=_NODE, lease_revision=1, backups=backups))

    async def armed(self) -> None:
        """Waits until a backup stands in the kernel for each peer on each rail."""
        await _until(lambda: all(_routes(BACKUP_TABLE + rail) == len(self._peers) for rail in range(len(_RAILS))))

    async def carrier(self, state: str) -> None:
        """Sets the far end of the first rail up or down. A loss is over when the agent has told of its move."""
        told = len(self._outcomes)
        self._set_far(state)
        if state == "down":
            await _until(lambda: any(each.armed and each.status == "done" for each in self._outcomes[told:]))

    async def back(self) -> None:
        """Gives the first rail its carrier, and commands its traffic back until that is done."""
        await self.carrier("up")
        deadline_s = time.monotonic() + _PATIENCE_S
        while (await self._command("restore", back=_RAILS[:1])).status != "done":  # The NIC may not be ready yet
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"not restored: {self._outcomes[-1]}")
            await asyncio.sleep(_LOOK_S)

    async def reroute(self, verb: str, via: str) -> None:
        """Moves the first rail's traffic by placements, and waits for the outcome."""
        outcome = await self._command(verb, placements=tuple(self._ways(_RAILS[0], via, entropy=0)))
        if outcome.status != "done":
            raise RuntimeError(f"{verb} was {outcome.status}: {outcome.reason}")

    async def peers_lose(self) -> None:
        """Lets all peers say at once that they lost their NIC on the first rail."""
        told, own = len(self._outcomes), self._node.nic(_RAILS[1]).address
        for number, peer in enumerate(self._peers):
            sockets = self._sockets[peer.name]
            notice = Notice(
                node=peer.name, rail=_RAILS[0], state="lost", fault=f"bench/{peer.name}.{_RAILS[0]}/carrier-1",
                sequence=number + 1, at_ns=_now_ns(),
            )  # fmt: skip
            sockets.send(sockets.seal(notice), peer.nic(_RAILS[1]).address, own, self._node.agent_port)
        await _until(lambda: len({each.command for each in self._outcomes[told:]}) >= len(self._peers))

    def _set_far(self, state: str) -> None:
        with inside(self._wires.far):
            subprocess.run((IP, "link", "set", _RAILS[0], state), check=True)

    def close(self) -> None:
        """Closes the peers' sockets."""
        for sockets in self._sockets.values():
            sockets.close()

    def _ways(self, rail: str, via: str, *, entropy: int) -> list[Placement]:
        return [Placement(peer=peer.name, rail=rail, via=via, entropy=entropy) for peer in self._peers]

    async def _command(self, verb: str, **what: Any) -> Outcome:
        self._commands += 1
        command = Command(
            id=f"bench-{self._commands}", verb=verb, node=_NODE, cause="bench", issued_ns=_now_ns(),
            deadline_ns=_now_ns() + _HOUR_NS, lease_revision=1, **what,
        )  # fmt: skip
        self._bus.publish_kept(COMMAND, command, verb, _NODE)
        await _until(lambda: any(each.command == command.id for each in self._outcomes))
        return next(each for each in self._outcomes if each.command == command.id)

    async def _heard(self, outcome: Outcome, _subject: str) -> None:
        self._outcomes.append(outcome)


def _answering(name: str) -> Callable[[Any, Callable[[Any], None]], None]:
    """The peer's answer to a notice: it has moved."""

    def take(message: Any, reply: Callable[[Any], None]) -> None:
        if isinstance(message, Notice):
            reply(NoticeSeen(node=name, sequence=message.sequence, moved=True))

    return take


def _now_ns() -> int:
    """The common time here: that of the agent's clock, which is the reference."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def _routes(table: int) -> int:
    """The routes of a table, which the kernel makes with the first one."""
    shown = subprocess.run((IP, "route", "show", "table", str(table)), capture_output=True, text=True, check=False)
    return shown.stdout.count("via")


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(_PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - the kernel sets no event of ours
            await asyncio.sleep(_LOOK_S)


async def _once(arguments: argparse.Namespace, folder: Path) -> dict[str, Counted]:
    """One agent from its start on: the steps of each act."""
    own = node_settings(_NODE, 0, len(_RAILS))
    node = describe(own)
    peers = [describe(node_settings(f"node{number}", number, len(_RAILS))) for number in range(1, arguments.peers + 1)]
    supervisor, wires = Supervisor(), Wires(len(_RAILS), _bare(node), [_bare(peer) for peer in peers])
    fleet: Fleet | None = None
    try:
        await supervisor.start(nats_server(str(folder / "nats"), port=_PORT, log_file=str(folder / "nats.log")))
        bus = await Bus.connect(BusSettings(url=f"nats://127.0.0.1:{_PORT}"), "bench")
        fleet = Fleet(bus, node, peers, wires)
        await fleet.begin()
        steps, file = folder / "steps", folder / "agent.toml"
        file.write_text(toml(_document(own, folder)))
        environment = {"FOLIOT_CONFIG": str(file), "FOLIOT_TELEMETRY__LOOP_STEPS": str(steps)}
        await supervisor.start(service("agent", environment=environment, log_file=str(folder / "agent.log")))
        taken = await _steps(fleet, steps, arguments.seconds)
        await bus.close()
    except (RuntimeError, TimeoutError):
        sys.stderr.write((folder / "agent.log").read_text()[-2_000:])
        raise
    else:
        return taken
    finally:
        if fleet is not None:
            fleet.close()
        await supervisor.stop(LAST)
        wires.close()


async def _steps(fleet: Fleet, steps: Path, seconds: float) -> dict[str, Counted]:
    """Lets the agent act, and reads its steps after each act."""
    acts: dict[str, Callable[[], Awaitable[None]]] = {
        "start": fleet.armed,
        "nothing": lambda: asyncio.sleep(seconds),
        "carrier lost": lambda: fleet.carrier("down"),
        "carrier back": fleet.back,
        "rerouted": lambda: fleet.reroute("reroute", _RAILS[1]),
        "restored": lambda: fleet.reroute("restore", _RAILS[0]),
        "peers lost": fleet.peers_lose,
    }
    taken, before = {}, Counted(Histogram(), Histogram())
    for name, act in acts.items():
        await act()
        await asyncio.sleep(_SETTLE_S)
        now = loop_steps.read(steps)
        taken[name], before = now.since(before), now
    return taken


def _bare(node: Node) -> Node:
    """A node whose NICs have their own addresses alone. The agent makes the devices of the others."""
    return msgspec.structs.replace(
        node, nics=tuple(msgspec.structs.replace(nic, path_addresses=(), entropies=()) for nic in node.nics)
    )


def _document(own: Any, folder: Path) -> dict[str, dict[str, Any]]:
    return {
        "bus": {"url": f"nats://127.0.0.1:{_PORT}"}, "telemetry": {"endpoint": ""}, "node": msgspec.to_builtins(own),
        "agent": {"armed": "always", "key": _KEY, "memory": str(folder)},
    }  # fmt: skip


def rows_of(taken: Sequence[Mapping[str, Counted]], peers: int) -> list[Row]:
    """A row for each act, from all repetitions."""
    rows = []
    for act in taken[0]:
        took, own = (
            Histogram(tuple(map(sum, zip(*(each.counts for each in runs), strict=True))))
            for runs in zip(*(each[act] for each in taken), strict=True)
        )
        row = Row(
            act=act, peers=peers, repetitions=len(taken), steps=own.steps, step_own_p50_ms=own.within_ms(0.5),
            step_own_p99_ms=own.within_ms(0.99), step_own_max_ms=own.within_ms(1),
            steps_own_over_10ms=own.long, steps_over_10ms=took.long,
        )  # fmt: skip
        rows.append(row)
    return rows


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench.agent_cost", description=__doc__.split("\n", 1)[0] if __doc__ else None
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--peers", type=int, default=64, help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of nothing (default: %(default)s)")
    parser.add_argument("--repetitions", type=int, default=3, help="(default: %(default)s)")
    return parser


def main() -> int:
    """Parses the command line, runs, prints a table."""
    arguments = _parser().parse_args()
    # Not asked whether the machine carries it: it is one process, whose own processor time counts.
    if not place.enter():
        return place.CANNOT
    enter_control()  # the agent's wires, and the bus
    document, taken = Document("agent-cost", arguments), []
    sampler = LatenessSampler()
    sampler.start()
    for _ in range(arguments.repetitions):
        with tempfile.TemporaryDirectory(prefix="foliot-bench-") as folder:
            taken.append(asyncio.run(_once(arguments, Path(folder))))
    sampler.stop()
    rows = rows_of(taken, arguments.peers)
    print(f"{'act':<14} {'steps':>6} {'own p50':>8} {'p99':>6} {'max ms':>6} {'own>10':>6} {'>10 ms':>6}")
    for row in rows:
        print(
            f"{row.act:<14} {row.steps:>6} {row.step_own_p50_ms:>8.2f} {row.step_own_p99_ms:>6.2f} "
            f"{row.step_own_max_ms:>6.2f}"
            f" {row.steps_own_over_10ms:>6} {row.steps_over_10ms:>6}"
        )
    under = msgspec.to_builtins(sampler.machine())
    print(f"machine: {under}")
    if arguments.json:
        document.write(arguments.json, rows, under=under)
    return 0


if __name__ == "__main__":
    sys.exit(main())
