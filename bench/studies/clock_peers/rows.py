"""The report of the clock-peers bench: a row for each tool and run, their table, and their distances from the goals."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from bench.independence import effective, outside_at_most

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.studies.clock_peers.judged import Judged

FOLIOT, CHRONY, PTP, PTP_LOW = "foliot", "chrony", "ptp4l raw", "ptp4l, median of 2 s"
"""The tools. Each configuration of chrony is one, see `of_chrony`."""
_GOAL_LOAD = 0.6
_CHRONY_SHARE, _UNBIASED_SHARE, _MESH_NS, _DRIFT_TIMES, _DRIFT_PPB = 0.2, 1 / 3, 20.0, 2.0, 30_000.0
_BOUND_TIMES = 4.0
"""The statistical bound is at most this many times the p99."""


class Run(NamedTuple):
    """The conditions of a run."""

    topology: str
    load: float
    """Load of the bottleneck, as asked for."""
    ways: str
    drift_ppb: float


class Row(msgspec.Struct, kw_only=True):
    """A tool in a run. Errors are absolute; null: the tool does not state it."""

    bench: str = "clock-peers"
    tool: str
    topology: str
    load: float
    ways: str
    drift_ppb: float
    windows: int
    """Windows of 2 s with any statement. Statements within one window rest on much the same packets, so only windows
    are independent."""
    silent_windows: int
    """Windows in which some host had no statement that it may believe, for some of the time."""
    p50_ns: float | None
    p99_ns: float | None
    max_ns: float | None
    bias_ns: float | None
    """The mean error with its sign. It is the tool's constant error, such as that of asymmetric paths."""
    p99_about_bias_ns: float | None
    """The p99 of the errors without the bias: the distance of a tool from itself."""
    packets_per_s: float
    """Packets of a pair of hosts, both ways, as counted on the wire."""
    within_bound: float | None
    within_hard_bound: float | None
    median_bound_ns: float | None
    windows_independent: float | None
    """The number of independent windows, as neighbours are alike: by the worst error of each as a share of its
    bound."""
    uncovered_at_most: float | None
    """The share of windows in which an error may still exceed its bound, with 95 % confidence. It is the rule of
    three over the independent windows, if no error exceeded its bound."""
    carried: tuple[float, ...]
    """The share of the bottleneck's rate that it really carried each way, all in all."""
    idle_cpu: float
    """Idle share of this machine during the run. Without spare processors, the clocks get worse."""
    stolen_cpu: float = 0.0
    """Share of the machine that the hypervisor took."""


def of_chrony(configuration: str) -> str:
    """The name of chrony as a tool in this configuration."""
    return f"{CHRONY}, {configuration}"


def row(
    tool: str,
    run: Run,
    judged: Judged,
    *,
    packets_per_s: float,
    carried: Sequence[float],
    idle_cpu: float,
    stolen_cpu: float = 0.0,
) -> Row:
    """A row from the judged statements."""
    wrong = np.abs(judged.error_ns)
    middle, high, most = (
        (round(float(each), 1) for each in np.percentile(wrong, (50, 99, 100))) if len(wrong) else (None,) * 3
    )
    bias = float(judged.error_ns.mean()) if len(wrong) else 0.0
    spread = float(np.percentile(np.abs(judged.error_ns - bias), 99)) if len(wrong) else 0.0
    bounded = len(judged.bound_ns) > 0
    independent = effective(judged.nearest)
    at_most = outside_at_most(independent) if bounded and (wrong <= judged.bound_ns).all() else None
    return Row(
        tool=tool, **run._asdict(), windows=judged.windows, silent_windows=judged.silent, p50_ns=middle, p99_ns=high,
        max_ns=most,
        bias_ns=round(bias, 1) if len(wrong) else None, p99_about_bias_ns=round(spread, 1) if len(wrong) else None,
        packets_per_s=round(packets_per_s, 1),
        within_bound=float((wrong <= judged.bound_ns).mean()) if bounded else None,
        within_hard_bound=float((wrong <= judged.hard_bound_ns).mean()) if bounded else None,
        median_bound_ns=float(np.median(judged.bound_ns)) if bounded else None,
        windows_independent=None if independent is None else round(independent, 1),
        uncovered_at_most=None if at_most is None else round(at_most, 4),
        carried=tuple(round(each, 3) for each in carried), idle_cpu=round(idle_cpu, 3), stolen_cpu=round(stolen_cpu, 3),
    )  # fmt: skip


HEADING = (
    f"{'topology':<9} {'load':>5} {'ways':<5} {'drift':>7} {'tool':<21} {'win':>4} {'silent':>6} {'p50 ns':>10} "
    f"{'p99 ns':>11} {'max ns':>11}"
    f" {'bias ns':>9} {'p99 about':>10} {'pkt/s':>6} {'bound ns':>9} {'within':>8} {'hard':>8} {'idle cpu':>8}"
)


