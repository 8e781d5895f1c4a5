"""The core: messages in, decisions out. Deterministic; the time comes with the calls."""

from __future__ import annotations

import dataclasses
import functools
import operator
from typing import TYPE_CHECKING, TypeAlias

from foliot.jobs import Jobs
from foliot.link_map import LinkMap
from foliot.node.shard import WHOLE
from foliot.runtime.extension_failures import ExtensionFailures
from foliot_remediator.core import remedies
from foliot_remediator.core.actions.coordination import Coordination
from foliot_remediator.core.actions.decision import Decider, Decision
from foliot_remediator.core.actions.fleet_view import FleetView
from foliot_remediator.core.routing.backup_arming import BackupArmer
from foliot_remediator.core.routing.path_selection import PathSelector
from foliot_remediator.core.state.flow_reports import FlowReports
from foliot_remediator.core.state.homes import Homes
from foliot_remediator.core.state.inventory import Inventory
from foliot_remediator.core.state.path_health import PathHealth
from foliot_remediator.core.state.routing_table import FIRST, Cause, RoutingTable
from foliot_remediator.core.state.whole_fleet import WholeFleet
from foliot_schemas import (
    DelayBatch,
    Drain,
    Event,
    FlowBatch,
    HopBatch,
    Job,
    MoveAnswer,
    MoveOrder,
    Node,
    NodeHomes,
    NodePaths,
    Outcome,
    PortState,
    WorkerBatch,
)
from foliot_schemas.event_kinds import CONTENTION, HANG, REFUSAL, STRAGGLER

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from foliot.node.shard import Shard
    from foliot_remediator.core.actions.remedy import Remedy, Seen
    from foliot_remediator.core.state.inventory import Destination
    from foliot_remediator.settings import RemediatorSettings
    from foliot_schemas import Placement

Action: TypeAlias = Decision | NodePaths | NodeHomes | MoveOrder | MoveAnswer
"""Paths and homes are values of their buckets, to be written. Orders and answers go to other shards."""

_OF_JOBS = frozenset({HANG.name, STRAGGLER.name})
_OF_RAILS = frozenset({CONTENTION.name, REFUSAL.name})
_AWAY_NS = 60_000_000_000
"""A node that left the fleet so long ago has left for good. Agents that restart, and a bus that lost its store, are
back in a few seconds."""


