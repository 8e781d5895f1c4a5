"""The places of a job's processes: one rank or more on each host, and hosts that stand by."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from foliot_lab.fabric.namespaces import Namespace
    from foliot_lab.scenario.spec import Over
    from foliot_lab.services.lab import Lab


class Place(NamedTuple):
    """The place of one process: its host and addresses."""

    node: str
    namespace: Namespace
    addresses: tuple[str, ...]
    """The addresses, one per rail; Gloo opens a device at each."""
    local: int | None = None
    """Its number among the job's processes on the host; None: it is the only one."""
    is_spare: bool = False
    """Whether it stands by, without a rank."""

    @property
    def name(self) -> str:
        """Its name in records and reports: the host's, or `node2/rank1` if the host has several."""
        return place_name(self.node, self.local)


def place_name(node: str, local: int | str | None) -> str:
    """The name of a place in records and reports."""
    return node if local is None else f"{node}/rank{local}"


def file_stem(name: str) -> str:
    """The beginning of the names of a place's files."""
    return name.replace("/", "-")


def at(where: str, names: Iterable[str]) -> list[str]:
    """The places, of these, that a fault's `where` means: one process, or all of a host."""
    where = where.removesuffix("/rank")
    return [name for name in names if name == where or name.startswith(f"{where}/rank")]


def places(
    lab: Lab,
    over: Over = "service",
    hosts: Sequence[str] | None = None,
    rails: Sequence[str] | None = None,
    *,
    ranks_per_host: int = 1,
    spares: int = 0,
) -> list[Place]:
    """The places on hosts of a lab, with their service addresses, or their NICs', in the order of their ranks.

    Parameters:
        hosts: in the order of their ranks; default: all.
        rails: default: all.
        ranks_per_host: places on each host.
        spares: the last hosts, so many, stand by.
    """
    nodes = {node.name: node for node in lab.nodes}
    names = list(nodes if hosts is None else hosts)
    found = []
    for number, host in enumerate(names):
        addresses = tuple(
            nic.service_address if over == "service" else lab.plan.underlay(host, nic.rail)
            for nic in nodes[host].nics
            if rails is None or nic.rail in rails
        )
        for local in range(ranks_per_host):
            place = Place(host, lab.fabric.host(host), addresses, local if ranks_per_host > 1 else None)
            found.append(place._replace(is_spare=number >= len(names) - spares))
    return found
