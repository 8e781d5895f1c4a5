"""A bench of clocks in a simulated fabric, whose truth is known to the nanosecond.

Every NIC has a clock of its own. Probes wait in the queues of a leaf-spine at the level of packets, and stamps have a
NIC's noise. All of Foliot's own code runs as in a fleet, from the coded pairs to the published state.

Each row has two errors, both of the value used now, at any time until the next is published. `reference` is the
disagreement of a NIC with the reference. `pair` is the disagreement of two NICs about the same moment, as in the truth
test of Huygens. (NSDI '18: two NICs on one clock, mean 13.4 ns, p99 30.2 ns.)

    make bench NAME=clock-sim ARGS="--json FILE"
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import msgspec
import numpy as np

from bench.document import Document
from bench.independence import effective, outside_at_most
from foliot_lab.simulate.clocks.error_stats import errors
from foliot_lab.simulate.clocks.oscillators import Crystal, Oscillators
from foliot_lab.simulate.clocks.queueing import Fabric, Queues
from foliot_lab.simulate.clocks.streams import Fleet, Probing, Stamping, Traffic
from foliot_sync.core.synchroniser import Synchroniser

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from foliot_lab.simulate.clocks.error_stats import Errors
    from foliot_lab.simulate.clocks.streams import Sent
    from foliot_sync.settings import SyncSettings

_LATE_NS = 10_000_000
_SOLVED_NS = 50_000_000
"""The time after the last batch of a window at which it is solved."""
_HUYGENS = {"mean_ns": 13.4, "p99_ns": 30.2}


class Row(msgspec.Struct, kw_only=True):
    """One run. Errors are absolute."""

    bench: str = "clock-sim"
    tool: str = "foliot"
    topology: str
    load: float
    ways: str
    drift_ppb: float
    windows: int
    """Windows that were judged. In one window all clocks are in error together, so windows count, and not values."""
    windows_independent: float | None
    """The number of independent windows, as neighbours are alike: by the worst error of each as a share of its
    bound."""
    outside_at_most: float | None
    """The share of windows in which an error may still exceed its bound, with 95 % confidence. It is the rule of
    three over the independent windows, if no error exceeded the statistical bound."""
    settled: int
    """Windows before those judged."""
    of: str
    """`pair`: of two NICs; `reference`: of a NIC and the reference."""
    mean_ns: float
    p50_ns: float
    p99_ns: float
    max_ns: float
    packets_per_s: float
    """Packets that a NIC sends, forth and back."""
    within_bound: float
    within_hard_bound: float
    median_bound_ns: float
    seed: int


class Tool(NamedTuple):
    """The code that makes time of the stamps: Foliot, or Foliot with parts of it replaced."""

    name: str = "foliot"
    settings: SyncSettings | None = None
    replaced: Mapping[str, object] = {}
    """The replacements, by dotted name."""

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        """Puts this tool in force for the block."""
        with contextlib.ExitStack() as stack:
            for place, instead in self.replaced.items():
                stack.enter_context(mock.patch(place, instead))
            yield


class Judged(NamedTuple):
    """The results of one run."""

    row: Row
    wrong_ns: NDArray[np.float64]
    """Absolute errors, a row each window."""


class _Chain:
    """A tool at work, from the probes' stamps to the published states."""

    def __init__(self, tool: Tool, traffic: Traffic) -> None:
        self.tool = tool
        self.found: list[Errors] = []
        self._traffic, self._fleet, self._sync = traffic, Fleet(traffic), Synchroniser(tool.settings)

    def window(self, sent: Sent, *, counts: bool) -> None:
        """Processes a window, and judges the result if it counts."""
        window_ns = self._traffic.window_ns
        # The last of the nodes' windows ends a tenth of one after the first.
        said_ns = (sent.number + 1) * window_ns + window_ns // 10 + _SOLVED_NS
        with self.tool.in_force():
            for batch, at_ns in self._fleet.window(sent):
                self._sync.add(batch, at_ns + _LATE_NS)
            states = self._sync.solve(said_ns)
            self._fleet.told(states)
        if counts:
            self.found.append(errors(states, self._traffic.clocks, said_ns, window_ns))


def simulate(
    arguments: argparse.Namespace, nics: int, load: float, ways: str, seed: int, *, tools: Sequence[Tool] = (Tool(),)
) -> list[Judged]:
    """One run, in which all tools are given the same stamps."""
    random = np.random.default_rng(seed)
    crystal = Crystal(drift_ppb=arguments.drift_ppb, wander_ppb=arguments.wander_ppb, swing_ppb=arguments.swing_ppb)
    fabric = Fabric(
        load=load,
        one_way=ways == "one",
        link_gbps=arguments.link_gbps,
        burst_kb=arguments.burst_kb,
        uneven_m=arguments.uneven_m,
    )
    probing = Probing(neighbours=arguments.neighbours, entropies=arguments.entropies, rate_hz=arguments.rate_hz)
    stamping = Stamping(noise_ns=arguments.noise_ns, outlier_share=arguments.outlier_share)
    clocks, queues = Oscillators(nics, crystal, random), Queues(fabric, nics, random)
    traffic = Traffic(clocks, queues, probing, stamping, random)
    chains = [_Chain(tool, traffic) for tool in tools]
    for number in range(arguments.settle + arguments.windows):
        sent = traffic.window(number)
        for chain in chains:
            chain.window(sent, counts=number >= arguments.settle)
    pairs_per_s = probing.rate_hz * len(traffic.mesh.initiator) / nics * 2
    packets = pairs_per_s * (1 + 1 / probing.coded_every)
    order = random.permutation(nics)
    return [
        _judged(
            of,
            chain.found,
            order,
            tool=chain.tool.name,
            topology=f"leaf-spine, {nics} NICs",
            load=load,
            ways=ways,
            packets_per_s=packets,
            drift_ppb=crystal.drift_ppb,
            settled=arguments.settle,
            seed=seed,
        )
        for chain in chains
        for of in ("pair", "reference")
    ]


