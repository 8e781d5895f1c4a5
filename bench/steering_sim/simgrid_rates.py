"""The share of each flow by SimGrid: an independent solver, to hold `fair_shares` against on small cases.

It is a process of its own, because SimGrid has one engine for each. It reads a case from stdin and writes the rates to
stdout. Needs Debian's ``python3-simgrid``, installed or unpacked into ``run/simgrid`` with the libraries it needs.

Source: H. Casanova and others, "Versatile, scalable, and accurate simulation of distributed applications and
platforms", JPDC 74, 2014.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_UNPACKED = Path(__file__).parents[2] / "run" / "simgrid" / "usr" / "lib"
_SECONDS = 10.0
_ENOUGH = 1e15
"""Bytes of a flow: no flow ends within the simulated time."""
_PLAIN = (
    "network/model:CM02",
    "network/crosstraffic:0",
    "network/bandwidth-factor:1",
    "network/latency-factor:1",
    "network/weight-S:0",
    "network/TCP-gamma:0",
    "surf/precision:1e-9",
)
"""Links shared max-min fairly, without what its models of TCP take off."""


def environment() -> dict[str, str]:
    """The variables with which a process finds SimGrid where it is unpacked."""
    libraries = ":".join(str(folder) for folder in _UNPACKED.glob("*-linux-gnu"))
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            filter(None, (os.environ.get("PYTHONPATH"), str(_UNPACKED / "python3/dist-packages")))
        ),
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, (os.environ.get("LD_LIBRARY_PATH"), libraries))),
    }


def is_here() -> bool:
    """Whether this machine has SimGrid."""
    done = subprocess.run([sys.executable, "-c", "import simgrid"], env=environment(), capture_output=True, check=False)
    return done.returncode == 0


def rates_bps(
    links: NDArray[np.intp], capacity_bps: NDArray[np.float64], demand_bps: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The rate of each flow, as `fair_shares` takes and gives it.

    Raises:
        subprocess.CalledProcessError: SimGrid is not here, or refuses the case.
    """
    case = {"links": links.tolist(), "capacity_bps": capacity_bps.tolist(), "demand_bps": demand_bps.tolist()}
    done = subprocess.run(
        [sys.executable, __file__],
        env=environment(),
        input=json.dumps(case),
        capture_output=True,
        text=True,
        check=True,
    )
    return np.array(json.loads(done.stdout.splitlines()[-1]))


def _solve(links: list[list[int]], capacity_bps: list[float], demand_bps: list[float]) -> list[float]:
    import simgrid  # type: ignore[import-not-found]  # noqa: PLC0415 - only here, in a process that has it

    engine = simgrid.Engine([sys.argv[0], "--log=root.threshold:error", *(f"--cfg={each}" for each in _PLAIN)])
    zone: Any = simgrid.NetZone.create_full_zone("fabric")
    shared = [_link(zone, f"link{number}", bps) for number, bps in enumerate(capacity_bps)]
    ends = []
    for number, (hops, bps) in enumerate(zip(links, demand_bps, strict=True)):
        sender, receiver = (zone.create_host(f"{end}{number}", 1e9).seal() for end in ("from", "to"))
        own = _link(zone, f"demand{number}", bps)
        route = [simgrid.LinkInRoute(each) for each in (own, *(shared[hop] for hop in hops if hop >= 0))]
        zone.add_route(sender.netpoint, receiver.netpoint, None, None, route, False)
        ends.append((sender, receiver))
    zone.seal()
    comms: list[Any] = []

    def begin() -> None:
        comms.extend(simgrid.Comm.sendto_async(sender, receiver, int(_ENOUGH)) for sender, receiver in ends)
        simgrid.this_actor.sleep_for(_SECONDS)

    simgrid.Actor.create("begin", ends[0][0], begin)
    engine.run_until(_SECONDS)
    return [8 * (_ENOUGH - comm.remaining) / _SECONDS for comm in comms]


def _link(zone: Any, name: str, bps: float) -> Any:
    return zone.create_link(name, bps / 8).set_latency(0).seal()


if __name__ == "__main__":
    print(json.dumps(_solve(**json.load(sys.stdin))))
