"""The remediator's plan for contended links, beside the policies of others, where every link is shared max-min fairly.

A flow's share is its rate over what it would get alone. The slowest flow of a job is what the job waits for.

    make bench NAME=steering-sim ARGS="--json FILE"
    make bench NAME=steering-sim ARGS="--nics 16384 --entropies 0 64 --traffic permutation --json FILE"
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from bench.document import Document
from bench.steering_sim.fabric import drawn, square
from bench.steering_sim.policies import POLICIES
from foliot_remediator.core.steering.improvement import shares

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.steering_sim.fabric import Fabric, Traffic


class Row(msgspec.Struct, frozen=True):
    """The result of a policy for one seed's traffic.

    Attributes:
        entropies: ways of each flow; 0: over every spine.
        flows: those between leaves.
        mean_share: mean over the flows of the rate over what each would get alone.
        slowest_share: the least of these.
        moves: changes of way, from what the hash had made.
        plan_s: processor time of the policy, seconds.
    """

    nics: int
    entropies: int
    traffic: str
    policy: str
    seed: int
    flows: int
    mean_share: float
    slowest_share: float
    moves: int
    plan_s: float


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    made = argparse.ArgumentParser(
        prog="bench.steering_sim", description=__doc__.split("\n", 1)[0] if __doc__ else None
    )
    made.add_argument("--json", type=Path, help="write the rows to this file")
    made.add_argument("--nics", nargs="+", type=_nics, default=[1024], help="powers of two (default: 1024)")
    made.add_argument(
        "--entropies", nargs="+", type=int, default=[0, 64, 16, 8], help="ways of each flow; 0: over every spine"
    )
    made.add_argument("--traffic", nargs="+", choices=("permutation", "jobs"), default=["permutation", "jobs"])
    made.add_argument("--policies", nargs="+", choices=tuple(POLICIES), default=list(POLICIES))
    made.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    return made


def _nics(text: str) -> int:
    count = int(text)
    square(count)
    return count


def rows(arguments: argparse.Namespace) -> Iterator[Row]:
    """A row for each policy, seed, traffic, number of ways, and fabric."""
    for nics in arguments.nics:
        fabric = square(nics)
        for traffic in arguments.traffic:
            for entropies in arguments.entropies:
                for seed in arguments.seeds:
                    yield from _of_seed(fabric, traffic, entropies, seed, arguments.policies)


def _of_seed(fabric: Fabric, traffic: Traffic, entropies: int, seed: int, policies: list[str]) -> Iterator[Row]:
    flows = drawn(fabric, traffic, entropies, np.random.default_rng(seed))
    capacity_bps = fabric.capacity_bps
    hashed = np.zeros(len(flows.demand_bps), np.intp)
    for policy in policies:
        began_s = time.process_time()
        chosen, moves = POLICIES[policy](flows, capacity_bps, hashed, np.random.default_rng([seed, 1]))
        plan_s = time.process_time() - began_s
        found = shares(flows, capacity_bps, chosen)
        yield Row(
            fabric.nics, entropies, traffic, policy, seed, len(found), round(float(found.mean()), 4),
            round(float(found.min()), 4), moves, round(plan_s, 3),
        )  # fmt: skip


def main() -> int:
    """Parses the command line, plans, prints a table."""
    arguments = parser().parse_args()
    document = Document("steering-sim", arguments)
    print(
        f"{'NICs':>6} {'ways':>4} {'traffic':<12} {'policy':<12} {'seed':>4}"
        f" {'mean':>6} {'slowest':>7} {'moves':>6} {'s':>6}"
    )
    found = []
    for row in rows(arguments):
        found.append(row)
        print(
            f"{row.nics:>6} {row.entropies or 'all':>4} {row.traffic:<12} {row.policy:<12} {row.seed:>4}"
            f" {row.mean_share:>6.3f} {row.slowest_share:>7.3f} {row.moves:>6} {row.plan_s:>6.2f}",
            flush=True,
        )
    if arguments.json:
        document.write(arguments.json, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
