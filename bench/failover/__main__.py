"""A training job that loses links: without a fault, with faults and nothing of Foliot, and with Foliot; then the peers on the same faults.

A real PyTorch job (DistributedDataParallel over Gloo, four hosts, two rails of 200 Mb/s, 8 MB of gradients a step) runs once without a fault in each repetition, and then once for each variant, with the same seeds.
What it lost is told against that run (`account`). The host and the rail in trouble change from repetition to repetition.

    make train && make bench NAME=failover ARGS="--json FILE"
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import structlog

from bench.document import write
from bench.failover import account
from bench.failover.account import FIRST, Row
from bench.failover.runs import Runner
from bench.failover.variants import MAIN, VARIANTS
from foliot_lab import kernel
from foliot_lab.lab import Lab
from foliot_lab.scenario import FabricSpec, Scenario, WorkloadSpec
from foliot_lab.train.ranks import missing as missing_torch
from foliot_lab.train.spec import GLOO_TIMEOUT_S, TrainSpec
from foliot_lab.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.failover.account import Steps
    from bench.failover.runs import Ran
    from bench.failover.variants import Variant

_SHORT_S = 10.0
_SETTLED_S = 6.0
_PATIENCE_TIMES = 4.0
"""Times as long as the run without a fault took, and a minute: after that a job is called stalled."""
_PATIENCE_S = 60.0
_SERVICES: dict[str, bool | int | float | str | list[bool | int | float | str]] = {
    "remediator.armed": "always",
    # So that damping and its end fit into a run; 15 minutes and 5 s by default.
    "detector.half_life_s": 4.0,
    "remediator.probation_s": 3.0,
    "remediator.forget_s": 10.0,
    "remediator.moves_per_minute": 1_000_000,
}
_NONE = "no failure"


class Taken(NamedTuple):
    """A run and what it was for."""

    variant: str
    tool: str
    rep: int
    ran: Ran
    asked: int


async def foliot(arguments: argparse.Namespace, variants: Sequence[Variant]) -> list[Taken]:
    """All runs with Foliot, in one lab."""
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
            for rep in range(1, arguments.reps + 1):
                host, rail, other = _victim(lab, rep)
                steps = max(variant.steps for variant in variants)
                patience_s = _PATIENCE_S + _PATIENCE_TIMES * steps
                calm = await runner.run(TrainSpec(steps=steps), (), patience_s)
                taken.append(Taken(_NONE, "foliot", rep, calm, steps))
                _tell(taken[-1])
                patience_s = _PATIENCE_S + _PATIENCE_TIMES * (account.total_s(calm.steps, steps) or 0.0)
                for variant in variants:
                    ran = await runner.run(
                        TrainSpec(steps=variant.steps), variant.faults(host, rail, other), patience_s
                    )
                    taken.append(Taken(variant.name, "foliot", rep, ran, variant.steps))
                    _tell(taken[-1])
    finally:
        await lab.close()
    return taken


async def nothing(arguments: argparse.Namespace, variants: Sequence[Variant]) -> list[Taken]:
    """The runs without anything of Foliot's, by the NICs' own addresses; with Gloo's own timeout, and with a short one."""
    lab = Lab(_scenario(arguments), arguments.folder / "none")
    lab.build()
    taken = []
    try:
        runner = Runner(lab, None)
        for rep in range(1, arguments.reps_without + 1):
            host, rail, other = _victim(lab, rep)
            steps = max(variant.steps for variant in variants)
            calm = await runner.run(TrainSpec(steps=steps), (), _PATIENCE_S + _PATIENCE_TIMES * steps)
            taken.append(Taken(_NONE, "none", rep, calm, steps))
            _tell(taken[-1])
            patience_s = _PATIENCE_S + _PATIENCE_TIMES * (account.total_s(calm.steps, steps) or 0.0)
            for variant in variants:
                for tool, timeout_s in (("none", GLOO_TIMEOUT_S), (f"none, {_SHORT_S:g} s", _SHORT_S)):
                    spec = TrainSpec(steps=variant.steps, timeout_s=timeout_s)
                    ran = await runner.run(spec, variant.faults(host, rail, other), patience_s)
                    taken.append(Taken(variant.name, tool, rep, ran, variant.steps))
                    _tell(taken[-1])
    finally:
        await lab.close()
    return taken


