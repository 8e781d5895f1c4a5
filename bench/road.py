"""The time of a recovery: from a lost carrier, or silence, until both directions of every pair flow again on the wire.

Every NIC of the fabric in turn is cut, or made to drop everything silently. A row has at least 200 faults, with fresh
damping state. The lab's witness sends pulses between service addresses and reports when they flow. Its own resolution
and the machine's scheduler lateness stand beside.

    make bench NAME=road ARGS="--json FILE"
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from bench import place
from bench.document import Document
from bench.fresh import FRESH
from foliot_lab.faults.actions import Action, prepare
from foliot_lab.measure.host_latency import LatenessSampler
from foliot_lab.measure.outages import judge
from foliot_lab.measure.wire_witness import Witness
from foliot_lab.report.blast_radius import scope
from foliot_lab.scenario.spec import FabricSpec, FaultSpec, Scenario, WorkloadSpec
from foliot_lab.services.lab import Lab

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_lab.measure.outages import Pulses, Verdict
    from foliot_lab.scenario.spec import FaultKind

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
    """One kind of fault under one setting."""

    fault: str
    armed: str
    bus: bool
    n: int
    missed: int
    p50_ms: float
    p99_ms: float
    max_ms: float


class Bench:
    """A lab, a witness, and the faults of one setting."""

    def __init__(self, lab: Lab, witness: Witness) -> None:
        self._lab = lab
        self._witness = witness
        self._nics = [f"{host}.{rail}" for rail in lab.plan.rails for host in lab.plan.hosts]
        self._home = self._in_force()

    async def with_bus(self, kind: FaultKind, count: int) -> list[float | None]:
        """Cuts one NIC after the other; each is moved and back before the next."""
        taken: list[float | None] = []
        for number in range(count):
            nic = self._nics[number % len(self._nics)]
            deed = self._deed(kind, nic)
            taken.append(await self._once(deed, kind, nic, returns=True))
            _progress(kind, number + 1, count)
        return taken

    async def without_bus(self, kind: FaultKind, count: int) -> list[float | None]:
        """Cuts NICs with the bus cut.

        Nothing restores then, so each spell cuts the first rail's NICs of one host after the other.

        It cuts half of the hosts: traffic between two moved hosts has nowhere to move.
        """
        taken: list[float | None] = []
        rail = self._lab.plan.rails[0]
        hosts = self._lab.plan.hosts
        while len(taken) < count:
            self._lab.world.cut_bus()
            await asyncio.sleep(_REST_S)
            for host in hosts[: min(len(hosts) // 2, count - len(taken))]:
                nic = f"{host}.{rail}"
                taken.append(await self._once(self._deed(kind, nic), kind, nic, returns=False))
                _progress(f"{kind}, no bus", len(taken), count)
            self._lab.world.mend_bus()
            await self._all_home(rail)
        return taken

    def _deed(self, kind: FaultKind, nic: str) -> Action:
        return prepare(
            FaultSpec(at_s=0.0, kind=kind, where=nic), self._lab.scenario.fabric, self._lab.fabric, self._lab.world
        )

    async def _once(self, deed: Action, kind: FaultKind, nic: str, *, returns: bool) -> float | None:
        watch = self._witness.arm(scope(kind, nic, self._lab.plan).pairs())
        await asyncio.sleep(_BEFORE_S)
        injected_ns = self._lab.time.now_ns()
        deed.inject()
        try:
            seen = await self._until(watch, injected_ns, "moved_ns", _MOVE_S)
        finally:
            deed.heal()
        if returns and seen.moved_ns is not None:
            await self._until(watch, injected_ns, "restored_ns", _RETURN_S)
        self._witness.disarm(watch)
        await self._rest()
        return None if seen.moved_ns is None else (seen.moved_ns - injected_ns) * 1e-6

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


def _came_by(pulses: Pulses) -> set[str]:
    """The overlay devices of the pulses that arrived, without their entropies."""
    came = pulses.device[pulses.arrived_ns > 0]
    return {pulses.devices[index].rstrip("0123456789") for index in set(came.tolist())}


async def measure(armed: str, arguments: argparse.Namespace) -> tuple[list[Row], dict[str, Any]]:
    """All rows of one setting of `armed`."""
    lab = Lab(_scenario(armed, arguments), arguments.folder)
    lab.build()
    try:
        await lab.start()
        await lab.ready()
        await asyncio.sleep(4.0)
        sampler = LatenessSampler(pids=lab.pids, speed=arguments.speed)
        with Witness.over(
            lab.nodes, {host: lab.fabric.host(host) for host in lab.plan.hosts}, lab.time, rate_hz=_RATE_HZ
        ) as witness:
            sampler.start()
            bench = Bench(lab, witness)
            rows = []
            for name in _names(armed, arguments):
                rows.append(_row(name, armed, await _taken(bench, name, arguments.count)))
                sys.stderr.write(f"{rows[-1]}\n")
            sampler.stop()
        return rows, msgspec.to_builtins(sampler.machine())
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


async def _taken(bench: Bench, name: str, count: int) -> list[float | None]:
    if name == _NO_BUS:
        return await bench.without_bus("link-down", count)
    return await bench.with_bus(_KINDS[name], count)


def _row(name: str, armed: str, taken: Iterable[float | None]) -> Row:
    all_of_them = list(taken)
    known = np.array([value for value in all_of_them if value is not None] or [np.nan])
    middle, high = np.percentile(known, (50, 99))
    return Row(
        fault=name.removesuffix(_NO_BUS_SUFFIX), armed=armed, bus=name != _NO_BUS, n=len(all_of_them), missed=sum(value is None for value in all_of_them),
        p50_ms=round(float(middle), 2), p99_ms=round(float(high), 2), max_ms=round(float(known.max()), 2),
    )  # fmt: skip


def _progress(what: str, number: int, count: int) -> None:
    if sys.stderr.isatty() or number % 50 == 0 or number == count:
        sys.stderr.write(f"{what}: {number} of {count}\n")


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
    machines = {}
    for armed in settings:
        more, machines[armed] = asyncio.run(measure(armed, arguments))
        rows += more
    print(f"{'fault':<8} {'armed':<7} {'bus':<4} {'n':>4} {'missed':>6} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8}")
    for row in rows:
        bus = "yes" if row.bus else "no"
        print(
            f"{row.fault:<8} {row.armed:<7} {bus:<4} {row.n:>4} {row.missed:>6} {row.p50_ms:>8} {row.p99_ms:>8} {row.max_ms:>8}"
        )
    print(f"resolution {1e3 / _RATE_HZ:g} ms; machine: {machines}")
    if arguments.json:
        document.write(arguments.json, rows, resolution_ms=1e3 / _RATE_HZ, under=machines)
    return 0


if __name__ == "__main__":
    sys.exit(main())
