"""A training job that loses links, without Foliot and with it; then Foliot's peers on the same faults.

The job is real PyTorch: DistributedDataParallel over Gloo, four hosts, two rails of 200 Mb/s, 8 MB of gradients a step.
In each repetition it runs once without a fault, and then once for each variant, with the same seeds. Its losses are
measured against the run without a fault, and against a control whose NIC is down from the first step on (`account`).
The host and the rail in trouble change from repetition to repetition.

    make train && make bench NAME=failover ARGS="--json FILE"
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bench import place
from bench.arguments import add_settings
from bench.document import Document
from bench.failover import account
from bench.failover.report import CALM, Taken, ms, rows, series, table
from bench.failover.runs import Runner
from bench.failover.variants import CONTROL, MAIN, VARIANTS, Victim
from bench.studies.failover_peers import frr
from bench.studies.failover_peers import rows as peer_rows
from bench.studies.failover_peers.__main__ import MAKERS
from bench.studies.failover_peers.foliot import Foliot
from bench.studies.failover_peers.stage import VARIANTS as PEER_VARIANTS
from bench.studies.failover_peers.stage import Stage, in_turn
from foliot_lab.measure.wire_witness import Witness
from foliot_lab.scenario.promises import OF_PATHS
from foliot_lab.scenario.spec import GLOO_TIMEOUT_S, FabricSpec, Scenario, TrainSpec, WorkloadSpec
from foliot_lab.services.lab import Lab
from foliot_lab.workload.train.ranks import missing as missing_torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.failover.variants import Variant

_SHORT_S = 10.0
_SETTLED_S = 6.0
_PATIENCE_TIMES = 4.0
"""A job is called stalled after so many times the time of the run without a fault, and a minute."""
_PATIENCE_S = 60.0
_SERVICES: dict[str, bool | int | float | str | list[bool | int | float | str]] = {
    "remediator.armed": "always",
    # Damping and its end fit into a run with these; the defaults are 15 minutes and 5 s.
    "detector.half_life_s": 4.0,
    "remediator.probation_s": 3.0,
    "remediator.forget_s": 10.0,
    "remediator.moves_per_minute": 1_000_000,
}


async def foliot(arguments: argparse.Namespace, variants: Sequence[Variant], peers: list[peer_rows.Row]) -> list[Taken]:
    """All runs with Foliot, in one lab. Before them, without a job, Foliot and its peers on the same faults."""
    lab = Lab(_scenario(arguments), arguments.folder / "foliot")
    lab.build()
    taken = []
    try:
        await lab.start()
        await lab.ready()
        await asyncio.sleep(_SETTLED_S)
        with Witness.over(lab.nodes, {host: lab.fabric.host(host) for host in lab.plan.hosts}, lab.time) as witness:
            runner = Runner(lab, witness)
            await runner.listen()
            await _beside_peers(lab, witness, runner, arguments, peers)
            for rep in range(1, arguments.reps + 1):
                victim = _victim(lab, rep)
                steps = max(variant.steps for variant in variants)
                patience_s = _PATIENCE_S + _PATIENCE_TIMES * steps
                calm = await runner.run(TrainSpec(steps=steps), (), patience_s)
                taken.append(Taken(CALM, "foliot", rep, calm, steps))
                _tell(taken[-1])
                patience_s = _PATIENCE_S + _PATIENCE_TIMES * (account.total_s(calm.steps, steps) or 0.0)
                judge = [CONTROL] if any(variant.of_a_nic for variant in variants) else []
                for variant in [*judge, *variants]:
                    ran = await runner.run(TrainSpec(steps=variant.steps), variant.faults(victim), patience_s)
                    taken.append(Taken(variant.name, "foliot", rep, ran, variant.steps, variant.of_a_nic))
                    _tell(taken[-1])
    finally:
        await lab.close()
    return taken


async def nothing(arguments: argparse.Namespace, variants: Sequence[Variant]) -> list[Taken]:
    """The runs without Foliot, by the NICs' own addresses: with Gloo's own timeout, and with a short one."""
    lab = Lab(_scenario(arguments), arguments.folder / "none")
    lab.build()
    taken = []
    try:
        runner = Runner(lab, None)
        for rep in range(1, arguments.reps_without + 1):
            victim = _victim(lab, rep)
            steps = max(variant.steps for variant in variants)
            calm = await runner.run(TrainSpec(steps=steps), (), _PATIENCE_S + _PATIENCE_TIMES * steps)
            taken.append(Taken(CALM, "none", rep, calm, steps))
            _tell(taken[-1])
            patience_s = _PATIENCE_S + _PATIENCE_TIMES * (account.total_s(calm.steps, steps) or 0.0)
            for variant in variants:
                for tool, timeout_s in (("none", GLOO_TIMEOUT_S), (f"none, {_SHORT_S:g} s", _SHORT_S)):
                    spec = TrainSpec(steps=variant.steps, timeout_s=timeout_s)
                    # There is no bus here, so a cut of it has no effect.
                    faults = tuple(each for each in variant.faults(victim) if each.kind in OF_PATHS)
                    ran = await runner.run(spec, faults, patience_s)
                    taken.append(Taken(variant.name, tool, rep, ran, variant.steps))
                    _tell(taken[-1])
    finally:
        await lab.close()
    return taken


async def _beside_peers(
    lab: Lab, witness: Witness, runner: Runner, arguments: argparse.Namespace, found: list[peer_rows.Row]
) -> None:
    stage = Stage(lab.fabric, lab.scenario.fabric, lab.time, lab.folder / "peers", arguments.peers)
    stage.folder.mkdir(exist_ok=True)
    peers = [Foliot(stage, witness, runner.collector, runner.home), *(make(stage) for make in MAKERS.values())]

    def tell(row: peer_rows.Row) -> None:
        found.append(row)
        sys.stderr.write(f"{peer_rows.line(row)}\n")

    for rep in range(arguments.reps_peers):
        # In another order each time, so that changes of the machine's load affect all alike.
        await in_turn(peers[rep % len(peers) :] + peers[: rep % len(peers)], stage, [*PEER_VARIANTS], rep, tell)


def _scenario(arguments: argparse.Namespace) -> Scenario:
    return Scenario(
        fabric=FabricSpec(hosts=arguments.hosts, spines=2), workload=WorkloadSpec(kind="train"),
        services=_services(arguments),
    )  # fmt: skip


def _services(arguments: argparse.Namespace) -> dict[str, bool | int | float | str | list[bool | int | float | str]]:
    return {**_SERVICES, **dict(arguments.set)}


def _victim(lab: Lab, rep: int) -> Victim:
    """The victim of a repetition: each has another NIC and another link of the fabric."""
    hosts, rails, spec = lab.plan.hosts, lab.plan.rails, lab.scenario.fabric
    rail = rails[(rep + rep // len(hosts)) % len(rails)]
    return Victim(
        host=hosts[rep % len(hosts)], rail=rail, other=next(each for each in rails if each != rail),
        leaf=rep % spec.leaves, spine=rep // spec.leaves % spec.spines, leaves=spec.leaves,
    )  # fmt: skip


def _tell(taken: Taken) -> None:
    ran = taken.ran
    done = min(len(each) for each in ran.steps.values())
    seen = [(fault.id, ms(fault.injected_ns, fault.moved_ns), fault.restored_ns is not None) for fault in ran.faults]
    sys.stderr.write(
        f"{taken.rep} {taken.tool:<10} {taken.variant:<32} {done} steps, {account.total_s(ran.steps, done)} s, idle "
        f"{ran.idle_cpu:.0%}, {seen} {ran.failed}\n"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.failover", description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--reps", type=int, default=3, help="with Foliot (default: %(default)s)")
    parser.add_argument("--reps-without", type=int, default=1, help="with nothing of it (default: %(default)s)")
    parser.add_argument("--reps-peers", type=int, default=3, help="of the peers' faults (default: %(default)s)")
    parser.add_argument(
        "--peers",
        type=Path,
        default=Path("run/peers"),
        help="a folder that Debian's packages were unpacked into (default: %(default)s)",
    )
    parser.add_argument("--hosts", type=int, default=4)
    add_settings(parser, "probe.in_use_hz=100")
    names = [variant.name for variant in VARIANTS]
    parser.add_argument("--variants", nargs="+", choices=names, default=names)
    parser.add_argument("--variants-without", nargs="*", choices=names, default=[MAIN.name])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir(), "foliot-bench-failover"))
    return parser


def main() -> int:
    """Parses the command line, runs, prints a table."""
    arguments = _parser().parse_args()
    if not place.enter(missing_torch(), carries=_scenario(arguments)):
        return place.CANNOT
    programs = {"bfdd": frr.version(arguments.peers)}
    document = Document("failover", arguments, programs, services=_services(arguments))
    chosen = [variant for variant in VARIANTS if variant.name in arguments.variants]
    without = [variant for variant in VARIANTS if variant.name in arguments.variants_without]
    taken: list[Taken] = []
    peers: list[peer_rows.Row] = []
    if arguments.reps or arguments.reps_peers:
        taken += asyncio.run(foliot(arguments, chosen, peers))
    if arguments.reps_without and without:
        taken += asyncio.run(nothing(arguments, without))
    made = rows(taken)
    print(table(made))
    if peers:
        print(peer_rows.HEADING, *map(peer_rows.line, peers), sep="\n")
    if arguments.json:
        beside = [msgspec.to_builtins(row) for row in peers]
        first = [series(each) for each in taken if each.rep == 1]
        document.write(arguments.json, made, peers=beside, series=first)
    return 0


if __name__ == "__main__":
    sys.exit(main())
