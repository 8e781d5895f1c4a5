"""An untouched fleet: the events and commands of some minutes in which nobody does anything to it, by its gateway.

    docker compose up --build --wait
    make bench NAME=untouched ARGS="--json FILE"

It only asks, so any fleet will do. Each of its NICs must be up and in use at the beginning.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from bench import place
from bench.document import Document
from foliot_lab.measure.machine import CpuTimes

if TYPE_CHECKING:
    from collections.abc import Iterator

_ANSWER_S = 60.0
_MOST = 10_000
"""The most events, and the most commands, that the gateway keeps."""
_TOLD = 4


class Row(msgspec.Struct, kw_only=True):
    """One minute. Moves that agents made by themselves are among the commands."""

    minute: int
    events: int
    commands: int
    idle_cpu: float
    """Idle share of this machine's processors."""
    told: tuple[str, ...]
    """The first few of both."""


def minutes(gateway: str, count: int, minute_s: float) -> Iterator[Row]:
    """Watches the fleet for so many minutes.

    Raises:
        OSError: the gateway does not answer, or says that it does not do its work.
    """
    known = _records(gateway)
    for number in range(1, count + 1):
        before = CpuTimes.read()
        time.sleep(minute_s)
        _asked(gateway, "healthz")  # A gateway that is cut off from its bus would have nothing to tell
        now = _records(gateway)
        new = [now[key] for key in now if key not in known]
        known |= now
        yield Row(
            minute=number, events=sum("kind" in each for each in new), commands=sum("verb" in each for each in new),
            idle_cpu=round(before.idle_share(CpuTimes.read()), 3), told=tuple(map(_words, new[:_TOLD])),
        )  # fmt: skip


def lacks(gateway: str) -> str:
    """The reason why there is nothing to watch, in a sentence; empty: the fleet is whole."""
    try:
        nics = [nic for node in _asked(gateway, "api/v1/fleet") for nic in node["nics"]]
    except OSError as error:
        return f"No gateway at {gateway}: {error}. Start the fleet first: docker compose up --build --wait"
    if out := sorted(nic["nic"] for nic in nics if nic["state"] != "up" or nic["moved"]):
        return f"The fleet is not whole: {', '.join(out)}."
    return "" if nics else f"The gateway at {gateway} knows no node."


def _records(gateway: str) -> dict[tuple[str, ...], dict[str, Any]]:
    """All events and commands that the gateway has."""
    return {
        (what, each["id"], each.get("node", "")): each
        for what in ("events", "commands")
        for each in reversed(_asked(gateway, f"api/v1/{what}?limit={_MOST}"))
    }


def _asked(gateway: str, path: str) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{gateway}/{path}", timeout=_ANSWER_S) as answer:
        return json.load(answer)


def _words(record: dict[str, Any]) -> str:
    return " ".join(record[key] for key in ("kind", "who", "state", "verb", "node") if key in record)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.untouched", description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--gateway", default="http://127.0.0.1:8470", help="(default: %(default)s)")
    parser.add_argument("--minutes", type=int, default=10, help="(default: %(default)s)")
    return parser


def main() -> int:
    """Parses the command line, runs, prints a table."""
    arguments = _parser().parse_args()
    if problem := lacks(arguments.gateway):
        sys.stderr.write(f"{problem}\n")
        return place.CANNOT
    document, rows = Document("untouched", arguments), list[Row]()
    print(f"{'minute':>6} {'events':>6} {'commands':>8} {'idle':>5}")
    try:
        for row in minutes(arguments.gateway, arguments.minutes, 60.0):
            rows.append(row)
            print(
                f"{row.minute:>6} {row.events:>6} {row.commands:>8} {row.idle_cpu:>5.0%}  {'; '.join(row.told)}",
                flush=True,
            )
    except OSError as error:
        sys.stderr.write(f"{arguments.gateway}: {error}\n")
        return 1
    if arguments.json:
        document.write(arguments.json, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
