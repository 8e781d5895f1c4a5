"""chrony, tuned, as a bystander: it measures and corrects nothing, so that what it estimates is its error.

With ``-x`` it leaves this machine's clock alone, and with ``noselect`` its own virtual clock too: all hosts have one clock, and the offset to a server that
it writes down ought to be 0. Several configurations run side by side, each with a server of its own, so that the best of them can be told.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from bench.clock_peers.children import Children
    from bench.clock_peers.network import Network

_OFFSET_COLUMN, _COLUMNS = 4, 9
_SHORTEST = "filter 16 maxdelayquant 0.1"
_MEDIAN = "extfield F323 filter 31 maxdelayquant 0.3"
_PEER = "extfield F323 filter 31"
"""Peers poll more often than once a second only when they have a sample, for which a quantile of the delays leaves too few exchanges in a minute and a half."""


class Configuration(NamedTuple):
    """How chrony is set up."""

    name: str
    port: int
    """Of its servers. The first has NTP's own, the others such as nobody else here uses."""
    directive: str
    """`server`, or `peer`: then both ends send by themselves, and nobody is woken by a question to answer it."""
    options: str
    sources: int = 1
    """Of a host. With more, each is asked as much more rarely, so that as many packets travel."""


CONFIGURATIONS = {
    each.name: each
    for each in (
        Configuration("filter 16", 123, "server", _SHORTEST),
        Configuration("filter 31", 1123, "server", _MEDIAN),
        Configuration("peer", 2123, "peer", _PEER),
        Configuration("4 sources", 3123, "server", _MEDIAN, sources=4),
    )
}
"""By name. `filter 16` takes the quickest tenth of the exchanges, as this bench always did; the others the median of the quickest 30 %, by time stamps that know of
the clocks' corrections (F323), as chrony's manual has it for short polls in a local network."""
_SLOWER = {1: 0, 4: 2}
"""By how many powers of two a source is polled more rarely."""


class Estimate(NamedTuple):
    """What chrony took its offset to be."""

    at_s: float
    """Since the epoch, in whole seconds: the log has no finer ones."""
    error_ns: float
    source: str = ""


def sources(configuration: Configuration, hosts: Sequence[str], host: str) -> tuple[str, ...]:
    """Whom a host measures against: the first hosts, which serve the time; nobody, if it is one of them."""
    serving = hosts[: configuration.sources]
    return () if host in serving else tuple(serving)


def fits(configuration: Configuration, hosts: Sequence[str]) -> bool:
    """Whether there is anybody left to measure against so many sources."""
    return len(hosts) > configuration.sources


def text(configuration: Configuration, network: Network, host: str, folder: Path, poll: int) -> str:
    """The settings of one host."""
    hosts = network.plan.hosts
    asked = sources(configuration, hosts, host)
    if configuration.directive == "peer" and not asked:
        asked = tuple(each for each in hosts if each != host)
    slower = poll + _SLOWER[configuration.sources]
    lines = [
        f"{configuration.directive} {network.plan.address(each)} port {configuration.port} minpoll {slower} maxpoll {slower}"
        f" xleave {configuration.options} noselect"
        for each in asked
    ]
    serves = configuration.directive == "peer" or not asked
    if serves:
        # A peer has to have a time of its own, or the other end takes nothing from it and polls it no quicker than once a second.
        lines += [f"local stratum {5 if host == hosts[0] else 6}", "allow 100.64.0.0/10"]
    lines += [
        f"port {configuration.port if serves else 0}", "cmdport 0", f"bindcmdaddress {folder}/sock", f"pidfile {folder}/pid",
        f"logdir {folder}", "log statistics",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


async def start(
    binary: Path, configuration: Configuration, network: Network, children: Children, *, folder: Path, poll: int
) -> dict[str, Path]:
    """Starts one on each host.

    Returns:
        The statistics of those that measure, by host.
    """
    logs = {}
    for host in network.plan.hosts:
        own = folder / f"chrony-{configuration.port}-{host}"
        own.mkdir(mode=0o770)
        (own / "chrony.conf").write_text(text(configuration, network, host, own, poll))
        # Never without -x: this machine's clock is not ours.
        arguments = (str(binary), "-x", "-u", "root", "-d", "-f", str(own / "chrony.conf"))
        await children.start(f"{host}/chronyd-{configuration.port}", arguments, network.namespaces[host])
        if sources(configuration, network.plan.hosts, host):
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
            found.append(Estimate(at.timestamp(), float(words[_OFFSET_COLUMN]) * 1e9, words[2]))
        except ValueError:
            continue
    return found


def combined(said: Sequence[Estimate]) -> list[Estimate]:
    """What a host takes its offset to be by all of its sources: after each word the mean of the newest word of every source.

    chrony weighs its sources by their distances, which are alike here. Nothing before all have spoken.
    """
    names = {each.source for each in said}
    newest: dict[str, float] = {}
    found = []
    for each in said:
        newest[each.source] = each.error_ns
        if len(newest) == len(names):
            found.append(Estimate(each.at_s, sum(newest.values()) / len(newest)))
    return found
