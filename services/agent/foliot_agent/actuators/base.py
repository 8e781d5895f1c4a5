"""The interfaces by which traffic is moved: of service addresses, and of any other class; and the maker that only records.

The overlay's maker, which moves real traffic, is in `foliot_agent.actuators.overlay`.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Protocol, Self

from foliot_agent.core import overlay_layout
from foliot_agent.core.routing_table import RoutingTable, destination_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_agent.core.routing_table import Destination
    from foliot_agent.kernel.dry_run import Change
    from foliot_schemas import Confirmation, Node, Placement


class ActuatorError(Exception):
    """The kernel refused a change; the message says which. What was changed before it stays, and `routing` has it."""


class Actuator(Protocol):
    """Moves one class of traffic that is none of service addresses: queue pairs, sockets, marks.

    A placement's `key` names what is moved, in the actuator's own words; peer, rail, via and entropy are the way, as everywhere.
    """

    traffic: str
    """The class, as orders name it."""

    async def __aenter__(self) -> Self:
        """Takes what it needs of the host, and finds what an earlier run left in force."""

    async def __aexit__(self, *_: object) -> None:
        """Leaves everything in force."""

    async def join(self, peer: Node) -> None:
        """There may be traffic to this peer."""

    async def leave(self, peer: Node) -> None:
        """There is none any more."""

    def check(self, placement: Placement) -> str:
        """What speaks against a placement, in words; empty: nothing."""

    def present(self, placements: Iterable[Placement]) -> tuple[Placement, ...]:
        """What is in force for the keys of these; those that have nothing in force are left out."""

    async def set_placements(self, placements: Iterable[Placement]) -> None:
        """Puts these in force.

        Raises:
            ActuatorError: the host refuses one; what was put before it stays.
        """

    async def confirm(self, placements: Iterable[Placement]) -> list[Confirmation]:
        """Those whose traffic was seen to go the way that they say."""

    async def rehearse(self) -> tuple[Change, ...]:
        """What entering it would change on this host, which stays as it is."""


class ServiceAddressActuator(Protocol):
    """Moves traffic to service addresses: single destinations by a route each (overlay), all of a rail by one rule (rail).

    Every method leaves `routing` as it is in force, also when it raises `ActuatorError`.
    """

    routing: RoutingTable

    async def welcome(self, peer: Node) -> None:
        """Routes to a peer: those found in force, else home."""

    async def dismiss(self, peer: Node) -> None:
        """No routes to a peer any more."""

    async def set_placements(self, placements: Iterable[Placement], *, ahead: bool = False) -> tuple[Placement, ...]:
        """Makes these the ways in force, and returns those in force before, which undo it.

        With `ahead`, those of a rail that is away are only laid ready for its coming back.
        """

    async def arm(self, backups: Iterable[Placement]) -> None:
        """Makes these the backups of their destinations."""

    async def disarm(self, destinations: Iterable[Destination]) -> None:
        """Takes the backups of these destinations away, but for those of a rail that is away: they are in use."""

    async def away(self, rail: str) -> bool:
        """Sends a rail's traffic by its backups; False: it went there already. `back` undoes it."""

    async def back(self, rail: str) -> bool:
        """Sends a rail's traffic by its placements; False: it went there already. `away` undoes it."""

    async def renew(self, destinations: Iterable[Destination]) -> None:
        """Puts what is in force for these destinations, and their backups, once more: a device was lost with all on it, and made again."""


class EmulatedActuator:
    """Records what would be done: for simulations, and machines that permit nothing.

    It needs no NIC. What the overlay would tell a host's kernel is another question, which `foliot_agent.kernel.dry_run` answers.

    `counts` has the messages that the kernel would have got: routes, rules.
    """

    def __init__(self, layout: overlay_layout.Layout) -> None:
        self.routing = RoutingTable()
        self.counts: collections.Counter[str] = collections.Counter()
        self._layout = layout

    async def welcome(self, peer: Node) -> None:
        """See `ServiceAddressActuator`."""
        self.routing.rails[peer.name] = overlay_layout.shared_rails(self._layout, peer)
        for placement in overlay_layout.home(self._layout, peer):
            if destination_of(placement) not in self.routing.placements:
                self.counts["routes"] += 1
                self.routing.placements[destination_of(placement)] = placement

    async def dismiss(self, peer: Node) -> None:
        """See `ServiceAddressActuator`."""
        self.routing.forget(peer.name)

    async def set_placements(self, placements: Iterable[Placement], *, ahead: bool = False) -> tuple[Placement, ...]:
        """See `ServiceAddressActuator`."""
        before = []
        for placement in placements:
            destination = destination_of(placement)
            present = self.routing.way(destination)
            before.extend([present] if present is not None else [])
            self._put(self.routing.placements, placement)
            if not ahead and placement.rail in self.routing.away and destination in self.routing.backups:
                self._put(self.routing.backups, placement)
        return tuple(before)

    async def arm(self, backups: Iterable[Placement]) -> None:
        """See `ServiceAddressActuator`."""
        for backup in backups:
            self._put(self.routing.backups, backup)

    async def disarm(self, destinations: Iterable[Destination]) -> None:
        """See `ServiceAddressActuator`."""
        for destination in destinations:
            if destination in self.routing.backups and destination[1] not in self.routing.away:
                self.counts["routes"] += 1
                del self.routing.backups[destination]

    async def away(self, rail: str) -> bool:
        """See `ServiceAddressActuator`."""
        return self._turn(rail, away=True)

    async def back(self, rail: str) -> bool:
        """See `ServiceAddressActuator`."""
        return self._turn(rail, away=False)

    async def renew(self, destinations: Iterable[Destination]) -> None:
        """See `ServiceAddressActuator`."""

    def _put(self, kept: dict[tuple[str, str], Placement], placement: Placement) -> None:
        if kept.get(destination_of(placement)) != placement:
            self.counts["routes"] += 1
            kept[destination_of(placement)] = placement

    def _turn(self, rail: str, *, away: bool) -> bool:
        if away == (rail in self.routing.away):
            return False
        self.counts["rules"] += 1
        (self.routing.away.add if away else self.routing.away.discard)(rail)
        return True