def _scenario(arguments: argparse.Namespace) -> Scenario:
    return Scenario(
        fabric=FabricSpec(hosts=arguments.hosts, spines=2), workload=WorkloadSpec(kind="train"), services=_SERVICES
    )


def _victim(lab: Lab, rep: int) -> tuple[str, str, str]:
    """Another NIC in each repetition: host, its rail in trouble, the other one."""
    hosts, rails = lab.plan.hosts, lab.plan.rails
    host, rail = hosts[rep % len(hosts)], rails[rep // len(hosts) % len(rails)]
    return host, rail, next(each for each in rails if each != rail)


def rows(taken: Sequence[Taken]) -> list[Row]:
    """Each run beside the run without a fault of its repetition."""
    calm = {(each.tool.partition(",")[0], each.rep): each.ran.steps for each in taken if each.variant == _NONE}
    return [_row(each, calm[each.tool.partition(",")[0], each.rep]) for each in taken]


def _row(taken: Taken, calm: Mapping[str, Steps]) -> Row:
    ran, is_calm = taken.ran, taken.variant == _NONE
    total_s, pair_s = account.total_s(ran.steps, taken.asked), account.total_s(calm, taken.asked)
    done = min(len(each) for each in ran.steps.values())
    taken_ms = account.durations_ms(ran.steps)[FIRST:]
    away = _away(ran)
    lost_s = total_s - pair_s if total_s is not None and pair_s is not None and not is_calm else None
    explained_s = account.explained_s(ran.steps, calm, away) if lost_s is not None else None
    first = ran.faults[0] if ran.faults else None
    ends_ns = [fault.restored_ns for fault in ran.faults]
    healed_ns = max((each.healed_ns or 0 for each in ran.injections), default=0)
    return Row(
        variant=taken.variant, tool=taken.tool, rep=taken.rep,
        detect_ms=_ms(first.injected_ns, first.detected_ns) if first else None,
        move_ms=_ms(first.injected_ns, first.moved_ns) if first else None,
        gap_ms=None if ran.gap_ms is None else round(ran.gap_ms, 1),
        restore_s=None if not ends_ns or None in ends_ns else round((max(end or 0 for end in ends_ns) - healed_ns) * 1e-9, 2),
        total_s=_round(total_s), steps=done, lost_steps=taken.asked - done,
        loss_equal=None if is_calm else account.same_losses(ran.steps, calm), failed=ran.failed,
        step_ms=round(float(np.median(taken_ms)), 1) if len(taken_ms) else None,
        worst_step_ms=round(float(taken_ms.max()), 1) if len(taken_ms) else None,
        dip_steps=account.dip_steps(ran.steps, away),
        lost_s=_round(lost_s), explained_s=_round(explained_s),
        excess_s=None if lost_s is None or explained_s is None else _round(lost_s - explained_s),
        moves=max((each.moves for each in ran.seen.values()), default=None),
        away_s=_round(sum(until - since for since, until in away) * 1e-9) if away else None,
    )  # fmt: skip


def _away(ran: Ran) -> list[tuple[int, int]]:
    """When capacity was reduced: from each move to the way back; where nothing moved, while the fault lasted."""
    end_ns = max(int(rows["ended_ns"][-1]) for rows in ran.steps.values() if len(rows))
    found = []
    for fault, injection in zip(ran.faults, ran.injections, strict=True):
        if fault.moved_ns is None:
            found.append((injection.injected_ns, injection.healed_ns or end_ns))
        else:
            found.append((fault.moved_ns, fault.restored_ns or end_ns))
    return account.merged(found)


def _ms(since_ns: int, at_ns: int | None) -> float | None:
    return None if at_ns is None else round((at_ns - since_ns) * 1e-6, 1)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _tell(taken: Taken) -> None:
    ran = taken.ran
    done = min(len(each) for each in ran.steps.values())
    seen = [(fault.id, _ms(fault.injected_ns, fault.moved_ns), fault.restored_ns is not None) for fault in ran.faults]
    sys.stderr.write(
        f"{taken.rep} {taken.tool:<10} {taken.variant:<32} {done} steps, {account.total_s(ran.steps, done)} s, idle {ran.idle_cpu:.0%}, {seen} {ran.failed}\n"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.failover", description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--reps", type=int, default=3, help="with Foliot (default: %(default)s)")
    parser.add_argument("--reps-without", type=int, default=1, help="with nothing of it (default: %(default)s)")
    parser.add_argument("--hosts", type=int, default=4)
    names = [variant.name for variant in VARIANTS]
    parser.add_argument("--variants", nargs="+", choices=names, default=names)
    parser.add_argument("--variants-without", nargs="*", choices=names, default=[MAIN.name])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir(), "foliot-bench-failover"))
    return parser


