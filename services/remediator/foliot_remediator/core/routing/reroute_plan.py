"""Plans of the traffic that has to move when a NIC or path is lost, and back when it may be used again."""

from __future__ import annotations

import collections
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from foliot_remediator.core.state.inventory import Destination, path_name
from foliot_remediator.core.state.state_machine import State
from foliot_schemas.names import nic_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from foliot_remediator.core.routing.path_selection import PathSelector
    from foliot_remediator.core.state.incidents import Incident
    from foliot_remediator.core.state.inventory import Inventory
    from foliot_remediator.core.state.path_health import PathHealth
    from foliot_remediator.core.state.retention import Retained
    from foliot_remediator.core.state.routing_table import Cause, RoutingTable
    from foliot_schemas import Placement, Reroute, Restore


@dataclass(slots=True)
class NodeChanges:
    """The changes that are wanted of one node."""

    away: list[str] = field(default_factory=list)
    back: list[str] = field(default_factory=list)
    placements: list[Placement] = field(default_factory=list)

    @property
    def moves(self) -> int:
        """Service addresses, or whole rails, that it sends another way."""
        return len(self.away) + len(self.back) + len(self.placements)

    def order(self, kind: type[Reroute | Restore]) -> Reroute | Restore:
        """The same as an order."""
        return kind(away=tuple(self.away), back=tuple(self.back), placements=tuple(self.placements))


@dataclass(slots=True)
class ReroutePlan:
    """The changes that are wanted of each node, and the destinations for which nothing can be done."""

    parts: collections.defaultdict[str, NodeChanges] = field(
        default_factory=lambda: collections.defaultdict(NodeChanges)
    )
    stranded: list[Destination] = field(default_factory=list)
    looked_at: int = 0
    """Destinations on the lost NIC or path."""

    def move(self, destination: Destination, way: Placement | None) -> None:
        """Adds a move, or a destination without a way."""
        self.looked_at += 1
        if way is None:
            self.stranded.append(destination)
        else:
            self.parts[destination.node].placements.append(way)


