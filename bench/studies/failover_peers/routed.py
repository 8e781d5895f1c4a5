"""Service addresses in a routed fabric: the `ip` commands in each namespace by which every rail reaches each host.

====================== =============================================================================================
10.250.<r>.<1 + i>     host i's service address of rail r; both are reached by both rails
====================== =============================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foliot_lab.scenario.topology import FabricPlan

PREFIX = "10.250.0.0/16"
PROTOCOL = 250
"""The protocol number of the nexthops, by which they are removed again."""
_GROUP, _FIRST = 7190, 7191
_LATER = 4000
"""The metric of the black hole, behind the real route."""


def service_address(plan: FabricPlan, host: str, rail: str) -> str:
    """A host's address of a rail.

    Raises:
        ValueError: there is no such host or rail.
    """
    return f"10.250.{plan.rails.index(rail)}.{1 + plan.hosts.index(host)}"


def lines(plan: FabricPlan) -> dict[str, list[str]]:
    """Commands for every host, leaf and spine, for `ip -batch`; they may be repeated."""
    found: dict[str, list[str]] = {host: _host_lines(plan, host) for host in plan.hosts}
    for router in plan.routers:
        found[router.name] = [*(_leaf_lines if router.kind == "leaf" else _spine_lines)(plan, router.name)]
    return found


# The nexthops first, and the routes by them go too: iproute2 6.1 cannot flush such routes.
UNDO = (
    f"nexthop flush protocol {PROTOCOL}",
    f"route flush root {PREFIX}",
    f"addr flush dev lo to {PREFIX}",
)
"""Commands that remove all of it, in any namespace, whether or not it exists."""


def _host_lines(plan: FabricPlan, host: str) -> list[str]:
    found = [f"addr replace {service_address(plan, host, rail)}/32 dev lo" for rail in plan.rails]
    for number, rail in enumerate(plan.rails):
        gateway = plan.links[f"{host}.{rail}"].far.address.partition("/")[0]
        found.append(f"nexthop replace id {_FIRST + number} via {gateway} dev {rail} protocol {PROTOCOL}")
    members = "/".join(str(_FIRST + number) for number in range(len(plan.rails)))
    return [
        *found,
        f"nexthop replace id {_GROUP} group {members} protocol {PROTOCOL}",
        f"route replace {PREFIX} nhid {_GROUP}",
    ]


def _leaf_lines(plan: FabricPlan, leaf: str) -> Iterator[str]:
    rail = leaf.partition(".")[0]
    spines = [
        f"nexthop via {trunk.far.address.partition('/')[0]} dev {trunk.near.device} weight 1"
        for trunk in plan.trunks
        if trunk.near.owner == leaf
    ]
    yield f"route replace {PREFIX} {' '.join(spines)}"
    for host in plan.hosts:
        if plan.leaf(host, rail) == leaf:
            link = plan.links[f"{host}.{rail}"]
            for address in (service_address(plan, host, each) for each in plan.rails):
                yield f"route replace {address}/32 via {plan.underlay(host, rail)} dev {link.far.device}"
                # As in the plan: packets to an unplugged host do not go up to the spines.
                yield f"route replace blackhole {address}/32 metric {_LATER}"


def _spine_lines(plan: FabricPlan, spine: str) -> Iterator[str]:
    rail = spine.partition(".")[0]
    trunks = {trunk.near.owner: trunk for trunk in plan.trunks if trunk.far.owner == spine}
    for host in plan.hosts:
        trunk = trunks[plan.leaf(host, rail)]
        gateway = trunk.near.address.partition("/")[0]
        for address in (service_address(plan, host, each) for each in plan.rails):
            yield f"route replace {address}/32 via {gateway} dev {trunk.far.device}"