def main() -> int:
    """Parses the command line, runs, prints a table."""
    arguments = _parser().parse_args()
    if not kernel.is_privileged():
        kernel.shed_threads()
    missing = [*kernel.missing(), *filter(None, [missing_torch()])]
    if missing:
        sys.stderr.write("\n".join([*missing, ""]))
        return 77
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(40), logger_factory=structlog.PrintLoggerFactory(sys.stderr)
    )
    kernel.enter()
    chosen = [variant for variant in VARIANTS if variant.name in arguments.variants]
    without = [variant for variant in VARIANTS if variant.name in arguments.variants_without]
    taken: list[Taken] = []
    if arguments.reps:
        taken += asyncio.run(foliot(arguments, chosen))
    if arguments.reps_without and without:
        taken += asyncio.run(nothing(arguments, without))
    made = rows(taken)
    print(_table(made))
    if arguments.json:
        write(arguments.json, "failover", made, series=[_series(each) for each in taken if each.rep == 1])
    return 0


def _series(taken: Taken) -> dict[str, Any]:
    """When each step ended, in seconds since the first counted one began; and the faults."""
    rows = next(iter(taken.ran.steps.values()))
    zero_ns = int(rows["began_ns"][FIRST]) if len(rows) > FIRST else 0
    return {
        "variant": taken.variant,
        "tool": taken.tool,
        "ended_s": [round((int(end) - zero_ns) * 1e-9, 4) for end in rows["ended_ns"][FIRST:]],
        "loss": [float(loss) for loss in rows["loss"]],
        "faults": [
            [
                round((each.injected_ns - zero_ns) * 1e-9, 3),
                round(((each.healed_ns or each.injected_ns) - zero_ns) * 1e-9, 3),
            ]
            for each in taken.ran.injections
        ],
    }


def _table(made: Sequence[Row]) -> str:
    names = (
        "detect_ms",
        "move_ms",
        "gap_ms",
        "restore_s",
        "total_s",
        "lost_steps",
        "step_ms",
        "worst_step_ms",
        "lost_s",
        "explained_s",
        "excess_s",
    )
    lines = [f"{'variant':<32} {'tool':<11} {'n':>3}" + "".join(f" {name:>13}" for name in names) + "  losses equal"]
    for variant, tool in dict.fromkeys((row.variant, row.tool) for row in made):
        some = [msgspec.to_builtins(row) for row in made if (row.variant, row.tool) == (variant, tool)]
        cells = []
        for name in names:
            known = [row[name] for row in some if row[name] is not None]
            cells.append(f" {np.median(known):>13.4g}" if known else f" {'-':>13}")
        equal = {row["loss_equal"] for row in some}
        failed = sorted({row["failed"] for row in some} - {""})
        lines.append(f"{variant:<32} {tool:<11} {len(some):>3}{''.join(cells)}  {equal} {'; '.join(failed)}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