def line(row: Row) -> str:
    """A row of the table that is printed."""
    topology, drift = row.topology.partition(":")[0], f"{row.drift_ppb / 1e3:g} ppm"
    covered = "" if row.uncovered_at_most is None else f" (outside: at most {row.uncovered_at_most:.1%} of windows)"
    return (
        f"{topology:<9} {row.load:>5.0%} {row.ways:<5} {drift:>7} {row.tool:<21} {row.windows:>4} "
        f"{row.silent_windows:>6}"
        f" {_number(row.p50_ns, 10)} {_number(row.p99_ns, 11)} {_number(row.max_ns, 11)} {_number(row.bias_ns, 9)} "
        f"{_number(row.p99_about_bias_ns, 10)} {row.packets_per_s:>6.0f}"
        f" {_number(row.median_bound_ns, 9)} {_share(row.within_bound)} {_share(row.within_hard_bound)} "
        f"{row.idle_cpu:>8.0%}{covered}"
    )


def _number(value: float | None, width: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:>{width},.0f}"


def _share(value: float | None) -> str:
    return f"{'-':>8}" if value is None else f"{value:>8.2%}"


class Best(msgspec.Struct, kw_only=True):
    """For a run, the configuration of chrony that did best."""

    topology: str
    load: float
    ways: str
    drift_ppb: float
    tool: str
    p99_ns: float
    windows: int


def best(rows: Sequence[Row]) -> list[Best]:
    """For each run, chrony's configuration with the least p99 among those that `_spoke`."""
    found = []
    for run in dict.fromkeys(map(_run, rows)):
        found += [
            Best(**run._asdict(), tool=row.tool, p99_ns=row.p99_ns or 0.0, windows=row.windows)
            for row in sorted(_spoke(rows, run), key=lambda each: each.p99_ns or 0.0)[:1]
        ]
    return found


def _spoke(rows: Sequence[Row], run: Run) -> list[Row]:
    """Chrony's configurations in a run with statements in half of the windows in which any tool had some.

    If there is none, all with statements.
    """
    here = [row for row in rows if _run(row) == run]
    spoke = [row for row in here if row.tool.startswith(CHRONY) and row.p99_ns is not None]
    most = max(row.windows for row in here)
    return [row for row in spoke if row.windows >= most / 2] or spoke


def _run(row: Row) -> Run:
    return Run(row.topology, row.load, row.ways, row.drift_ppb)


class Goal(msgspec.Struct, kw_only=True):
    """A goal beside the measurement."""

    what: str
    topology: str
    load: float
    ways: str
    drift_ppb: float
    wanted_ns: float
    """The most that the figure may be."""
    measured_ns: float
    met: bool


def goals(rows: Sequence[Row]) -> list[Goal]:
    """The goals that these rows speak about. All but that of the bound are of the p99, at 60 % load."""
    found = []
    for ours in rows:
        if ours.tool != FOLIOT or ours.p99_ns is None:
            continue
        if ours.median_bound_ns is not None:
            what = "statistical bound at most four times the p99"
            found.append(_goal(what, ours, ours.p99_ns * _BOUND_TIMES, ours.median_bound_ns))
        if ours.load != _GOAL_LOAD:
            continue
        if ours.drift_ppb == _DRIFT_PPB:
            steady = _steady_p99(rows, ours)
            if steady is not None:
                found.append(_goal("with 30 ppm injected, at most twice that without", ours, steady * _DRIFT_TIMES))
        elif not ours.drift_ppb:
            found += _beside(_spoke(rows, _run(ours)), ours)
            if ours.topology.startswith("mesh"):
                found.append(_goal("at most 20 ns in the mesh", ours, _MESH_NS))
    return found


def _beside(chrony: Sequence[Row], ours: Row) -> list[Goal]:
    """The goals beside chrony's best configuration as it is, and without its bias. Foliot keeps its own in both."""
    if not chrony:
        return []
    least_ns = min(row.p99_ns or 0.0 for row in chrony)
    about_bias_ns = min(row.p99_about_bias_ns or 0.0 for row in chrony)
    fifth = "at most a fifth of that of chrony's best configuration"
    third = "at most a third of that of chrony's best configuration without its bias"
    return [_goal(fifth, ours, least_ns * _CHRONY_SHARE), _goal(third, ours, about_bias_ns * _UNBIASED_SHARE)]


def _steady_p99(rows: Sequence[Row], like: Row) -> float | None:
    """The p99 of Foliot without drift, else under the conditions of a row."""
    wanted = (FOLIOT, like.topology, like.load, like.ways, 0.0)
    same = (row for row in rows if (row.tool, row.topology, row.load, row.ways, row.drift_ppb) == wanted)
    return next((row.p99_ns for row in same), None)


def _goal(what: str, ours: Row, wanted_ns: float, measured_ns: float | None = None) -> Goal:
    """A goal of the p99, unless another figure is given."""
    measured_ns = measured_ns if measured_ns is not None else ours.p99_ns
    assert measured_ns is not None
    met = measured_ns <= wanted_ns
    return Goal(what=what, **_run(ours)._asdict(), wanted_ns=round(wanted_ns, 1), measured_ns=measured_ns, met=met)