class Remediator:
    """Keeps what is known, and lets its remedies answer every message with what to publish.

    With a shard, it commands the shard's nodes alone. It knows of their peers what they exchange with the shard, and
    needs no more. Beside that, it knows enough of the whole fleet to coordinate moves, where it is elected.

    Parameters:
        shard: the nodes that it commands.
        shards: all shards, by which it finds who commands the other nodes.
    """

    def __init__(self, settings: RemediatorSettings, shard: Shard = WHOLE, shards: Sequence[Shard] = ()) -> None:
        self._shard = shard
        self.inventory = Inventory(shard)
        self.health = PathHealth(settings, self.inventory)
        self.homes = Homes(self.inventory, settings)
        selector = PathSelector(self.inventory, self.health, self.homes)
        self.routing = RoutingTable(self.homes.of)
        self.flows = FlowReports(self.inventory)
        self.links = LinkMap()
        self.jobs = Jobs()
        self.decider = Decider(settings, self.health)
        self._armer = BackupArmer(settings, self.inventory, self.routing, selector)
        self.coordination = Coordination(shard, shards)
        self.whole = WholeFleet(settings) if self.coordination.is_shared else None
        """What is known of all shards' nodes; None: this one commands all."""
        view = FleetView(
            settings, self.inventory, self.health, self.routing, self.flows, self.links, self.jobs, selector,
            self.decider, self._armer.mark_changed, self._armer.mark_affected, self.assign_home, self.coordination,
        )  # fmt: skip
        if self.whole is not None:
            view = dataclasses.replace(view, shared=_shared(view, self.whole))
        made = remedies.made(view)
        for remedy in made:
            self.decider.register(remedy.name, remedy.budget, remedy.kinds)
        self.remedies = {remedy.name: remedy for remedy in made}
        self.hears_traffic = any(getattr(remedy, "hears_traffic", False) for remedy in made)
        """Whether anybody asks what traffic there is."""
        self.failures = ExtensionFailures()
        """Failures of all remedies but the first."""
        self._deaths_over: dict[str, str] = {}
        """Per node, the fault of its probe's last death that is over."""
        self._gone: dict[str, tuple[int, set[str]]] = {}
        """Nodes that left, or left NICs behind: when, and which NICs."""

    def hold(self, revision: int, now_ns: int, *, held_by_another: bool = False) -> None:
        """Takes (> 0) or loses (0) the lease. A process that stands by knows everything and issues nothing.

        Parameters:
            held_by_another: whether another is known to hold it, who then speaks for itself.
        """
        if revision != self.decider.lease:
            self._change_hands(revision, now_ns)
        if held_by_another:
            self.decider.lost_lease = False

    def coordinate(self, terms: Mapping[str, int], led: Collection[str]) -> None:
        """Says which rails this process coordinates, by the revision of its lease, and which somebody does."""
        if self.whole is not None and terms and not self.coordination.terms:
            self.whole.begin_anew()
        self.coordination.terms, self.coordination.led = terms, led

    def forget_revisions(self, *, above: int) -> None:
        """Forgets revisions of leases that the bus has not given: it counts anew, and what had them is no newer."""
        self.homes.forget_revisions(above=above)
        self.routing.forget_revisions(above=above)
        if self.whole is not None:
            self.whole.forget_revisions(above=above)

    def _change_hands(self, revision: int, now_ns: int) -> None:
        self.decider.lost_lease = not revision
        self.decider.lease = revision
        self._rehome(self.homes.unsaved(), self.homes.lose_unsaved, Cause("home/unsaved", ""))
        if revision:
            self.decider.held = revision
            self.forget_revisions(above=revision)
            for node in self.homes.nodes():  # the holder before may not have lived to take theirs back
                if node not in self.inventory.nodes:
                    self._gone.setdefault(node, (now_ns, set()))
            self._armer.begin_anew()
            self._each(lambda remedy: remedy.hold(now_ns), now_ns)

    def observe(self, seen: Seen, now_ns: int) -> list[Action]:
        """Takes a message. A message about a node counts only if the inventory has that node.

        Raises:
            ValueError: a batch does not fit together.
        """
        news: Collection[str] = ()
        is_of_rails = self._concerns_rails(seen, now_ns)
        match seen:
            case Event() if self.inventory.concerns(seen.who):
                self._take_process(seen)
            case DelayBatch() if seen.node in self.inventory.nodes:
                news = self.health.take_delays(seen, now_ns)
            case PortState() if self.inventory.has_nic(seen.nic, seen.node):
                self.health.take_port(seen, now_ns)
                news = (seen.nic,)
            case Outcome() if seen.node in self.inventory.nodes and self.inventory.owns(seen.node):
                sent = self.decider.ledger.settle(seen.command)
                if sent is not None:
                    return self._ask(sent.remedy, lambda remedy: remedy.settle(sent, seen, now_ns), now_ns)
            case Node() | Job():
                self._take_record(seen, now_ns)
            case NodeHomes() if self.inventory.owns(seen.node):
                self._take_homes(seen)
            case NodePaths() if seen.node in self.inventory.nodes and self.inventory.owns(seen.node):
                self._take_paths(seen, now_ns)
            case _ if not (is_of_rails or self._concerns_jobs(seen)):
                return []
        return self._each(lambda remedy: remedy.observe(seen, news, now_ns), now_ns)

    def tick(self, now_ns: int) -> list[Action]:
        """Takes the passing of time, and renews backups."""
        self._forget(now_ns)
        self.jobs.expire(now_ns)
        lease = self.decider.lease
        overdue = self.decider.ledger.overdue(now_ns) if lease else []
        actions = self._each(
            lambda remedy: remedy.tick([sent for sent in overdue if sent.remedy == remedy.name], now_ns), now_ns
        )
        if lease:
            actions += self._armer.write(lease, now_ns)
            actions += self.homes.due(lease, now_ns)
        return actions

    def assign_home(self, destination: Destination, way: Placement | None, cause: Cause) -> bool:
        """Chooses where a destination's traffic belongs, or with None leaves that to the default again.

        The way in force stays until the traffic is taken home, as after a loss. A lost NIC or path is left whatever its
        traffic's home.

        Returns False, and does nothing, while another holds the lease or a thousand choices wait to be written. So it
        does where the inventory does not have the node. That is to be tried again.
        """
        if not (self.decider.lease and destination.node in self.inventory.nodes and self.homes.has_room()):
            return False
        self._rehome([destination], functools.partial(self.homes.choose, destination, way), cause)
        return True

    # -- what there is ------------------------------------------------------------------------------------------------

    def _take_process(self, event: Event) -> None:
        """Takes that a probe died or lives.

        That it died counts no more once the same death is over, however late it comes.
        """
        node = event.who.partition("/")[0]
        if event.kind != "process" or node not in self.inventory.nodes:
            return
        if event.state != "dead":
            self.health.dead.discard(node)
            self._deaths_over[node] = event.fault
        elif not event.fault or self._deaths_over.get(node) != event.fault:
            self.health.dead.add(node)

    def _concerns_rails(self, seen: Seen, now_ns: int) -> bool:
        """Takes what concerns whole rails, whoever commands their nodes; says whether remedies are to hear of it."""
        match seen:
            case FlowBatch() | HopBatch():
                return self._take_traffic(seen, now_ns)
            case MoveOrder() | MoveAnswer() | Event() if self.whole is not None:
                # A link is no shard's own, nor is what came of a move off it.
                return seen.kind in _OF_RAILS if isinstance(seen, Event) else self._is_for_us(seen)
            case Node() | NodeHomes() | NodePaths() if self.whole is not None:
                self.whole.take(seen, now_ns)
        return False

    def _concerns_jobs(self, seen: Seen) -> bool:
        """Whether it is about jobs, which may have nodes of every shard; or about a node that may join yet."""
        if isinstance(seen, WorkerBatch):
            return seen.node in self.inventory.nodes
        return isinstance(seen, Drain) or (isinstance(seen, Event) and seen.kind in _OF_JOBS)

    def _is_for_us(self, seen: MoveOrder | MoveAnswer) -> bool:
        return isinstance(seen, MoveAnswer) or seen.shard == self.coordination.role

    def _take_traffic(self, seen: FlowBatch | HopBatch, now_ns: int) -> bool:
        """Takes what a node sends, or over which routers its paths go; False: the fleet does not have it."""
        fleet = self if self.whole is None else self.whole
        if seen.node not in fleet.inventory.nodes:
            return False
        if isinstance(seen, FlowBatch):
            fleet.flows.take(seen, self.health.reports.here_ns(seen.node, seen.at_ns, now_ns), now_ns)
        else:
            fleet.links.take(seen, fleet.inventory.has_path)
        return True

    def _take_record(self, seen: Node | Job, now_ns: int) -> None:
        """Takes which NICs a node has, or which a job."""
        if isinstance(seen, Node):
            self._take_node(self._shard.narrow(seen), now_ns)
        else:
            self.jobs.take(seen, now_ns, self.inventory.nics if self.whole is None else self.whole.inventory.nics)

    def _take_node(self, node: Node, now_ns: int) -> None:
        known = self.inventory.nodes.get(node.name)
        before = [*self.inventory.neighbours(node.name)]
        paths = [*self.inventory.paths_of(node.name)] if known is not None and _reach(known) != _reach(node) else []
        if not self.inventory.learn(node):
            return
        gone = [path for path in paths if not self.inventory.has_path(path)]
        self.health.forget_paths(gone)
        self.links.forget_paths(gone)
        for nic in () if known is None else known.nics:
            if nic.name not in self.inventory.nics:
                self.flows.forget_nic(nic.name)
        if not node.nics:
            self.routing.forget(node.name, before)
            self.health.leave(node.name)
            self.links.forget(node.name)
            self.flows.forget(node.name)
            self._deaths_over.pop(node.name, None)
            self._armer.leave(node.name)
        elif known is None and self.inventory.owns(node.name):
            self._armer.join(node.name)
        if known is not None and (left := {nic.name for nic in known.nics} - self.inventory.nics.keys()):
            _, left_before = self._gone.pop(node.name, (0, set()))
            self._gone[node.name] = now_ns, left | left_before
        if self.decider.lease:  # who takes it over looks at all of them anyway
            self._armer.mark_affected((*before, *self.inventory.neighbours(node.name), node.name))

    def _forget(self, now_ns: int) -> None:
        """Forgets what befell nodes and NICs that left long enough ago."""
        while self._gone:
            node, (at_ns, left) = next(iter(self._gone.items()))
            if now_ns - at_ns < _AWAY_NS:
                return
            del self._gone[node]
            nics = left.difference(self.inventory.nics)
            for nic in nics:
                self.health.forget(nic)
            self._each(operator.methodcaller("forget", nics), now_ns)
            if node not in self.inventory.nodes:
                if self.decider.lease:
                    self.homes.leave(node)
                self.homes.forget_revision(node)
                self._each(operator.methodcaller("forget_node", node), now_ns)

    def _take_homes(self, homes: NodeHomes) -> None:
        """Takes a value of the bucket, also before the node is known, but none of an older lease than the last.

        If a former holder's came late, the holder writes its own anew: whoever starts would read the other.
        """
        if homes.lease_revision >= self.homes.revision(homes.node):
            learn = functools.partial(self.homes.learn, homes)
            self._rehome(self.homes.changed_by(homes), learn, Cause(f"home/{homes.node}", ""))
        elif homes.lease_revision < self.decider.lease:
            self.homes.write_anew(homes.node)
        if homes.node not in self.inventory.nodes and homes.node not in self._gone:
            self.homes.forget_revision(homes.node)

    def _rehome(self, destinations: Iterable[Destination], change: Callable[[], None], cause: Cause) -> None:
        """Changes homes; the ways in force of these destinations stay what they are."""
        before = {each: self.routing.placed(each) for each in destinations if each.node in self.inventory.nodes}
        change()
        for destination, way in before.items():
            self.routing.keep(destination, way, cause)

    def _take_paths(self, paths: NodePaths, now_ns: int) -> None:
        """Takes the newest value of the bucket, unless this process holds the lease.

        Then it has written the value itself, or writes it anew.
        """
        if paths.lease_revision > self.decider.held:
            self.decider.lost_lease = False  # somebody else has taken over, and speaks for itself
        is_newest, is_own = self.routing.is_newest(paths, now_ns), paths.lease_revision == self.decider.held
        if paths.lease_revision < self.decider.lease:
            # A former holder's that came late. A process that starts would read it.
            self._armer.stored(paths)
            self._armer.mark_affected((paths.node,))
        # When the bus is back, the bucket tells all its values once more. That must not undo what nodes did by
        # themselves meanwhile.
        elif not self.decider.lease and is_newest and self._armer.stored(paths) and not is_own:
            self.routing.adopt(self.inventory.known_part(paths), Cause(f"adopted/{paths.node}", ""))

    def _each(self, ask: Callable[[Remedy], Iterable[Decision] | None], now_ns: int) -> list[Action]:
        """Lets every remedy speak."""
        return [action for name in self.remedies for action in self._ask(name, ask, now_ns)]

    def _ask(self, name: str, ask: Callable[[Remedy], Iterable[Decision] | None], now_ns: int) -> list[Action]:
        """Lets a remedy speak.

        If another than the first fails, it is passed over and noted in `failures`: failover goes on.
        """
        try:
            made = [*(ask(self.remedies[name]) or ())]
            if made:
                self._armer.mark_changed(
                    command.node for decision in made for command in decision.commands if not command.advice
                )
        except Exception as error:
            if name == FIRST:
                raise
            self.failures.note(name, error, now_ns)
            return []
        return [*made, *self.coordination.outgoing()]


def _shared(view: FleetView, whole: WholeFleet) -> FleetView:
    """What is known of the whole fleet, in place of what is known of a shard."""
    selector = PathSelector(whole.inventory, view.health, whole.homes, view.inventory.owns)
    return dataclasses.replace(
        view, inventory=whole.inventory, routing=whole.routing, flows=whole.flows, links=whole.links, selector=selector
    )


def _reach(node: Node) -> tuple[object, ...]:
    """The part of a node's record that decides which paths there are."""
    return node.peers, *((nic.name, nic.rail, len(nic.entropies)) for nic in node.nics)
