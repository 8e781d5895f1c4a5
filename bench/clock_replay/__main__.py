"""Foliot's clock on recorded stamps, beside a minimum filter and a model of chrony's filter on the same stamps.

Anybody can record the stamps of two machines, or of two sockets of one. They see how well the clock does there, or send
the file. See `recording` for what a file has. Status 2 and a sentence where a recording cannot be judged.

    make bench NAME=clock-replay FILE="RECORDING ..." ARGS="--json FILE"
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from bench.clock_replay.recording import BadRecordingError, read
from bench.clock_replay.rows import replay, summaries
from bench.document import Document
from foliot_probe.core.packet import KINDS

_NANOSECONDS = 1_000_000_000


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    made = argparse.ArgumentParser(
        prog="bench.clock_replay", description=__doc__.split("\n", 1)[0] if __doc__ else None
    )
    made.add_argument("files", nargs="+", type=Path, metavar="FILE", help="recordings (npz)")
    made.add_argument("--json", type=Path, help="write the rows to this file")
    made.add_argument("--kind", choices=KINDS, default="kernel", help="of the stamps (default: %(default)s)")
    made.add_argument(
        "--offset-ns",
        type=float,
        help="the true offset, where a file has none; else, if no probe speaks against it, 0: one clock",
    )
    made.add_argument(
        "--settle", type=int, default=4, help="windows before those that are judged (default: %(default)s)"
    )
    return made


def main() -> int:
    """Parses the command line, replays, prints a table."""
    arguments = parser().parse_args()
    document = Document("clock-replay", arguments)
    rows, found = [], []
    print(
        f"{'file':<28} {'tool':<16} {'of':<7} {'p50':>8} {'p99':>8} {'max':>8} {'bias':>8} {'dev.':>8} {'bound':>8} "
        "within windows silent truth"
    )
    for file in arguments.files:
        try:
            recording = read(file, arguments.offset_ns)
            more = replay(recording, 2 * _NANOSECONDS, arguments.kind, arguments.settle)
        except BadRecordingError as why:
            sys.stderr.write(f"{why}\n")
            return 2
        rows += more
        for each in summaries(recording, more):
            found.append(each)
            figures = (each.p50_ns, each.p99_ns, each.max_ns, each.bias_ns, each.deviation_ns, each.median_bound_ns)
            shown = " ".join(f"{'-' if figure is None else f'{figure:.0f}':>8}" for figure in figures)
            within = "-" if each.within_bound is None else f"{each.within_bound:.1%}"
            print(
                f"{each.file:<28} {each.tool:<16} {each.of:<7} {shown} {within:>6} {each.windows:>7} {each.silent:>6} "
                f"{each.truth or 'not known'}",
                flush=True,
            )
    if arguments.json:
        document.write(arguments.json, rows, summaries=[msgspec.to_builtins(each) for each in found])
    return 0


if __name__ == "__main__":
    sys.exit(main())
