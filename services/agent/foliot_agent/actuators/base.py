"""The interfaces by which traffic is moved: of service addresses, and of any other class.

What moves service addresses is in `foliot_agent.actuators.overlay`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

    from foliot_agent.core.routing_table import Destination, RoutingTable
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
