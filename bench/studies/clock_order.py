"""The error that the order of sending makes.

The first packet of a tick takes longer, and two nodes may send in unlike orders.

Two nodes on one clock send in ticks (`foliot_lab.simulate.clocks.ticks`), and their stamps are replayed as recorded ones
are. Before: sockets in the order of their numbers, and the slower probe of each pure pair, as for stamps of NICs.
After: sockets from any one on, and all probes.

    make bench NAME=clock-order ARGS="--json FILE"
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import msgspec
import numpy as np

from bench.clock_replay.recording import Direction, Recording, constant
from bench.clock_replay.rows import FOLIOT, MINIMUM, NOW, replay
from bench.clock_sim import Tool
from bench.document import Document
from bench.studies.clock_regimes import Cell, cells, verdicts
from foliot_lab.simulate.clocks.ticks import QUICK, SLOW, Probed, stamps
from foliot_probe.core.packet import KINDS
from foliot_probe.core.rate.send_order import send_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foliot_probe.core.rate.send_order import Probes

_WINDOW_NS = 2_000_000_000
_OWN, _OTHER = Probed(0), Probed(1)
SENDERS = {
    "same socket": ([_OWN, _OTHER], [_OWN, _OTHER]),
    "first and last socket": ([_OWN, _OTHER], [_OTHER, _OWN]),
    "one stream and five": ([_OWN], [_OWN] * 5),
}
"""The streams of both nodes. The first of each list is the one between them, on the first socket or on the second."""
MACHINES = {"slow": SLOW, "quick": QUICK}
SIEVED = "foliot, pure pairs"


def _by_number(
    probes: Probes, place: NDArray[np.intp], due: int, random: np.random.Generator
) -> tuple[NDArray[np.intp], int]:
    """The first socket begins every tick."""
    return send_order(probes, place, due, random)[0], 0


ORDERS = {"by number": _by_number, "from any": send_order}
TOOLS = (Tool(), Tool(SIEVED, None, {"foliot_probe.core.measure.stamp_window._SIEVED": np.ones(len(KINDS), np.bool_)}))


def judged(machine: str, senders: str, order: str, arguments: argparse.Namespace) -> list[Cell]:
    """The figures of each tool with these nodes in an order of sending."""
    found = []
    for seed in arguments.seeds:
        random = np.random.default_rng(seed)
        with mock.patch("foliot_lab.simulate.clocks.ticks.send_order", ORDERS[order]):
            ends = [Direction(*stamps(each, MACHINES[machine], arguments.seconds, random)) for each in SENDERS[senders]]
        recording = Recording(senders, ends[0], ends[1], constant("simulated", 0.0))
        found += replay(recording, _WINDOW_NS, "kernel", arguments.settle, TOOLS)
    wanted = {MINIMUM, FOLIOT, SIEVED}
    return cells(f"{machine}, {senders}, sockets {order}", [row for row in found if row.tool in wanted])


def main() -> int:
    """Parses the command line, runs, prints a table."""
    made = argparse.ArgumentParser(prog="bench.clock_order", description=__doc__.split("\n", 1)[0] if __doc__ else None)
    made.add_argument("--json", type=Path, help="write the cells to this file")
    made.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5], help="(default: %(default)s)")
    made.add_argument("--seconds", type=float, default=60.0, help="of each run (default: %(default)s)")
    made.add_argument(
        "--settle", type=int, default=6, help="windows before those that are judged (default: %(default)s)"
    )
    arguments = made.parse_args()
    document = Document("clock-order", arguments)
    print("bias, and mean of the error without its sign, in ns: minimum filter; Foliot with pure pairs alone; Foliot")
    every: list[Cell] = []
    for machine in MACHINES:
        for senders in SENDERS:
            for order in ORDERS:
                found = judged(machine, senders, order, arguments)
                by_tool = {cell.tool: cell for cell in found if cell.of == NOW}
                shown = [f"{by_tool[tool].bias_ns} / {by_tool[tool].mean_ns}" for tool in (MINIMUM, SIEVED, FOLIOT)]
                print(f"{found[0].regime:<48}" + "".join(f"{each:>16}" for each in shown), flush=True)
                every += found
    reached = verdicts(every)
    for each in reached:
        print(each.line())
    if arguments.json:
        document.write(arguments.json, every, verdicts=msgspec.to_builtins(reached))
    return 0


if __name__ == "__main__":
    sys.exit(main())
