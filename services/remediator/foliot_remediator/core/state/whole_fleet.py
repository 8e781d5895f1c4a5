"""What one of several shards knows of the whole fleet: by the buckets, and by what senders say of flows and routers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foliot.link_map import LinkMap
from foliot_remediator.core.state.flow_reports import FlowReports
from foliot_remediator.core.state.homes import Homes
from foliot_remediator.core.state.inventory import Inventory
from foliot_remediator.core.state.routing_table import Cause, RoutingTable
from foliot_schemas import Node, NodeHomes, NodePaths

if TYPE_CHECKING:
    from foliot_remediator.settings import RemediatorSettings


class WholeFleet:
    """The nodes of all shards, and which way all traffic goes. Nothing here is commanded.

    It knows no health of paths. Each shard knows that of its own, and refuses a way that it does not hear.
    """

    def __init__(self, settings: RemediatorSettings) -> None:
        self.inventory = Inventory()
        self.homes = Homes(self.inventory, settings)
        self.routing = RoutingTable(self.homes.of)
        self.flows = FlowReports(self.inventory)
        self.links = LinkMap()

    def begin_anew(self) -> None:
        """Forgets links: nodes told of changes while nobody listened. All of them tell each half minute."""
        for node in self.inventory.nodes:
            self.links.forget(node)

    def forget_revisions(self, *, above: int) -> None:
        """Forgets revisions of leases that the bus has not given."""
        self.homes.forget_revisions(above=above)
        self.routing.forget_revisions(above=above)

    def take(self, value: Node | NodeHomes | NodePaths, now_ns: int) -> None:
        """Takes a value of a bucket."""
        if isinstance(value, Node):
            self._take_node(value)
        elif isinstance(value, NodeHomes):
            self._take_homes(value)
        else:
            self._take_paths(value, now_ns)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _take_node(self, node: Node) -> None:
        """Takes a node's record; without NICs it means that the node has left."""
        known, before = self.inventory.nodes.get(node.name), [*self.inventory.neighbours(node.name)]
        if not self.inventory.learn(node):
            return
        self.links.forget(node.name)  # it tells its paths again
        for nic in () if known is None else known.nics:
            if nic.name not in self.inventory.nics:
                self.flows.forget_nic(nic.name)
        if not node.nics:
            self.routing.forget(node.name, before)
            self.flows.forget(node.name)

    def _take_homes(self, homes: NodeHomes) -> None:
        """Takes a value of the bucket, but none of an older lease than the node's last."""
        if homes.lease_revision < self.homes.revision(homes.node):
            return
        cause = Cause(f"home/{homes.node}", "")
        before = {each: self.routing.placed(each) for each in self.homes.changed_by(homes)}
        self.homes.learn(homes)
        for destination, way in before.items():
            if destination.node in self.inventory.nodes:
                self.routing.keep(destination, way, cause)

    def _take_paths(self, paths: NodePaths, now_ns: int) -> None:
        """Takes a value of the bucket, which names the ways of all traffic of a node."""
        if paths.node in self.inventory.nodes and self.routing.is_newest(paths, now_ns):
            self.routing.adopt(self.inventory.known_part(paths), Cause(f"told/{paths.node}", ""))
