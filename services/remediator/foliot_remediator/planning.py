"""What has to move when a NIC or path is lost, and back when it may be used again. Pure: plans, nothing decided."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from foliot_remediator.commands import Parts
from foliot_remediator.fleet import Destination, path_name
from foliot_remediator.states import State
from foliot_schemas.names import nic_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from foliot_remediator.fleet import Fleet
    from foliot_remediator.health import Health
    from foliot_remediator.placement import Chooser
    from foliot_remediator.troubles import Trouble, Troubles
    from foliot_remediator.ways import Cause, Ways
    from foliot_schemas import Placement
    from foliot_schemas.names import Path


@dataclass(slots=True)
class Plan:
    """What is wanted of each node, and what nothing can be done for."""

    parts: dict[str, Parts] = field(default_factory=dict)
    stranded: list[Destination] = field(default_factory=list)
    looked_at: int = 0
    """Destinations on the lost NIC or path."""

    def of(self, node: str) -> Parts:
        """The node's part."""
        return self.parts.setdefault(node, Parts())

    def move(self, destination: Destination, way: Placement | None) -> None:
        """Adds a move, or a destination without a way."""
        self.looked_at += 1
        if way is None:
            self.stranded.append(destination)
        else:
            self.of(destination.node).placements.append(way)


class Planner:
    """Makes plans from what is in force and what is healthy."""

    def __init__(self, fleet: Fleet, health: Health, ways: Ways, chooser: Chooser) -> None:
        self._fleet = fleet
        self._health = health
        self._ways = ways
        self._chooser = chooser

    def leave(self, trouble: Trouble, now_ns: int) -> Plan:
        """Everything that a lost NIC or path carries."""
        if trouble.is_nic:
            return self.leave_nic(trouble.who, trouble.cause, now_ns, restate=trouble.restate, by_rule=trouble.by_rule)
        path = self._fleet.path(trouble.who)
        return Plan() if path is None else self.leave_path(path, trouble, now_ns)

    def leave_nic(self, nic: str, cause: Cause, now_ns: int, *, restate: bool, by_rule: bool) -> Plan:
        """Everything that a lost NIC carries, in both directions.

        Parameters:
            restate: also what armed agents have moved for this fault already, so that their moves are confirmed and known.
            by_rule: send the rail of the NIC's own node away by its armed backups; else destination by destination.
        """
        if nic not in self._fleet.nics:
            return Plan()
        owner, lost = self._fleet.nics[nic]
        plan, ways = Plan(), self._ways
        peers = self._fleet.peers(owner, lost) if self._fleet.owns(owner) else ()
        own = [Destination(owner, peer, lost) for peer in peers]
        away = (owner, lost) in ways.away
        if not away and by_rule and self._can_leave_by_rule(own, lost, now_ns):
            away = True
            plan.of(owner).away.append(lost)
            plan.looked_at += 1
        elif restate and away and ways.away[owner, lost].fault == cause.fault:
            plan.of(owner).away.append(lost)
        for destination in own:
            self._leave_own(plan, destination, (ways.backup(destination) if away else None), now_ns)
        for destination in self._others_over(owner, lost):
            present = ways.way(destination)
            if present.via == lost:
                self._around(plan, destination, present, now_ns)
            elif restate and self._was_moved_by(destination, lost, cause):
                plan.of(destination.node).placements.append(present)
        return plan

    def leave_path(self, path: Path, trouble: Trouble, now_ns: int) -> Plan:
        """What takes exactly this path, in its direction."""
        plan = Plan()
        node, peer = self._fleet.nics[path.source][0], self._fleet.nics[path.destination][0]
        for rail in self._fleet.shared(node, peer) if self._fleet.owns(node) else ():
            destination = Destination(node, peer, rail)
            present = self._ways.way(destination)
            if path_name(node, present) == str(path):
                armed = self._ways.backup(destination)
                plan.move(destination, self._chooser.detour(destination, present, armed, trouble, now_ns))
        return plan

    def use(self, who: str, now_ns: int, *, paths_too: bool) -> Plan:
        """What a NIC, or a path too, carried before it was lost."""
        if who in self._fleet.nics:
            return self.use_nic(who, now_ns)
        path = self._fleet.path(who) if paths_too else None
        return Plan() if path is None else self.use_path(path, now_ns)

    def use_nic(self, nic: str, now_ns: int) -> Plan:
        """What a NIC carried before it was lost, as far as its path is healthy again; the rest stays where it is."""
        owner, rail = self._fleet.nics[nic]
        plan, ways = Plan(), self._ways
        if (owner, rail) in ways.away:
            plan.of(owner).back.append(rail)
            for peer in self._fleet.peers(owner, rail):
                destination = Destination(owner, peer, rail)
                primary = self._chooser.primary(destination)
                wanted = primary if self._chooser.usable(owner, primary, now_ns) else ways.way(destination)
                if ways.placed(destination) != wanted:
                    plan.move(destination, wanted)
        for destination in ways.touching(owner):
            if (destination.node, destination.rail) not in ways.away and self._primary_via(destination) == rail:
                self._home(plan, destination, now_ns)
        return plan

    def use_path(self, path: Path, now_ns: int) -> Plan:
        """What took this path before it was lost."""
        plan = Plan()
        node, peer = self._fleet.nics[path.source][0], self._fleet.nics[path.destination][0]
        for rail in self._fleet.shared(node, peer):
            destination = Destination(node, peer, rail)
            if path_name(node, self._chooser.primary(destination)) == str(path) and (node, rail) not in self._ways.away:
                self._home(plan, destination, now_ns)
        return plan

    def overdue_home(self, node: str, now_ns: int) -> dict[Cause, Plan]:
        """By what moved it away: traffic of a node whose primary way is healthy, which nobody has taken home."""
        plans: dict[Cause, Plan] = {}
        for destination in self._moved(node):
            self._home(plans.setdefault(self._ways.moved[destination][1], Plan()), destination, now_ns)
        return {cause: plan for cause, plan in plans.items() if plan.parts}

    def nearer(self, node: str, troubles: Troubles, now_ns: int) -> list[tuple[Trouble, Plan]]:
        """What a path's trouble sent from its own rail to another, of a node, where the rail has a path that was heard since.

        In the first moments it is seldom known of any but those in use, which are probed often. The other rail has traffic of its own, and half of the capacity is worth a second move.
        """
        plans: dict[str, tuple[Trouble, Plan]] = {}
        for destination in self._moved(node):
            primary, present = self._chooser.primary(destination), self._ways.placed(destination)
            trouble = troubles.get(path_name(node, primary)) if present.via != primary.via else None
            if trouble is None:
                continue
            way = self._chooser.detour(destination, primary, self._ways.backup(destination), trouble, now_ns)
            if way is not None and way.via == primary.via:
                plans.setdefault(trouble.who, (trouble, Plan()))[1].move(destination, way)
        return list(plans.values())

    def overdue_back(self, node: str) -> Iterator[tuple[str, Cause]]:
        """NICs of a node that are away although they are up, which nobody has taken back, and what sent them away."""
        for rail in self._fleet.rails(node):
            nic, cause = nic_name(node, rail), self._ways.away.get((node, rail))
            if cause is not None and self._health.nic_state(nic) is State.UP:
                yield nic, cause

    # -- inside -------------------------------------------------------------------------------------------------------

    def _moved(self, node: str) -> Iterator[Destination]:
        """What a node sends another way than the primary one, but for rails that are away as a whole."""
        for destination in self._ways.touching(node):
            if destination.node == node and (node, destination.rail) not in self._ways.away:
                yield destination

    def _can_leave_by_rule(self, own: list[Destination], lost: str, now_ns: int) -> bool:
        """Whether the rail carries anything, and at least one of its backups is healthy: agents ask for as much."""
        carries = any(self._ways.way(destination).via == lost for destination in own)
        backups = [(each.node, self._ways.backup(each)) for each in own]
        return carries and any(
            backup is not None and self._chooser.usable(node, backup, now_ns) for node, backup in backups
        )

    def _leave_own(self, plan: Plan, destination: Destination, backup: Placement | None, now_ns: int) -> None:
        """Looks at what the rule does to one address of the rail: `backup` is its way while the rail is away."""
        present = backup or self._ways.way(destination)
        if present.via == destination.rail:
            self._around(plan, destination, present, now_ns)
        elif backup is not None and not self._chooser.stands(destination.node, present, now_ns):
            # Its backup is lost too, which is another trouble to speak of; this one only takes what there is.
            self._around(plan, destination, present, now_ns, say=False)

    def _around(
        self, plan: Plan, destination: Destination, present: Placement, now_ns: int, *, say: bool = True
    ) -> None:
        way = self._chooser.alternative(destination, present, self._ways.backup(destination), now_ns)
        if way is not None or say:
            plan.move(destination, way)

    def _home(self, plan: Plan, destination: Destination, now_ns: int) -> None:
        primary = self._chooser.primary(destination)
        if self._ways.placed(destination) != primary and self._chooser.usable(destination.node, primary, now_ns):
            plan.move(destination, primary)

    def _others_over(self, owner: str, lost: str) -> Iterable[Destination]:
        """What nodes of the shard may send across the NIC, besides its own node on its own rail, without looking at the whole fleet."""
        found = {Destination(peer, owner, lost): None for peer in self._fleet.peers(owner, lost)}
        found |= {each: None for each in self._ways.touching(owner) if (each.node, each.rail) != (owner, lost)}
        fleet, away = self._fleet, self._ways.away
        for node in fleet.neighbours(owner):
            found |= {Destination(node, owner, rail): None for rail in fleet.rails(node) if (node, rail) in away}
        for rail in fleet.rails(owner):
            if rail != lost and (owner, rail) in away:
                found |= {Destination(owner, peer, rail): None for peer in fleet.peers(owner, rail)}
        own = (each for each in found if fleet.owns(each.node))
        return [each for each in own if each.rail in fleet.shared(each.node, each.peer)]

    def _was_moved_by(self, destination: Destination, lost: str, cause: Cause) -> bool:
        moved = self._ways.moved.get(destination)
        return moved is not None and moved[1].fault == cause.fault and self._primary_via(destination) == lost

    def _primary_via(self, destination: Destination) -> str:
        return self._chooser.primary(destination).via
