"""chrony, tuned, as an observer: it measures and corrects nothing, so its estimate is its error.

With ``-x`` it leaves this machine's clock alone, and with ``noselect`` its own virtual clock too. All hosts have one
clock, so the offset to a server in its log ought to be 0. Several configurations run side by side, each with a server
of its own. The bench reports the best of them.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from bench.studies.clock_peers.children import Children
    from bench.studies.clock_peers.network import Network

_OFFSET_COLUMN, _COLUMNS = 4, 9
_SHORTEST = "filter 16 maxdelayquant 0.1"
_MEDIAN = "extfield F323 filter 31 maxdelayquant 0.3"
_PEER = "extfield F323 filter 31"
"""Options of a peer. Peers poll more often than once a second only when they have a sample. For that, a quantile of
the delays leaves too few exchanges in a minute and a half."""


class Configuration(NamedTuple):
    """A set of chrony's settings."""

    name: str
    port: int
    """Port of its servers. The first has NTP's own, the others have ports that nothing else here uses."""
    directive: str
    """`server` or `peer`. As peers, both ends send by themselves, and no process is woken by a question in order to
    answer it."""
    options: str
    sources: int = 1
    """Sources of a host. With more sources, each is asked less often by the same factor, so that as many packets
    travel."""


CONFIGURATIONS = {
    each.name: each
    for each in (
        Configuration("filter 16", 123, "server", _SHORTEST),
        Configuration("filter 31", 1123, "server", _MEDIAN),
        Configuration("peer", 2123, "peer", _PEER),
        Configuration("4 sources", 3123, "server", _MEDIAN, sources=4),
    )
}
"""Configurations by name. `filter 16` takes the quickest tenth of the exchanges, as this bench always did.

The others take the median of the quickest 30 %, by time stamps that include the clocks' corrections (F323). chrony's
manual recommends this for short polls in a local network."""
_SLOWER = {1: 0, 4: 2}
"""The powers of two by which a source is polled less often, by the number of sources."""


class Estimate(NamedTuple):
    """An estimate by chrony of its offset."""

    at_s: float
    """Seconds since the epoch; the log has whole seconds only."""
    error_ns: float
    source: str = ""


def sources(configuration: Configuration, hosts: Sequence[str], host: str) -> tuple[str, ...]:
    """The sources of a host: the first hosts, which serve the time; none, if it is one of them."""
    serving = hosts[: configuration.sources]
    return () if host in serving else tuple(serving)


def fits(configuration: Configuration, hosts: Sequence[str]) -> bool:
    """Whether any host is left to measure against so many sources."""
    return len(hosts) > configuration.sources


def text(configuration: Configuration, network: Network, host: str, folder: Path, poll: int) -> str:
    """The settings of one host."""
    hosts = network.plan.hosts
    asked = sources(configuration, hosts, host)
    if configuration.directive == "peer" and not asked:
        asked = tuple(each for each in hosts if each != host)
    slower = poll + _SLOWER[configuration.sources]
    lines = [
        f"{configuration.directive} {network.plan.address(each)} port {configuration.port} minpoll {slower} maxpoll "
        f"{slower}"
        f" xleave {configuration.options} noselect"
        for each in asked
    ]
    serves = configuration.directive == "peer" or not asked
    if serves:
        # A peer needs a time of its own, or the other end accepts nothing from it and polls once a second at most.
        lines += [f"local stratum {5 if host == hosts[0] else 6}", "allow 100.64.0.0/10"]
    lines += [
        f"port {configuration.port if serves else 0}", "cmdport 0", f"bindcmdaddress {folder}/sock",
        f"pidfile {folder}/pid",
        f"logdir {folder}", "log statistics",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


async def start(
    binary: Path, configuration: Configuration, network: Network, children: Children, *, folder: Path, poll: int
) -> dict[str, Path]:
    """Starts one on each host.

    Returns:
        The statistics of the measuring hosts, by host.
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
    """The estimates in lines of ``statistics.log``. Headings and incomplete lines are left out."""
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
    """A host's offset by all of its sources: after each estimate, the mean of the newest estimates of every source.

    chrony weighs its sources by their distances, which are alike here. The list begins once all sources have an
    estimate.
    """
    names = {each.source for each in said}
    newest: dict[str, float] = {}
    found = []
    for each in said:
        newest[each.source] = each.error_ns
        if len(newest) == len(names):
            found.append(Estimate(each.at_s, sum(newest.values()) / len(newest)))
    return found
