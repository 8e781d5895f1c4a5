"""Clocks in a simulated fabric, whose truth is known to the nanosecond.

Every NIC has a clock of its own, probes wait in the queues of a leaf-spine at the level of packets, stamps have a NIC's noise, and all of Foliot's own code from the
coded pairs to the published state runs as it does in a fleet.

Two figures a row. `pair`: by how much two NICs disagree about the same moment, as in the truth test of Huygens (NSDI '18: two NICs on one clock, mean 13.4 ns, p99 30.2 ns).
`reference`: by how much a NIC disagrees with the reference. Both of the value used now, at any time until the next is published.

    make bench NAME=clock-sim ARGS="--json FILE"
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from bench.document import write
from foliot_lab.synthetic.fabric import Fabric, Queues
from foliot_lab.synthetic.judged import errors
from foliot_lab.synthetic.oscillators import Crystal, Oscillators
from foliot_lab.synthetic.streams import Fleet, Probing, Stamping, expected_tilt
from foliot_sync.synchroniser import Synchroniser

if TYPE_CHECKING:
    from foliot_lab.synthetic.judged import Errors

_LATE_NS = 10_000_000
_SOLVED_NS = 50_000_000
"""After the last batch of a window."""
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
    """That were judged: in one, all clocks are in error together, so that only windows are independent."""
    of: str
    """`pair`: of two NICs; `reference`: of a NIC and the reference."""
    mean_ns: float
    p50_ns: float
    p99_ns: float
    max_ns: float
    packets_per_s: float
    """Sent by a NIC, forth and back."""
    within_bound: float
    within_hard_bound: float
    median_bound_ns: float
    seed: int


def simulate(arguments: argparse.Namespace, nics: int, load: float, ways: str, seed: int) -> list[Row]:
    """The rows of one run."""
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
    fleet, sync = Fleet(clocks, queues, probing, stamping, random), Synchroniser()
    found: list[Errors] = []
    for number in range(arguments.settle + arguments.windows):
        for batch, at_ns in fleet.window(number):
            sync.add(batch, at_ns + _LATE_NS)
        # The last of the nodes' windows ends a tenth of one after the first.
        said_ns = (number + 1) * fleet.window_ns + fleet.window_ns // 10 + _SOLVED_NS
        states = sync.solve(said_ns)
        fleet.tilt = expected_tilt(fleet.mesh, states)
        if number >= arguments.settle:
            found.append(errors(states, clocks, said_ns, fleet.window_ns))
    pairs_per_s = probing.rate_hz * len(fleet.mesh.initiator) / nics * 2
    packets = pairs_per_s * (1 + 1 / probing.coded_every)
    return [
        _row(
            of,
            found,
            random,
            topology=f"leaf-spine, {nics} NICs",
            load=load,
            ways=ways,
            packets_per_s=packets,
            drift_ppb=crystal.drift_ppb,
            seed=seed,
        )
        for of in ("pair", "reference")
    ]


def _row(of: str, found: list[Errors], random: np.random.Generator, **header: Any) -> Row:
    said = np.concatenate([each.said for each in found])
    bound, hard = (np.concatenate([each[index] for each in found]) for index in (1, 2))
    if of == "pair":
        order = random.permutation(said.shape[1])
        other = np.empty_like(order)
        other[order] = np.roll(order, 1)  # each another one, and none itself
        said, bound, hard = said - said[:, other], bound + bound[:, other], hard + hard[:, other]
    wrong = np.abs(said)
    middle, high, most = np.percentile(wrong, (50, 99, 100))
    return Row(
        of=of, windows=len(found), mean_ns=round(float(wrong.mean()), 1), p50_ns=float(middle), p99_ns=round(float(high), 1),
        max_ns=float(most), within_bound=float((wrong <= bound).mean()), within_hard_bound=float((wrong <= hard).mean()),
        median_bound_ns=float(np.median(bound)), **header,
    )  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.clock_sim", description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--nics", nargs="+", type=int, default=[100])
    parser.add_argument("--loads", nargs="+", type=float, default=[0.0, 0.4, 0.6, 0.8, 0.9], help="of every link")
    parser.add_argument("--ways", nargs="+", choices=("both", "one"), default=["both"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--windows", type=int, default=30, help="judged, of each run (default: %(default)s)")
    parser.add_argument("--settle", type=int, default=30, help="before them (default: %(default)s)")
    probing, stamping, crystal, fabric = Probing(), Stamping(), Crystal(), Fabric()
    for name, default, what in (
        ("neighbours", probing.neighbours, "of each NIC"), ("entropies", probing.entropies, "paths between two neighbours"),
        ("rate_hz", probing.rate_hz, "coded pairs a second on each path"), ("noise_ns", stamping.noise_ns, "of a stamp, standard deviation"),
        ("outlier_share", stamping.outlier_share, f"of transmit stamps, wrong by up to {stamping.outlier_ns:g} ns"),
        ("drift_ppb", crystal.drift_ppb, "of clocks, at most"), ("wander_ppb", crystal.wander_ppb, "of their rate, per root of a second"),
        ("swing_ppb", crystal.swing_ppb, f"of their rate with the temperature, once in {crystal.swing_s:g} s"),
        ("link_gbps", fabric.link_gbps, "of every link"), ("burst_kb", fabric.burst_kb, "mean length of what comes at a time"),
        ("uneven_m", fabric.uneven_m, "standard deviation of cables' lengths"),
    ):  # fmt: skip
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=type(default), default=default, help=f"{what} (default: %(default)s)")
    return parser


def main() -> int:
    """Parses the command line, runs, prints a table."""
    arguments = _parser().parse_args()
    rows: list[Row] = []
    print(
        f"{'NICs':>5} {'load':>5} {'ways':<5} {'seed':>4} {'of':<10} {'mean':>7} {'p50':>6} {'p99':>8} {'max':>8} {'bound':>8} within {'cpu s/window':>13}"
    )
    for nics in arguments.nics:
        for ways in arguments.ways:
            for load in arguments.loads:
                for seed in arguments.seeds:
                    began_s = time.process_time()
                    more = simulate(arguments, nics, load, ways, seed)
                    cost_s = (time.process_time() - began_s) / (arguments.windows + arguments.settle)
                    rows += more
                    for row in more:
                        print(
                            f"{nics:>5} {load:>5.0%} {ways:<5} {seed:>4} {row.of:<10} {row.mean_ns:>7.1f} {row.p50_ns:>6.1f} {row.p99_ns:>8.1f}"
                            f" {row.max_ns:>8.0f} {row.median_bound_ns:>8.0f} {row.within_bound:.2%} {cost_s:>8.2f}", flush=True
                        )  # fmt: skip
    print(f"Huygens' truth test, as published: mean {_HUYGENS['mean_ns']} ns, p99 {_HUYGENS['p99_ns']} ns")
    if arguments.json:
        model = {key: value for key, value in vars(arguments).items() if key != "json"}
        write(arguments.json, "clock-sim", rows, model=model, huygens=_HUYGENS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
