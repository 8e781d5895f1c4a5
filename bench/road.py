"""The time of a recovery: from a lost carrier, or silence, until both directions of every pair flow again on the wire.

Every NIC of the fabric in turn is cut, or made to drop everything silently. A row has at least 200 faults, with fresh
damping state. The lab's witness sends pulses between service addresses and reports when they flow. Its own resolution
and the machine's scheduler lateness stand beside. A fault is found when the detector has decided its first event, as in
the lab's report.

    make bench NAME=road ARGS="--json FILE"
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench import place
from bench.document import Document
from bench.fresh import FRESH
from foliot_lab.faults.actions import Action, prepare
from foliot_lab.measure.bus_recorder import Collector
from foliot_lab.measure.host_latency import LatenessSampler
from foliot_lab.measure.outages import judge
from foliot_lab.measure.wire_witness import Witness
from foliot_lab.report.blast_radius import scope
from foliot_lab.report.report import first_detected_ns
from foliot_lab.scenario.spec import FabricSpec, FaultSpec, Scenario, WorkloadSpec
from foliot_lab.services.lab import Lab

if TYPE_CHECKING:
    from collections.abc import Sequence

    from foliot_lab.measure.bus_recorder import Heard
    from foliot_lab.measure.outages import Pulses, Verdict
    from foliot_lab.report.blast_radius import Scope
    from foliot_lab.scenario.spec import FaultKind
    from foliot_schemas import Event

_RATE_HZ = 400.0
_BEFORE_S = 0.08
_MOVE_S = 4.0
"""The time after which a move counts as missed."""
_RETURN_S = 20.0
_HOME_S = 60.0
_LOOK_S = 0.03
_REST_S = 0.1


_KINDS: dict[str, FaultKind] = {"carrier": "link-down", "silent": "drop"}
_NO_BUS_SUFFIX = "-no-bus"
_NO_BUS = f"carrier{_NO_BUS_SUFFIX}"
_ROWS = [*_KINDS, _NO_BUS]


class Row(msgspec.Struct, kw_only=True):
    """One kind of fault under one setting. Percentiles count missed faults as endless: None if one is among them."""

    fault: str
    armed: str
    bus: bool
    n: int
    missed: int
    """Faults whose traffic was not moved in time."""
    p50_ms: float | None
    """Until both directions of every pair flow again, as the next two."""
    p99_ms: float | None
    max_ms: float | None
    found_missed: int | None = None
    """Faults that nobody found. None, like the next three: the bus is cut, so that no event comes."""
    found_p50_ms: float | None = None
    """Until the detector's first event, as the next two."""
    found_p99_ms: float | None = None
    found_max_ms: float | None = None


class Fault(msgspec.Struct, kw_only=True):
    """One fault of a row. Times count from its beginning; None: missed, or of an event while the bus is cut."""

    fault: str
    armed: str
    bus: bool
    where: str
    found_ms: float | None
    moved_ms: float | None


