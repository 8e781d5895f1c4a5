"""A large simulated fleet with the real detector and remediator on a real NATS server.

It has 300 events a second at 100,000 nodes. The inventory holds all nodes. A storm of lost carriers and silent paths
moves over them. The detector turns the probes' simulated reports into events, and the remediator turns events into
commands. Simulated agents answer the commands.

A subscriber on the bus measures the time from the arrival of an event to the arrival of each command that answers it.
It also measures from the publication of the observation.

    make bench NAME=fleet ARGS="--nodes 1000 --seconds 30 --json FILE"
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import msgspec
import structlog

from bench import place
from bench.document import Document, joined, keep
from bench.fleet_agents import Arrivals
from bench.fleet_figures import Road, Usage, road
from bench.fleet_load import Told, Work
from bench.fleet_shards import Plan, Process
from bench.processes import rss_mb
from foliot.bus.client import Bus
from foliot.runtime.supervisor import LAST, Supervisor, nats_server, service
from foliot.settings import BusSettings
from foliot_lab.measure.budget import ProcessLoad
from foliot_lab.measure.host_latency import LatenessSampler
from foliot_lab.simulate.fault_storm import StormSpec
from foliot_lab.simulate.synthetic_fleet import SyntheticFleet
from foliot_schemas import encode
from foliot_schemas.subjects import INVENTORY

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_READY_S = 300.0
_LOOK_S = 0.02
_DRAIN_S = 4.0
_BESIDE, _PAIR, _PAIR_OF_ALL, _RATE = 0.52, 0.8, 0.65, 300.0
"""Processors busy at this rate in bench/results/fleet-shards-2026-11-22.json. The first number is NATS and the
process that plays the fleet. A detector and a remediator took 0.96 for a quarter of the fleet and 1.44 for all of
it."""
_DEAF = 5
"""Agents that answer nothing."""
_SETTINGS = {
    # Budgets of such a fleet: a twentieth of its traffic may move within a minute.
    "remediator.moves_per_minute": 100_000,
    "remediator.nics_away": 2_000,
    "remediator.primary": '"first"',
    "remediator.probation_s": 2.0,
    # Nodes report every two seconds, not ten times a second, so a report counts for longer.
    "remediator.healthy_within_s": 4.5,
    "remediator.clock_stale_s": 6.5,
    "detector.report_ms": 2_000.0,
    "detector.late_silence_s": 2.5,
    # Only nodes of the storm's front report: none is dead because it is quiet.
    "detector.process_silence_s": 86_400.0,
    "detector.half_life_s": 5.0,
    "telemetry.endpoint": '""',
}


Result = TypeVar("Result")


class Bench:
    """The bus, the services, and a fleet on it."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self._arguments = arguments
        self._folder = folder
        self._url = f"nats://127.0.0.1:{arguments.port}"
        self._supervisor = Supervisor()
        self._tools: dict[str, asyncio.subprocess.Process] = {}
        self._environment = {
            f"FOLIOT_{section.upper()}__{key.upper()}": str(value)
            for name, value in (_SETTINGS | {"bus.url": f'"{self._url}"'}).items()
            for section, key in (name.split("."),)
        }

    async def run(self) -> dict[str, Any]:
        """One row of the table."""
        await self._supervisor.start(
            nats_server(str(self._folder / "nats"), port=self._arguments.port, log_file=self._log("nats"))
        )
        try:
            fleet = SyntheticFleet(self._arguments.nodes)
            plan = Plan.of(fleet, self._arguments.shards, self._arguments.only)
            written_s = await self._write_inventory(fleet)
            started_s = {process.name: await self._start(process) for process in plan.processes()}
            measured = await self._storm(fleet, plan)
            again_s = {process.name: await self._restart(process.name) for process in plan.processes()}
        finally:
            for tool in self._tools.values():
                if tool.returncode is None:
                    tool.kill()
                await tool.wait()
            await self._supervisor.stop(LAST)
        row = {
            "nodes": self._arguments.nodes, "shards": self._arguments.shards, "running": len(plan.running),
            "inventory_written_s": written_s, "ready_after_start_s": started_s,
        }  # fmt: skip
        return row | measured | {"ready_after_kill_s": again_s}

    async def _write_inventory(self, fleet: SyntheticFleet) -> float:
        """Writes the nodes' records as agents do, but does not wait for each answer."""
        began_s = time.monotonic()
        bus = await Bus.connect(BusSettings(url=self._url), "bench")
        # The connection itself: a hundred thousand agents write at once, one process need not wait for each.
        client, stream = bus._client, bus._stream  # noqa: SLF001
        for number in range(fleet.nodes):
            await client.publish(f"$KV.{INVENTORY.name}.{fleet.name(number)}", encode(fleet.node(number)))

        async def is_stored() -> bool:
            return bool((await stream.stream_info(f"KV_{INVENTORY.name}")).state.messages >= fleet.nodes)

        await _until(is_stored, "the inventory is not stored")
        await bus.close()
        return round(time.monotonic() - began_s, 2)

    async def _start(self, process: Process) -> float:
        began_s, name = time.monotonic(), process.name
        environment = self._environment | process.environment
        spec = service(process.service, name=name, environment=environment, log_file=self._log(name))
        await self._supervisor.start(spec)
        return await self._ready(name, 1, began_s)

    async def _restart(self, name: str) -> float:
        """Sends SIGKILL and starts at once: the lease of the killed process has to run out."""
        times = self._started(name)
        began_s = time.monotonic()
        self._supervisor.kill(name)
        self._supervisor.release(name)
        return await self._ready(name, times + 1, began_s)

    async def _ready(self, name: str, times: int, began_s: float) -> float:
        async def is_ready() -> bool:
            return self._started(name) >= times

        await _until(is_ready, f"{name} is not ready; see {self._log(name)}")
        return round(time.monotonic() - began_s, 2)

    def _started(self, name: str) -> int:
        """How often the service reported that it was ready.

        The remediator does so when it takes the lease and knows the ways in force.
        """
        word = "lease_taken" if name.startswith("remediator") else "detector_started"
        path = Path(self._log(name))
        return path.read_text().count(f'"event": "{word}"') if path.exists() else 0

    async def _storm(self, fleet: SyntheticFleet, plan: Plan) -> dict[str, Any]:
        arguments = self._arguments
        arrivals, told = self._folder / "arrivals", self._folder / "told"
        spec = StormSpec(
            events_per_s=arguments.rate, seconds=arguments.seconds, seed=arguments.seed, nic_share=arguments.nic_share,
            parts=arguments.parts or arguments.shards,
        )  # fmt: skip
        begin_s = time.time() + 2.0
        work = Work(url=self._url, nodes=fleet.nodes, storm=spec, begin_s=begin_s, result=str(told))
        deaf = [fleet.name(fleet.nodes // 2 + fleet.degree // 2 + number) for number in range(_DEAF)]
        await self._tool("agents", "bench.fleet_agents", self._url, str(arrivals), *deaf)
        await self._tool("load", "bench.fleet_load", msgspec.json.encode(work).decode())
        services = [process.name for process in plan.processes()]
        names = ("nats", *services, "agents", "load")
        pids = {name: self._tools[name].pid if name in self._tools else self._supervisor.pid(name) for name in names}
        sampler = LatenessSampler()
        await asyncio.sleep(max(begin_s - time.time(), 0.0))
        sampler.start()
        before_mb = {name: rss_mb(pid) for name, pid in pids.items()}
        usage = Usage(pids, time.monotonic())
        await asyncio.sleep(spec.seconds)
        costs = usage.costs(time.monotonic())
        sampler.stop()
        await self._tools["load"].wait()
        await asyncio.sleep(_DRAIN_S)
        self._tools["agents"].send_signal(signal.SIGTERM)
        await self._tools["agents"].wait()
        seen, heard = _read(arrivals, Arrivals), _read(told, Told)
        heard.observed = {who: at_ns for who, at_ns in heard.observed.items() if plan.sees_to(who)}
        return _figures(road(seen, heard), heard, spec) | {
            "rss_mb": round(sum(costs[name].rss_mb for name in services), 1),
            "refusals": seen.guards,
            "rss_before_mb": {name: round(value, 1) for name, value in before_mb.items()},
            "processes": {name: msgspec.to_builtins(cost) for name, cost in costs.items()},
            "under": msgspec.to_builtins(sampler.machine()),
        }

    async def _tool(self, name: str, module: str, *arguments: str) -> None:
        with self._open_log(name) as log:
            self._tools[name] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, *arguments, stdout=log, stderr=log
            )

    def _open_log(self, name: str) -> BinaryIO:
        return Path(self._log(name)).open("ab")

    def _log(self, name: str) -> str:
        return str(self._folder / f"{name}.log")


def _figures(measured: Road, told: Told, spec: StormSpec) -> dict[str, Any]:
    return {
        "seconds": spec.seconds,
        "events_per_s": round(measured.events / spec.seconds, 1),
        "commands_per_s": round(measured.commands / spec.seconds, 1),
        "observations_per_s": round(told.messages / spec.seconds, 1),
        "p50_ms": measured.event_to_command.p50_ms,
        "p99_ms": measured.event_to_command.p99_ms,
        "road": msgspec.to_builtins(measured),
        "load_late_ms": {"p50": round(told.late_p50_ms, 2), "p99": round(told.late_p99_ms, 2)},
        "storm": msgspec.to_builtins(spec),
    }


async def _until(holds: Callable[[], Awaitable[bool]], otherwise: str) -> None:
    """Waits for a condition of other processes.

    Raises:
        TimeoutError: it did not, for very long.
    """
    deadline_s = time.monotonic() + _READY_S
    while not await holds():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{otherwise} after {_READY_S:g} s")
        await asyncio.sleep(_LOOK_S)


def _read(path: Path, kind: type[Result]) -> Result:
    return msgspec.msgpack.decode(path.read_bytes(), type=kind)


def _process_load(arguments: argparse.Namespace) -> ProcessLoad:
    shards = arguments.shards
    pairs = shards if arguments.only is None else 1
    processors = (_BESIDE + pairs * (_PAIR + _PAIR_OF_ALL / shards)) * arguments.rate / _RATE
    return ProcessLoad(
        f"A storm of {arguments.rate:g} events a second, and {pairs} of {shards} pairs of services",
        processors,
        "--rate, or share the fleet out",
    )


def main() -> int:
    """Parses the command line, runs, prints a line."""
    parser = argparse.ArgumentParser(prog="bench.fleet", description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--rate", type=float, default=_RATE, help="events a second (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--nic-share", type=float, default=0.1, help="lost carriers among the faults (default: 0.1)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shards", type=int, default=1, help="each with a detector and a remediator")
    parser.add_argument("--only", type=int, help="the one shard that is seen to (default: all)")
    parser.add_argument("--parts", type=int, help="fronts of the storm, beside each other (default: one per shard)")
    parser.add_argument("--port", type=int, default=4922, help="of the NATS server")
    parser.add_argument("--json", type=Path, help="write the row to this file, beside those that it has")
    parser.add_argument("--folder", type=Path, help="keep logs here")
    parser.add_argument("--anyway", action="store_true", help="also where the machine cannot carry it")
    arguments = parser.parse_args()
    if not arguments.anyway and not place.can_carry(_process_load(arguments)):
        return place.CANNOT
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # its end, for whatever reason, ends its processes too
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(40), logger_factory=structlog.PrintLoggerFactory(sys.stderr)
    )
    with tempfile.TemporaryDirectory(prefix="foliot-bench-fleet-") as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        document = Document("fleet", arguments, services=_SETTINGS)
        row = asyncio.run(Bench(arguments, folder).run()) | {"head": document.head()}
    print(json.dumps(row, indent=2))
    if arguments.json:
        _add(arguments.json, row)
    return 0


def _add(path: Path, row: dict[str, Any]) -> None:
    """Adds a row to those of earlier runs, each of which has a head of its own."""
    rows = [*(json.loads(path.read_text())["rows"] if path.exists() else []), row]
    keep(path, joined([each.get("head", {}) for each in rows]), rows)


if __name__ == "__main__":
    sys.exit(main())
