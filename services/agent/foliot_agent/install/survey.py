"""Surveys the host and the bus. It changes nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from foliot import native
from foliot.bus.one_shot import Ahead, OneShot
from foliot.bus.retry import BUS_ERRORS, in_words
from foliot.node.identity_claims import host_id, objection
from foliot_agent.install import checks, kernel_trial, nics, systemd_units, timekeeping
from foliot_agent.install.findings import Finding, note, ok, stop, warn
from foliot_schemas import Claim, Node
from foliot_schemas.subjects import CLAIMS, INVENTORY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from foliot.settings import BusSettings, NodeSettings
    from foliot_agent.install.nics import NicState

_HASH_POLICY = Path("/proc/sys/net/ipv4/fib_multipath_hash_policy")
_PEERS_TRIED = 3
"""Peers to look at per rail; a missing route shows with the first."""


class FleetSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet as the bus has it."""

    url: str
    away: str = ""
    """Why the bus does not answer; empty: it does."""
    lacking: tuple[str, ...] = ()
    """Buckets that are not there, and that our credentials do not permit to make."""
    version: str = ""
    jetstream: bool = False
    ahead: Ahead | None = None
    nodes: dict[str, Node] = {}
    claims: dict[str, Claim] = {}

    @property
    def answers(self) -> bool:
        """Whether the bus does, with JetStream and all that a node reads and writes there."""
        return not self.away and self.jetstream and not self.lacking

    def others(self, name: str) -> list[Node]:
        """All nodes but this."""
        return [node for node in self.nodes.values() if node.name != name]

    def findings(self, *, without: str) -> tuple[Finding, ...]:
        """The bus, judged.

        Parameters:
            without: the arguments with which join could do without it; empty: it needs none.
        """
        if self.away:
            said = f"{self.url} does not answer: {self.away}"
            to_do = "check the address, --credentials and --ca, and that NATS runs there and can be reached from here"
        elif self.lacking:
            said = f"nobody has made the buckets of a fleet at {self.url} yet ({', '.join(self.lacking)})"
            to_do = "start the central services there first (sync, detector, remediator, gateway), which make them"
        else:
            return checks.bus(self.version, jetstream=self.jetstream, ahead=self.ahead, nodes=len(self.nodes))
        return (stop("bus", said, f"{to_do}; to join without it: {without}") if without else warn("bus", said, to_do),)


async def look_at_bus(settings: BusSettings) -> FleetSeen:
    """Reads what the bus has, if it answers."""
    try:
        async with OneShot(settings) as visit:
            if not await visit.has_jetstream():
                return FleetSeen(url=settings.url, version=visit.version)
            return FleetSeen(
                url=settings.url, version=visit.version, jetstream=True, ahead=await visit.ahead(),
                lacking=await visit.lacking() if settings.credentials else (),
                nodes=await visit.present(INVENTORY), claims=await visit.present(CLAIMS),
            )  # fmt: skip
    except BUS_ERRORS as error:
        return FleetSeen(url=settings.url, away=in_words(error))


async def findings(node: NodeSettings, states: Mapping[str, NicState], fleet: FleetSeen) -> tuple[Finding, ...]:
    """The host, judged for this node."""
    found: list[Finding] = []
    policy = _hash_policy()
    for nic in node.nics:
        state = states[nic.device]
        found += checks.nic(nic, state)
        peers = [each.address for peer in fleet.others(node.name) for each in peer.nics if each.rail == nic.rail]
        for peer in peers[:_PEERS_TRIED]:
            route = await nics.route_to(peer, state.index)
            found.append(checks.reach(nic.rail, nic.device, peer, route, policy))
    found += checks.kernel(await asyncio.to_thread(kernel_trial.run_trial))
    found.append(checks.rdma(nics.rdma_devices(), [nic.device for nic in node.nics]))
    found.append(checks.clock(timekeeping.discipline()))
    found.append(checks.native_code(native.why_python()))
    return tuple(found)


def _hash_policy() -> str:
    return _HASH_POLICY.read_text().strip() if _HASH_POLICY.exists() else ""


def place_findings(name: str, keys: Mapping[str, str], fleet: FleetSeen) -> tuple[Finding, ...]:
    """Whether the node's index and addresses are its own: by claims, and by records of nodes that made none."""
    if not fleet.answers:
        return (
            note("place", f"{name} asks for {', '.join(keys.values())}", "only the bus knows whether another has them"),
        )
    own = Claim(node=name, host=host_id())
    objections = [objection(what, own, fleet.claims[key]) for key, what in keys.items() if key in fleet.claims]
    taken = {nic.address: node.name for node in fleet.others(name) for nic in node.nics}
    objections += [
        objection(what, own, Claim(node=taken[address]))
        for key, what in keys.items()
        if (address := key.removeprefix("address-")) in taken and key not in fleet.claims
    ]
    found = [stop("place", reason) for reason in objections if reason]
    return tuple(found) or (ok("place", f"{name} has {', '.join(keys.values())}"),)


def start_findings(*, wanted: bool) -> tuple[Finding, ...]:
    """Whether probe and agent can be started here as services."""
    hidden = systemd_units.hidden_interpreter()
    level = stop if wanted else note
    found = []
    if hidden:
        found.append(level("install", f"Python is in {hidden}, which services cannot see", "install into /opt/foliot"))
    if not systemd_units.manager_runs():
        found.append(
            level("systemd", "does not run on this host", "start probe and agent otherwise, see docs/hosts.md")
        )
    return tuple(found)