class Bench:
    """A lab, a witness, and the faults of one setting."""

    def __init__(self, lab: Lab, witness: Witness, collector: Collector, armed: str) -> None:
        self._lab = lab
        self._witness = witness
        self._collector = collector
        self._armed = armed
        self._nics = [f"{host}.{rail}" for rail in lab.plan.rails for host in lab.plan.hosts]
        self._home = self._in_force()

    async def with_bus(self, name: str, count: int) -> list[Fault]:
        """Cuts one NIC after the other; each is moved and back before the next."""
        taken: list[Fault] = []
        for number in range(count):
            taken.append(await self._once(name, self._nics[number % len(self._nics)], bus=True))
            _progress(name, number + 1, count)
        return taken

    async def without_bus(self, name: str, count: int) -> list[Fault]:
        """Cuts NICs with the bus cut.

        Nothing restores then, so each spell cuts the first rail's NICs of one host after the other.

        It cuts half of the hosts: traffic between two moved hosts has nowhere to move.
        """
        taken: list[Fault] = []
        rail = self._lab.plan.rails[0]
        hosts = self._lab.plan.hosts
        while len(taken) < count:
            self._lab.world.cut_bus()
            await asyncio.sleep(_REST_S)
            for host in hosts[: min(len(hosts) // 2, count - len(taken))]:
                taken.append(await self._once(name, f"{host}.{rail}", bus=False))
                _progress(f"{name}, no bus", len(taken), count)
            self._lab.world.mend_bus()
            await self._all_home(rail)
        return taken

    def _deed(self, kind: FaultKind, nic: str) -> Action:
        return prepare(
            FaultSpec(at_s=0.0, kind=kind, where=nic), self._lab.scenario.fabric, self._lab.fabric, self._lab.world
        )

    async def _once(self, name: str, nic: str, *, bus: bool) -> Fault:
        kind = _KINDS[name]
        deed = self._deed(kind, nic)
        watch = self._witness.arm(scope(kind, nic, self._lab.plan).pairs())
        await asyncio.sleep(_BEFORE_S)
        injected_ns = self._lab.time.now_ns()
        deed.inject()
        try:
            seen = await self._until(watch, injected_ns, "moved_ns", _MOVE_S)
        finally:
            deed.heal()
        if bus and seen.moved_ns is not None:
            await self._until(watch, injected_ns, "restored_ns", _RETURN_S)
        self._witness.disarm(watch)
        await self._rest()
        found_ns = found_at_ns(self._lab, self._collector.events, scope(kind, nic, self._lab.plan), injected_ns)
        return Fault(
            fault=name, armed=self._armed, bus=bus, where=nic,
            found_ms=_since(found_ns, injected_ns) if bus else None, moved_ms=_since(seen.moved_ns, injected_ns),
        )  # fmt: skip

    def _in_force(self) -> dict[str, tuple[Any, ...]]:
        """The ways of every node, as the remediator has written them."""
        return {node: (paths.away, paths.placements) for node, paths in self._lab.readiness.placed.items()}

    async def _rest(self) -> None:
        """Waits until all traffic is home and every backup armed again. So the next fault begins like the first."""
        deadline_s = asyncio.get_running_loop().time() + _RETURN_S
        while self._lab.bus.connected and asyncio.get_running_loop().time() < deadline_s:
            if not self._lab.readiness.missing() and self._in_force() == self._home:
                break
            await asyncio.sleep(_LOOK_S)
        await asyncio.sleep(_REST_S)

    async def _until(self, watch: Any, injected_ns: int, moment: str, patience_s: float) -> Verdict:
        deadline_s = asyncio.get_running_loop().time() + patience_s
        while True:
            await asyncio.sleep(_LOOK_S)
            seen = judge(self._witness.look(watch), injected_ns)
            if getattr(seen, moment) is not None or asyncio.get_running_loop().time() > deadline_s:
                return seen

    async def _all_home(self, rail: str) -> None:
        """Waits until the pulses to every service address of a rail come by that rail, as the witness sees them."""
        pairs = {
            pair for nic in self._nics if nic.endswith(rail) for pair in scope("drop", nic, self._lab.plan).pairs()
        }
        device = f"fo{self._lab.plan.rails.index(rail)}e"
        deadline_s = asyncio.get_running_loop().time() + _HOME_S
        while asyncio.get_running_loop().time() < deadline_s:
            await asyncio.sleep(1.0)
            watch = self._witness.arm(pairs)
            await asyncio.sleep(_BEFORE_S)
            if all(_came_by(pulses) == {device} for pulses in self._witness.disarm(watch).values()):
                break
        await asyncio.sleep(1.0)


def found_at_ns(lab: Lab, events: Sequence[Heard[Event]], own: Scope, injected_ns: int) -> int | None:
    """The decision time of the first event that finds a fault of these things, as lab time; None: nobody found it."""
    heard = [event for event in events if event.at_ns >= injected_ns and own.has_event(event.message)]
    return first_detected_ns(heard, lab.truth, lab.time)


def _since(at_ns: int | None, injected_ns: int) -> float | None:
    return None if at_ns is None else round((at_ns - injected_ns) * 1e-6, 2)


def _came_by(pulses: Pulses) -> set[str]:
    """The overlay devices of the pulses that arrived, without their entropies."""
    came = pulses.device[pulses.arrived_ns > 0]
    return {pulses.devices[index].rstrip("0123456789") for index in set(came.tolist())}


async def measure(armed: str, arguments: argparse.Namespace) -> tuple[list[Row], list[Fault], dict[str, Any]]:
    """All rows of one setting of `armed`, their faults, and the machine meanwhile."""
    lab = Lab(_scenario(armed, arguments), arguments.folder)
    lab.build()
    try:
        await lab.start()
        await lab.ready()
        collector = Collector(lab.time, lab.truth)
        await collector.follow(lab.bus)
        await asyncio.sleep(4.0)
        sampler = LatenessSampler(pids=lab.pids, speed=arguments.speed)
        with Witness.over(
            lab.nodes, {host: lab.fabric.host(host) for host in lab.plan.hosts}, lab.time, rate_hz=_RATE_HZ
        ) as witness:
            sampler.start()
            bench = Bench(lab, witness, collector, armed)
            rows: list[Row] = []
            faults: list[Fault] = []
            for name in _names(armed, arguments):
                taken = await _taken(bench, name, arguments.count)
                faults += taken
                rows.append(row_of(taken))
                sys.stderr.write(f"{rows[-1]}\n")
            sampler.stop()
        return rows, faults, msgspec.to_builtins(sampler.machine())
    finally:
        await lab.close()


def _scenario(armed: str, arguments: argparse.Namespace) -> Scenario:
    return Scenario(
        fabric=FabricSpec(hosts=arguments.hosts),
        workload=WorkloadSpec(kind="none"),
        services={**FRESH, "remediator.armed": armed},
    )


def _names(armed: str, arguments: argparse.Namespace) -> list[str]:
    """The rows that this setting can have. Without the bus only armed agents move anything."""
    return [name for name in arguments.rows if name != _NO_BUS or armed != "off"]


async def _taken(bench: Bench, name: str, count: int) -> list[Fault]:
    if name == _NO_BUS:
        return await bench.without_bus("carrier", count)
    return await bench.with_bus(name, count)


def row_of(faults: Sequence[Fault]) -> Row:
    """The row of some faults of one kind under one setting."""
    first, moved, found = faults[0], [each.moved_ms for each in faults], [each.found_ms for each in faults]
    return Row(
        fault=first.fault, armed=first.armed, bus=first.bus, n=len(faults),
        **_spread("", moved), **(_spread("found_", found) if first.bus else {}),
    )  # fmt: skip


def _spread(prefix: str, values: Sequence[float | None]) -> dict[str, Any]:
    known = sorted(math.inf if value is None else value for value in values)
    shares = {"p50_ms": 0.5, "p99_ms": 0.99, "max_ms": 1.0}
    return {f"{prefix}missed": known.count(math.inf)} | {
        f"{prefix}{name}": _percentile(known, share) for name, share in shares.items()
    }


def _percentile(known: Sequence[float], share: float) -> float | None:
    """Linear between two of these sorted values, as numpy's default; None if the later one is infinite."""
    below, beyond = divmod(share * (len(known) - 1), 1)
    low, high = known[int(below)], known[math.ceil(below + beyond)]
    return None if math.isinf(high) else round(low + (high - low) * beyond, 2)


def _progress(what: str, number: int, count: int) -> None:
    if sys.stderr.isatty() or number % 50 == 0 or number == count:
        sys.stderr.write(f"{what}: {number} of {count}\n")


def _line(*cells: object) -> str:
    """A line of the table: first what was found, then what was moved."""
    widths = (8, 7, 4, 4, 7, 8, 8, 8, 7, 8, 8, 8)
    return " ".join(f"{'-' if cell is None else cell:>{width}}" for cell, width in zip(cells, widths, strict=True))


def main() -> int:
    """Parses the command line, runs, prints a table."""
    parser = argparse.ArgumentParser(prog="bench.road", description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--count", type=int, default=200, help="faults per row (default: %(default)s)")
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--armed", choices=("off", "always"), help="one setting only")
    parser.add_argument("--rows", nargs="+", choices=_ROWS, default=_ROWS, help="(default: all)")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir(), "foliot-bench-road"))
    place.add_speed(parser)
    arguments = parser.parse_args()
    settings = (arguments.armed,) if arguments.armed else ("off", "always")
    if not place.enter(carries=_scenario(settings[0], arguments), speed=arguments.speed):
        return place.CANNOT
    document = Document("road", arguments, services=FRESH)
    rows: list[Row] = []
    faults: list[Fault] = []
    machines = {}
    for armed in settings:
        more, taken, machines[armed] = asyncio.run(measure(armed, arguments))
        rows += more
        faults += taken
    print(_line(
        "fault", "armed", "bus", "n", "unfound", "p50 ms", "p99 ms", "max ms", "unmoved", "p50 ms", "p99 ms", "max ms"
    ))  # fmt: skip
    for row in rows:
        found = row.found_missed, row.found_p50_ms, row.found_p99_ms, row.found_max_ms
        moved = row.missed, row.p50_ms, row.p99_ms, row.max_ms
        print(_line(row.fault, row.armed, "yes" if row.bus else "no", row.n, *found, *moved))
    print(f"resolution {1e3 / _RATE_HZ:g} ms; machine: {machines}")
    if arguments.json:
        document.write(
            arguments.json, rows, resolution_ms=1e3 / _RATE_HZ, under=machines, faults=msgspec.to_builtins(faults)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
