"""chrony, tuned, as a bystander: it measures and corrects nothing, so that what it estimates is its error.

With ``-x`` it leaves this machine's clock alone, and with ``noselect`` its own virtual clock too: all hosts have one clock, and the offset to the server that
it writes down ought to be 0.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from bench.clock_peers.children import Children
    from bench.clock_peers.network import Network

PORTS = (123,)
_OFFSET_COLUMN, _COLUMNS = 4, 9
_FILTER = 16
"""Exchanges of which the best becomes one sample."""


class Estimate(NamedTuple):
    """What chrony took its offset to be."""

    at_s: float
    """Since the epoch, in whole seconds: the log has no finer ones."""
    error_ns: float


def server_text(folder: Path) -> str:
    """The settings of the host that all measure against."""
    lines = (
        "local stratum 5",
        "allow 100.64.0.0/10",
        "cmdport 0",
        f"bindcmdaddress {folder}/sock",
        f"pidfile {folder}/pid",
    )
    return "\n".join(lines) + "\n"


def client_text(folder: Path, server: str, poll: int) -> str:
    """Those of a host that measures."""
    lines = (
        f"server {server} minpoll {poll} maxpoll {poll} xleave filter {_FILTER} maxdelayquant 0.1 noselect",
        "port 0", "cmdport 0", f"bindcmdaddress {folder}/sock", f"pidfile {folder}/pid", f"logdir {folder}", "log statistics",
    )  # fmt: skip
    return "\n".join(lines) + "\n"


async def start(binary: Path, network: Network, children: Children, folder: Path, poll: int) -> dict[str, Path]:
    """Starts a server on the first host and a client on each other one.

    Returns:
        The clients' statistics, by host.
    """
    server, *clients = network.plan.hosts
    logs = {}
    for host in network.plan.hosts:
        own = folder / f"chrony-{host}"
        own.mkdir(mode=0o770)
        text = server_text(own) if host == server else client_text(own, network.plan.address(server), poll)
        (own / "chrony.conf").write_text(text)
        # Never without -x: this machine's clock is not ours.
        arguments = (str(binary), "-x", "-u", "root", "-d", "-f", str(own / "chrony.conf"))
        await children.start(f"{host}/chronyd", arguments, network.namespaces[host])
        if host in clients:
            logs[host] = own / "statistics.log"
    return logs


def parse(lines: Iterable[str]) -> list[Estimate]:
    """The estimates in lines of ``statistics.log``; its headings, and a line that is not whole, are left out."""
    found = []
    for line in lines:
        words = line.split()
        if len(words) < _COLUMNS or not words[0][:1].isdigit():
            continue
        try:
            at = dt.datetime.fromisoformat(f"{words[0]}T{words[1]}+00:00")
            found.append(Estimate(at.timestamp(), float(words[_OFFSET_COLUMN]) * 1e9))
        except ValueError:
            continue
    return found