def _judged(of: str, found: list[Errors], order: NDArray[np.int64], **header: Any) -> Judged:
    said, bound, hard = (np.concatenate(each) for each in zip(*found, strict=True))
    if of == "pair":
        other = np.empty_like(order)
        other[order] = np.roll(order, 1)  # each another one, and none itself
        said, bound, hard = said - said[:, other], bound + bound[:, other], hard + hard[:, other]
    wrong = np.abs(said)
    middle, high, most = np.percentile(wrong, (50, 99, 100))
    independent = effective((wrong / bound).reshape(len(found), -1).max(axis=1))
    at_most = outside_at_most(independent) if (wrong <= bound).all() else None
    row = Row(
        of=of, windows=len(found), windows_independent=None if independent is None else round(independent, 1),
        outside_at_most=None if at_most is None else round(at_most, 4), mean_ns=round(float(wrong.mean()), 1),
        p50_ns=float(middle), p99_ns=round(float(high), 1),
        max_ns=float(most), within_bound=float((wrong <= bound).mean()),
        within_hard_bound=float((wrong <= hard).mean()),
        median_bound_ns=float(np.median(bound)), **header,
    )  # fmt: skip
    return Judged(row, wrong.reshape(len(found), -1))


def parser() -> argparse.ArgumentParser:
    """The parser of the simulation's options."""
    made = argparse.ArgumentParser(prog="bench.clock_sim", description=__doc__.split("\n", 1)[0] if __doc__ else None)
    made.add_argument("--json", type=Path, help="write the rows to this file")
    made.add_argument("--nics", nargs="+", type=int, default=[100])
    made.add_argument("--loads", nargs="+", type=float, default=[0.0, 0.4, 0.6, 0.8, 0.9], help="of every link")
    made.add_argument("--ways", nargs="+", choices=("both", "one"), default=["both"])
    made.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    made.add_argument("--windows", type=int, default=30, help="judged, of each run (default: %(default)s)")
    made.add_argument("--settle", type=int, default=30, help="before them (default: %(default)s)")
    probing, stamping, crystal, fabric = Probing(), Stamping(), Crystal(), Fabric()
    for name, default, what in (
        ("neighbours", probing.neighbours, "of each NIC"),
        ("entropies", probing.entropies, "paths between two neighbours"),
        ("rate_hz", probing.rate_hz, "coded pairs a second on each path"),
        ("noise_ns", stamping.noise_ns, "of a stamp, standard deviation"),
        ("outlier_share", stamping.outlier_share, f"of transmit stamps, wrong by up to {stamping.outlier_ns:g} ns"),
        ("drift_ppb", crystal.drift_ppb, "of clocks, at most"),
        ("wander_ppb", crystal.wander_ppb, "of their rate, per root of a second"),
        ("swing_ppb", crystal.swing_ppb, f"of their rate with the temperature, once in {crystal.swing_s:g} s"),
        ("link_gbps", fabric.link_gbps, "of every link"),
        ("burst_kb", fabric.burst_kb, "mean length of what comes at a time"),
        ("uneven_m", fabric.uneven_m, "standard deviation of cables' lengths"),
    ):  # fmt: skip
        flag = f"--{name.replace('_', '-')}"
        made.add_argument(flag, type=type(default), default=default, help=f"{what} (default: %(default)s)")
    return made


def main() -> int:
    """Parses the command line, runs, prints a table."""
    arguments = parser().parse_args()
    document = Document("clock-sim", arguments)
    rows: list[Row] = []
    print(
        f"{'NICs':>5} {'load':>5} {'ways':<5} {'seed':>4} {'of':<10} {'mean':>7} {'p50':>6} {'p99':>8} {'max':>8} "
        f"{'bound':>8} within {'cpu s/window':>13}"
    )
    for nics in arguments.nics:
        for ways in arguments.ways:
            for load in arguments.loads:
                for seed in arguments.seeds:
                    began_s = time.process_time()
                    more = [each.row for each in simulate(arguments, nics, load, ways, seed)]
                    cost_s = (time.process_time() - began_s) / (arguments.windows + arguments.settle)
                    rows += more
                    for row in more:
                        print(
                            f"{nics:>5} {load:>5.0%} {ways:<5} {seed:>4} {row.of:<10} {row.mean_ns:>7.1f} "
                            f"{row.p50_ns:>6.1f} {row.p99_ns:>8.1f}"
                            f" {row.max_ns:>8.0f} {row.median_bound_ns:>8.0f} {row.within_bound:.2%} "
                            f"{cost_s:>8.2f}", flush=True
                        )  # fmt: skip
    print(f"Huygens' truth test, as published: mean {_HUYGENS['mean_ns']} ns, p99 {_HUYGENS['p99_ns']} ns")
    if arguments.json:
        document.write(arguments.json, rows, huygens=_HUYGENS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
