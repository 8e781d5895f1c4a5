"""The report on the failover runs: a row of each, their table, and the ends of the steps, for the picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from bench.failover import account
from bench.failover.account import FIRST, Row
from bench.failover.variants import CONTROL
from foliot_lab.scenario.promises import OF_PATHS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.failover.account import Steps
    from bench.failover.runs import Ran
    from foliot_lab.faults.injection import Injection
    from foliot_lab.report.report import FaultReport

CALM = "no failure"
_TOGETHER_NS = 1_000_000_000
_COLUMNS = (
    "detect_ms", "move_ms", "gap_ms", "restore_s", "total_s", "lost_steps", "step_ms", "worst_step_ms", "lost_s",
    "explained_s", "excess_s",
)  # fmt: skip


class Taken(NamedTuple):
    """A run and its purpose."""

    variant: str
    tool: str
    rep: int
    ran: Ran
    asked: int
    of_a_nic: bool = False
    """Whether it takes all of a NIC away, as the variant has it."""


def rows(taken: Sequence[Taken]) -> list[Row]:
    """Each run compared with the run without a fault of its repetition."""
    calm = {(each.tool.partition(",")[0], each.rep): each.ran.steps for each in taken if each.variant == CALM}
    control = {(each.tool, each.rep): each.ran.steps for each in taken if each.variant == CONTROL.name}
    return [
        _row(each, calm[each.tool.partition(",")[0], each.rep], control.get((each.tool, each.rep))) for each in taken
    ]


def _detected_ns(first: FaultReport, faults: Sequence[FaultReport]) -> int | None:
    """The first event's time among the faults that came together: an event may be attributed to any of them."""
    told = [each.detected_ns for each in faults if each.injected_ns - first.injected_ns < _TOGETHER_NS]
    return min((each for each in told if each is not None), default=None)


def _row(taken: Taken, calm: Mapping[str, Steps], control: Mapping[str, Steps] | None) -> Row:
    ran, is_calm = taken.ran, taken.variant == CALM
    # The others are compared with the control, so nothing of it is explained.
    judges = control if taken.of_a_nic else None
    total_s, pair_s = account.total_s(ran.steps, taken.asked), account.total_s(calm, taken.asked)
    done = min(len(each) for each in ran.steps.values())
    taken_ms = account.durations_ms(ran.steps)[FIRST:]
    away = _away(ran)
    lost_s = total_s - pair_s if total_s is not None and pair_s is not None and not is_calm else None
    of_links = [fault for fault, _ in _of_links(ran)]
    explained_s, explained_by = None, ""
    if lost_s is not None and taken.variant != CONTROL.name:
        # If nothing was moved, nothing can explain the rest.
        moved = any(fault.moved_ns is not None for fault in of_links)
        explained_s = account.explained_s(ran.steps, calm, away, judges) if moved else 0.0
        if moved:
            explained_by = "own" if judges is None else "control"
    first = of_links[0] if of_links else None
    ends_ns = [fault.restored_ns for fault in of_links]
    healed_ns = max((each.healed_ns or 0 for each in ran.injections), default=0)
    return Row(
        variant=taken.variant, tool=taken.tool, rep=taken.rep,
        detect_ms=ms(first.injected_ns, _detected_ns(first, of_links)) if first else None,
        move_ms=ms(first.injected_ns, first.moved_ns) if first else None,
        gap_ms=None if ran.gap_ms is None else round(ran.gap_ms, 1),
        restore_s=None
        if not healed_ns or not ends_ns or None in ends_ns
        else round((max(end or 0 for end in ends_ns) - healed_ns) * 1e-9, 2),
        total_s=_round(total_s), steps=done, lost_steps=taken.asked - done,
        loss_equal=None if is_calm else account.same_losses(ran.steps, calm), failed=ran.failed,
        step_ms=round(float(np.median(taken_ms)), 1) if len(taken_ms) else None,
        worst_step_ms=round(float(taken_ms.max()), 1) if len(taken_ms) else None,
        dip_steps=account.dip_steps(ran.steps, away),
        lost_s=_round(lost_s), explained_s=_round(explained_s), explained_by=explained_by,
        excess_s=None if lost_s is None or explained_s is None else _round(lost_s - explained_s),
        moves=max((each.moves for each in ran.seen.values()), default=None),
        idle_cpu=round(ran.idle_cpu, 3),
        away_s=_round(sum(until - since for since, until in away) * 1e-9) if away else None,
    )  # fmt: skip


def _of_links(ran: Ran) -> list[tuple[FaultReport, Injection]]:
    """The faults that take links from the job. A bus that is away takes nothing from it."""
    return [(fault, done) for fault, done in zip(ran.faults, ran.injections, strict=True) if done.kind in OF_PATHS]


def _away(ran: Ran) -> list[tuple[int, int]]:
    """The times of reduced capacity: from each move to the way back. If nothing moved, while the fault lasted."""
    end_ns = max(int(rows["ended_ns"][-1]) for rows in ran.steps.values() if len(rows))
    found = []
    for fault, injection in _of_links(ran):
        if fault.moved_ns is None:
            found.append((injection.injected_ns, max(injection.healed_ns or end_ns, injection.injected_ns)))
        else:
            found.append((fault.moved_ns, fault.restored_ns or end_ns))
    return account.merged(found)


def ms(since_ns: int, at_ns: int | None) -> float | None:
    """A moment in the form of a row."""
    return None if at_ns is None else round((at_ns - since_ns) * 1e-6, 1)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def series(taken: Taken) -> dict[str, Any]:
    """The end of each step, in seconds since the first counted one began; and the faults."""
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


def table(made: Sequence[Row]) -> str:
    """Medians of each variant and tool."""
    lines = [f"{'variant':<32} {'tool':<11} {'n':>3}" + "".join(f" {name:>13}" for name in _COLUMNS) + "  losses equal"]
    for variant, tool in dict.fromkeys((row.variant, row.tool) for row in made):
        some = [msgspec.to_builtins(row) for row in made if (row.variant, row.tool) == (variant, tool)]
        cells = []
        for name in _COLUMNS:
            known = [row[name] for row in some if row[name] is not None]
            cells.append(f" {np.median(known):>13.4g}" if known else f" {'-':>13}")
        equal = {row["loss_equal"] for row in some}
        failed = sorted({row["failed"] for row in some} - {""})
        lines.append(f"{variant:<32} {tool:<11} {len(some):>3}{''.join(cells)}  {equal} {'; '.join(failed)}")
    return "\n".join(lines)
