"""Draws the pictures of docs/performance.md, from the newest files of bench/results.

make plots
"""

from __future__ import annotations

import json
import sys
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from matplotlib.axes import Axes

RESULTS, PICTURES = Path("bench/results"), Path("docs/pictures")
_COLOURS = {
    "foliot": "#1b6ca8",
    "chrony": "#c8553d",
    "ptp4l raw": "#c9c9c9",
    "ptp4l, median of 2 s": "#8a8a8a",
}
_STAGES = {
    "stamps: read": "#8ab6d6",
    "pairs: fitted": "#1b6ca8",
    "mesh: solved": "#c8553d",
    "states: told": "#8a8a8a",
    "states: kept": "#c9c9c9",
}
_BOUND = "#b8860b"


def clock_sim(rows: list[dict[str, Any]], document: dict[str, Any]) -> None:
    """Error and bound of a pair of NICs by the load of all links."""
    _, axes = plt.subplots(figsize=(6.4, 3.6))
    pairs = [row for row in rows if row["of"] == "pair" and row["ways"] == "both"]
    for key, label, colour in (
        ("median_bound_ns", "statistical bound, median", _BOUND),
        ("p99_ns", "p99 of the error", "#1b6ca8"),
        ("mean_ns", "mean of the error", "#8ab6d6"),
    ):
        points = [(row["load"] * 100, row[key]) for row in pairs]
        axes.plot(*zip(*points, strict=True), "o", color=colour, markersize=4)
        axes.plot(*zip(*_means(points), strict=True), color=colour, label=label)
    huygens = document["huygens"]
    for key, style in (("p99_ns", "--"), ("mean_ns", ":")):
        word = key.removesuffix("_ns")
        axes.axhline(huygens[key], color="#555555", linestyle=style, linewidth=1, label=f"Huygens' truth test, {word}")
    _finish(axes, "load of every link, %", "ns")


def clock_peers(rows: list[dict[str, Any]], document: dict[str, Any]) -> None:  # noqa: ARG001 - as the others
    """The p99 of each tool by load, a panel for each topology and way."""
    steady = [row for row in rows if row["p99_ns"] is not None and not row["drift_ppb"]]
    panels = [(place, ways) for place in ("path", "mesh") for ways in ("one", "both")]
    _, grid = plt.subplots(1, len(panels), figsize=(11, 3.4), sharey=True)
    for axes, (place, ways) in zip(grid, panels, strict=True):
        # Without load there is only one way.
        some = [row for row in steady if row["topology"].startswith(place) and row["ways"] in {ways, "none"}]
        for tool, colour in _COLOURS.items():
            points: dict[float, float] = {}
            # chrony has several configurations: the best for each load.
            for row in (row for row in some if row["tool"].startswith(tool)):
                load = row["load"] * 100
                points[load] = min(row["p99_ns"], points.get(load, row["p99_ns"]))
            axes.plot(*zip(*sorted(points.items()), strict=True), "o-", color=colour, markersize=4, label=tool)
        bound = sorted((row["load"] * 100, row["median_bound_ns"]) for row in some if row["tool"] == "foliot")
        axes.plot(*zip(*bound, strict=True), "--", color=_BOUND, linewidth=1, label="foliot's bound, median")
        axes.set_title(f"{place}, load {'both ways' if ways == 'both' else 'one way'}", fontsize=9)
        _finish(axes, "load of the bottleneck, %", "p99 of the error, ns" if axes is grid[0] else "")
        axes.get_legend().remove()
    grid[-1].legend(fontsize=7, frameon=False, loc=(0.36, 0.36))


def clock_scale(rows: list[dict[str, Any]], document: dict[str, Any]) -> None:  # noqa: ARG001 - as the others
    """CPU seconds of each stage by the number of clocks."""
    _, axes = plt.subplots(figsize=(6.4, 3.6))
    for stage, colour in _STAGES.items():
        points = sorted((row["nics"], row["cpu_s_per_window"]) for row in rows if row["stage"] == stage)
        axes.plot(*zip(*points, strict=True), "o-", color=colour, markersize=4, label=stage)
    axes.set_xscale("log")
    _finish(axes, "clocks, ten neighbours each", "CPU s per window of 2 s")


def failover(rows: list[dict[str, Any]], document: dict[str, Any]) -> None:  # noqa: ARG001 - as the others
    """Steps a second of the job: without a fault, with a dead link and nothing of Foliot, and with Foliot."""
    series = {(each["variant"], each["tool"]): each for each in document["series"]}
    hit = next(variant for variant, tool in series if tool == "foliot" and variant != "no failure")
    chosen = [
        ("no failure", "foliot", "no failure, Foliot", "#8a8a8a"),
        (hit, "none", f"{hit}, nothing of Foliot", "#c8553d"),
        (hit, "foliot", f"{hit}, Foliot", "#1b6ca8"),
    ]
    _, axes = plt.subplots(figsize=(8.4, 3.4))
    for since_s, until_s in series[hit, "foliot"]["faults"]:
        axes.axvspan(since_s, until_s, color="#f0e6d2", linewidth=0, label="the link is dead")
    for variant, tool, label, colour in chosen:
        if (variant, tool) in series:
            axes.plot(*_pace(series[variant, tool]["ended_s"]), color=colour, label=label, linewidth=1.3)
    axes.set_ylim(bottom=0)
    _finish(axes, "seconds since the job's third step", "steps a second", scale="linear")
    axes.legend(fontsize=8, frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4)


def _pace(ended_s: list[float]) -> tuple[list[float], list[float]]:
    """One over the length of each step, as a staircase over time."""
    times, paces = [], []
    for began, ended in pairwise([0.0, *ended_s]):
        times += [began, ended]
        paces += [1 / (ended - began)] * 2
    return times, paces


def _means(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    found = []
    for x, some in groupby(sorted(points), key=lambda point: point[0]):
        values = [y for _, y in some]
        found.append((x, sum(values) / len(values)))
    return found


def _finish(axes: Axes, x: str, y: str, scale: str = "log") -> None:
    axes.set_yscale(scale)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(visible=True, which="major", color="#e5e5e5")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)


_PICTURES: dict[str, Callable[[list[dict[str, Any]], dict[str, Any]], None]] = {
    "clock-sim": clock_sim,
    "clock-peers": clock_peers,
    "clock-scale": clock_scale,
    "failover": failover,
}


def main() -> int:
    """Draws a picture for each bench with figures."""
    mpl.use("Agg")
    for name, draw in _PICTURES.items():
        files = sorted(RESULTS.glob(f"{name}-[0-9]*.json"))
        if not files:
            continue
        document = json.loads(files[-1].read_text())
        draw(document["rows"], document)
        # Without the version of the drawing program, so that the same figures give the same file.
        plt.savefig(PICTURES / f"{name}.png", dpi=150, bbox_inches="tight", metadata={"Software": None})
        plt.close()
        print(f"{PICTURES / name}.png from {files[-1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