class ReroutePlanner:
    """Makes plans from what is in force and what is healthy."""

    def __init__(self, inventory: Inventory, health: PathHealth, routing: RoutingTable, selector: PathSelector) -> None:
        self._inventory = inventory
        self._health = health
        self._routing = routing
        self._selector = selector

    def leave(self, incident: Incident, now_ns: int) -> ReroutePlan:
        """Everything that a lost NIC or path carries."""
        return (self._leave_nic if incident.is_nic else self._leave_path)(incident, now_ns)

    def _leave_nic(self, incident: Incident, now_ns: int) -> ReroutePlan:
        """Everything that a lost NIC carries, in both directions.

        With `by_rule`, its own node's rail goes by the armed backups; otherwise each destination moves by itself.
        """
        if incident.who not in self._inventory.nics:
            return ReroutePlan()
        (owner, lost), cause, restate = self._inventory.nics[incident.who], incident.cause, incident.restate
        plan, routing = ReroutePlan(), self._routing
        peers = self._inventory.peers(owner, lost) if self._inventory.owns(owner) else ()
        own = [Destination(owner, peer, lost) for peer in peers]
        away = (owner, lost) in routing.away
        if not away and incident.by_rule and self._can_leave_by_rule(own, lost, now_ns):
            away = True
            plan.parts[owner].away.append(lost)
            plan.looked_at += 1
        elif restate and away and routing.away[owner, lost].fault == cause.fault:
            plan.parts[owner].away.append(lost)
        for destination in own:
            self._leave_own(plan, destination, (routing.backup(destination) if away else None), now_ns)
        for destination in self._others_over(owner, lost):
            present = routing.way(destination)
            if present.via == lost:
                self._around(plan, destination, present, now_ns)
            elif restate and self._was_moved_by(destination, lost, cause):
                plan.parts[destination.node].placements.append(present)
        return plan

    def _leave_path(self, incident: Incident, now_ns: int) -> ReroutePlan:
        """The traffic that takes exactly this path, in its direction."""
        plan, path = ReroutePlan(), self._inventory.path(incident.who)
        if path is None:
            return plan
        node, peer = self._inventory.nics[path.source][0], self._inventory.nics[path.destination][0]
        for rail in self._inventory.shared(node, peer) if self._inventory.owns(node) else ():
            destination = Destination(node, peer, rail)
            present = self._routing.way(destination)
            if path_name(node, present) == str(path):
                armed = self._routing.backup(destination)
                plan.move(destination, self._selector.detour(destination, present, armed, incident, now_ns))
        return plan

    def use(self, who: str, now_ns: int) -> ReroutePlan:
        """The traffic that a NIC or path carried before it was lost."""
        if who in self._inventory.nics:
            return self.use_nic(who, now_ns)
        plan = ReroutePlan()
        for destination in self._at_home_on(who):
            if (destination.node, destination.rail) not in self._routing.away:
                self._home(plan, destination, now_ns)
        return plan

    def use_nic(self, nic: str, now_ns: int) -> ReroutePlan:
        """The traffic that a NIC carried before it was lost, as far as its path is healthy again; the rest stays."""
        owner, rail = self._inventory.nics[nic]
        plan, routing = ReroutePlan(), self._routing
        if (owner, rail) in routing.away:
            plan.parts[owner].back.append(rail)
            for peer in self._inventory.peers(owner, rail):
                destination = Destination(owner, peer, rail)
                home = self._selector.homes.of(destination)
                wanted = home if self._selector.usable(owner, home, now_ns) else routing.way(destination)
                if routing.placed(destination) != wanted:
                    plan.move(destination, wanted)
        for destination in routing.touching(owner):
            if (destination.node, destination.rail) not in routing.away and self._home_via(destination) == rail:
                self._home(plan, destination, now_ns)
        return plan

    def cause_of(self, who: str) -> Cause | None:
        """The cause for which a path's traffic goes elsewhere, if a fault is known; None: it is not, or none does."""
        moved = [self._routing.moved.get(each) for each in self._at_home_on(who)]
        return next((cause for _, cause in filter(None, moved) if cause.fault), None)

    def _at_home_on(self, who: str) -> Iterator[Destination]:
        path = self._inventory.path(who)
        if path is None:
            return
        node, peer = self._inventory.nics[path.source][0], self._inventory.nics[path.destination][0]
        for rail in self._inventory.shared(node, peer):
            destination = Destination(node, peer, rail)
            if path_name(node, self._selector.homes.of(destination)) == str(path):
                yield destination

    def overdue_home(self, node: str, now_ns: int) -> dict[Cause, ReroutePlan]:
        """Traffic of a node whose home is healthy, and which nobody has taken home, by the cause that moved it away."""
        plans: dict[Cause, ReroutePlan] = {}
        for destination in self._moved(node):
            self._home(plans.setdefault(self._routing.moved[destination][1], ReroutePlan()), destination, now_ns)
        return {cause: plan for cause, plan in plans.items() if plan.parts}

    def nearer(self, node: str, incidents: Retained[str, Incident], now_ns: int) -> list[tuple[Incident, ReroutePlan]]:
        """A node's traffic that a path's trouble sent to another rail, where its own rail has a path heard since.

        In the first moments, such paths are seldom known but for those in use, which are probed often. The other rail
        has traffic of its own, and half of the capacity is worth a second move.
        """
        plans: dict[str, tuple[Incident, ReroutePlan]] = {}
        for destination in self._moved(node):
            if self._routing.is_at_home(destination):
                continue
            home, present = self._selector.homes.of(destination), self._routing.placed(destination)
            incident = incidents.get(path_name(node, home)) if present.via != home.via else None
            if incident is None:
                continue
            way = self._selector.detour(destination, home, self._routing.backup(destination), incident, now_ns)
            if way is not None and way.via == home.via:
                plans.setdefault(incident.who, (incident, ReroutePlan()))[1].move(destination, way)
        return list(plans.values())

    def overdue_back(self, node: str) -> Iterator[tuple[str, Cause]]:
        """NICs of a node that are away although they are up, and that nobody has taken back, with what sent them away.

        One that the node left by itself seems up until an event says why. So its port has to have been good since.
        """
        for rail in self._inventory.rails(node):
            nic, cause = nic_name(node, rail), self._routing.away.get((node, rail))
            if cause is None or self._health.nic_state(nic) is not State.UP:
                continue
            if not cause.left_ns or self._selector.is_proven_nic(nic, cause.left_ns):
                yield nic, cause

    # -- inside -------------------------------------------------------------------------------------------------------

    def _moved(self, node: str) -> Iterator[Destination]:
        """Destinations that a node sends another way than home, but for rails that are away as a whole."""
        for destination in self._routing.touching(node):
            if destination.node == node and (node, destination.rail) not in self._routing.away:
                yield destination

    def _can_leave_by_rule(self, own: list[Destination], lost: str, now_ns: int) -> bool:
        """Whether the rail carries anything, and at least one of its backups is healthy: agents ask for as much."""
        carries = any(self._routing.way(destination).via == lost for destination in own)
        backups = [(each.node, self._routing.backup(each)) for each in own]
        return carries and any(
            backup is not None and self._selector.usable(node, backup, now_ns) for node, backup in backups
        )

    def _leave_own(self, plan: ReroutePlan, destination: Destination, backup: Placement | None, now_ns: int) -> None:
        """Looks at what the rule does to one address of the rail: `backup` is its way while the rail is away."""
        present = backup or self._routing.way(destination)
        if present.via == destination.rail:
            self._around(plan, destination, present, now_ns)
        elif backup is not None and not self._selector.stands(destination.node, present, now_ns):
            # Its backup is lost too, which is another trouble to speak of; this one only takes what there is.
            self._around(plan, destination, present, now_ns, say=False)

    def _around(
        self, plan: ReroutePlan, destination: Destination, present: Placement, now_ns: int, *, say: bool = True
    ) -> None:
        way = self._selector.alternative(destination, present, self._routing.backup(destination), now_ns)
        if way is not None or say:
            plan.move(destination, way)

    def _home(self, plan: ReroutePlan, destination: Destination, now_ns: int) -> None:
        """Takes traffic home, where that is heard; of a node that left by itself, nothing heard before counts."""
        node, home, moved = destination.node, self._selector.homes.of(destination), self._routing.moved.get(destination)
        if moved is None or moved[0] == home or not self._selector.usable(node, home, now_ns):
            return
        if self._selector.is_proven(node, home, moved[1].left_ns):
            plan.move(destination, home)

    def _others_over(self, owner: str, lost: str) -> Iterable[Destination]:
        """Destinations that nodes of the shard may send across the NIC, besides its own node's on its own rail."""
        # Without a look at the whole fleet.
        found = {Destination(peer, owner, lost): None for peer in self._inventory.peers(owner, lost)}
        found |= {each: None for each in self._routing.touching(owner) if (each.node, each.rail) != (owner, lost)}
        found |= {each: None for each in self._selector.homes.across(owner) if (each.node, each.rail) != (owner, lost)}
        inventory, away = self._inventory, self._routing.away
        for node in inventory.neighbours(owner):
            found |= {Destination(node, owner, rail): None for rail in inventory.rails(node) if (node, rail) in away}
        for rail in inventory.rails(owner):
            if rail != lost and (owner, rail) in away:
                found |= {Destination(owner, peer, rail): None for peer in inventory.peers(owner, rail)}
        own = (each for each in found if inventory.owns(each.node))
        return [each for each in own if each.rail in inventory.shared(each.node, each.peer)]

    def _was_moved_by(self, destination: Destination, lost: str, cause: Cause) -> bool:
        if self._routing.is_at_home(destination):
            return False
        moved_by = self._routing.moved[destination][1]
        return moved_by.fault == cause.fault and self._home_via(destination) == lost

    def _home_via(self, destination: Destination) -> str:
        return self._selector.homes.of(destination).via
