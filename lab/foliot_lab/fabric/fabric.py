"""Builds the planned fabric for real: namespaces, virtual wires, rates, routes with ECMP."""

from __future__ import annotations

import re
import socket
import subprocess
from typing import TYPE_CHECKING

from foliot_lab.fabric.iproute import IP, TC
from foliot_lab.fabric.link_shaping import Shape, shape_command
from foliot_lab.fabric.namespaces import Namespace, inside
from foliot_lab.fabric.packet_marks import mark_in_turn
from foliot_lab.fabric.rtnetlink import Rtnetlink, ask_route
from foliot_lab.fabric.sysctls import (
    EVERYWHERE,
    HOST,
    ROUTER,
    SILENT,
    pin_congestion_control,
    set_sysctls,
    settle_neighbours,
)
from foliot_lab.scenario.topology import (
    CONTROL,
    CONTROL_ADDRESS,
    FRONT_DEVICE,
    FRONT_LENGTH,
    FabricPlan,
    Link,
    Port,
    Router,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from foliot_lab.scenario.topology import Route

VXLAN_PORT = 4789
"""The port of RFC 7348. Foliot's overlay sends to it, and so does every packet whose way is asked."""
_SPRAY_TABLES = 100
"""Routing tables of leaves that spray packets have this number and more, one for each spine."""
_DESCRIPTOR = re.compile(r"/proc/self/fd/(\d+)")


class FabricError(RuntimeError):
    """The kernel did not build what was planned; the message says which step it refused."""


class Fabric:
    """A fabric that is up. It disappears when it is closed, or when the process ends for whatever reason."""

    def __init__(self, plan: FabricPlan, control: Namespace) -> None:
        self.plan = plan
        self.control = control
        self._namespaces: dict[str, Namespace] = {CONTROL: control}
        self._netlink: dict[str, Rtnetlink] = {}
        self._indexes = {(port.owner, port.device): port.index for ports in plan.ports.values() for port in ports}

    @classmethod
    def build(cls, plan: FabricPlan, control: Namespace) -> Fabric:
        """Build it around the control namespace, in which the frontend's bridge will be.

        Raises:
            FabricError: the kernel refused a step.
            OSError: it does not permit namespaces.
        """
        fabric = cls(plan, control)
        try:
            fabric._make_namespaces()
            run_batch(control, IP, fabric._wires())
            fabric._configure()
        except BaseException:
            fabric.close()
            raise
        return fabric

    def namespace(self, name: str) -> Namespace:
        """The namespace of a host ("node3"), of a router ("rail0.leaf1") or "control".

        Raises:
            KeyError: there is none of that name.
        """
        return self._namespaces[name]

    def namespaces(self) -> tuple[Namespace, ...]:
        """All of them, while it is up."""
        return tuple(self._namespaces.values())

    def host(self, name: str) -> Namespace:
        """The namespace of a host.

        Raises:
            KeyError: there is no such host.
        """
        if name not in self.plan.hosts:
            raise KeyError(f"no host {name!r} in this fabric")
        return self._namespaces[name]

    def netlink(self, port: Port) -> Rtnetlink:
        """The routing socket of a port's namespace.

        Raises:
            KeyError: there is no such port, or the fabric is closed.
        """
        return self._netlink[port.owner]

    def index(self, port: Port) -> int:
        """The index of a port's device as it is now: as planned, until the device is made anew.

        Raises:
            KeyError: there is no such port.
        """
        return self._indexes[port.owner, port.device]

    def make_anew(self, link: Link) -> None:
        """Makes a NIC's wire again after its device was deleted, as its host's network configuration would.

        The device gets its old name, address, route and rate. Its index is a new one, which no device had before; the
        switch's port keeps its own. The NIC is up and waits for its carrier, because the switch's port is down.

        Raises:
            FabricError: the kernel refused a step; the device is there already, for one.
        """
        near = (link.near.owner, link.near.device)
        fresh = max(self._indexes.values()) + 1
        run_batch(self.control, IP, [self._wire(link, fresh)])
        self._indexes[near] = fresh
        shape = Shape(rate_mbps=self.plan.link_mbps, queue_packets=self.plan.queue_packets)
        for port, router in ((link.far, True), (link.near, False)):
            namespace = self._namespaces[port.owner]
            run_batch(namespace, TC, _shape_lines([port], shape, faults=router))
            lines = [f"addr add {port.address} dev {port.device}"]
            if not router:
                # The host's agent puts such routes back too, and may be first.
                routes = (_route_line(route, "replace") for route in port.routes)
                lines += [f"link set {port.device} up", *routes]
            run_batch(namespace, IP, lines)
            with inside(namespace):
                settle_neighbours(port.device)

    def spine(
        self,
        source: str,
        destination: str,
        rail: str,
        source_port: int,
        destination_port: int = VXLAN_PORT,
        *,
        protocol: int = socket.IPPROTO_UDP,
    ) -> str | None:
        """The spine that carries packets of these ports between two NICs, as the leaf's kernel says; None: same leaf.

        Raises:
            KeyError: there is no such NIC.
            OSError: the leaf has no route.
        """
        leaf = self.plan.leaf(source, rail)
        if leaf == self.plan.leaf(destination, rail):
            return None
        ends = (self.plan.underlay(source, rail), self.plan.underlay(destination, rail))
        arrives_on = self.plan.links[f"{source}.{rail}"].far
        question = ask_route(*ends, arrives_on.index, protocol, (source_port, destination_port))
        output = self.netlink(arrives_on).output_device(question)
        device = next(port.device for port in self.plan.ports[leaf] if port.index == output)
        return f"{rail}.{device}"

    def close(self) -> None:
        """Closes everything but the control namespace, which is the process's own. May be called twice."""
        for netlink in self._netlink.values():
            netlink.close()
        self._netlink.clear()
        for name, namespace in self._namespaces.items():
            if name != CONTROL:
                namespace.close()

    def _make_namespaces(self) -> None:
        seeds = {router.name: router.hash_seed for router in self.plan.routers}
        for name in (*self.plan.hosts, *self.plan.central, *seeds):
            self._namespaces[name] = Namespace.make(name)
        for name, namespace in self._namespaces.items():
            with inside(namespace):
                set_sysctls(EVERYWHERE)
                if name in seeds:
                    set_sysctls({**ROUTER, "net/ipv4/fib_multipath_hash_seed": str(seeds[name])})
                    if not self.plan.icmp:
                        set_sysctls(SILENT)
                elif name in self.plan.hosts:
                    set_sysctls(HOST)
                    pin_congestion_control()

    def _wires(self) -> list[str]:
        lines = [
            f"link add {FRONT_DEVICE} type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
            f"addr add {CONTROL_ADDRESS}/{FRONT_LENGTH} dev {FRONT_DEVICE}",
            f"link set {FRONT_DEVICE} up",
            "link set lo up",
        ]
        for host in (*self.plan.hosts, *self.plan.central):
            lines.append(f"link add {self._end(host, FRONT_DEVICE)} type veth peer {self._end(CONTROL, host)}")
            lines.append(f"link set {host} master {FRONT_DEVICE} up")
        return lines + [self._wire(link, link.near.index) for link in self.plan.links.values()]

    def _wire(self, link: Link, near_index: int) -> str:
        near, far = (
            f"index {index} {self._end(port.owner, port.device)}"
            for port, index in ((link.near, near_index), (link.far, link.far.index))
        )
        return f"link add {near} type veth peer {far}"

    def _end(self, owner: str, device: str) -> str:
        # One queue: the kernel would make as many as there are processors, and reorder among them.
        return f"name {device} netns /proc/self/fd/{self._namespaces[owner].fd} numtxqueues 1 numrxqueues 1"

    def _configure(self) -> None:
        routers = {router.name: router for router in self.plan.routers}
        for name in self.plan.central:
            run_batch(self._namespaces[name], IP, ["link set lo up", *self._front_lines(name)])
        shape = Shape(rate_mbps=self.plan.link_mbps, queue_packets=self.plan.queue_packets)
        for name, ports in self.plan.ports.items():
            namespace = self._namespaces[name]
            run_batch(namespace, IP, _address_lines(ports, routers.get(name), self._front_lines(name)))
            run_batch(namespace, TC, _shape_lines(ports, shape, faults=name in routers))
            if name in routers and routers[name].sprayed:
                _spray(namespace, routers[name])
            self._netlink[name] = Rtnetlink(namespace)
            with inside(namespace):
                for port in ports:
                    settle_neighbours(port.device)

    def _front_lines(self, name: str) -> list[str]:
        if name not in (*self.plan.hosts, *self.plan.central):
            return []
        return [
            f"addr add {self.plan.front(name)}/{FRONT_LENGTH} dev {FRONT_DEVICE}",
            f"link set {FRONT_DEVICE} up",
        ]


def _address_lines(ports: Iterable[Port], router: Router | None, front: list[str]) -> list[str]:
    lines = ["link set lo up", *front]
    routes: list[Route] = []
    for port in ports:
        lines += [f"addr add {port.address} dev {port.device}", f"link set {port.device} up"]
        routes += port.routes
    return lines + [_route_line(route) for route in (*routes, *(router.routes if router else ()))]


def _spray(namespace: Namespace, router: Router) -> None:
    """Has a leaf mark packets in turn, and send each by the routes of its mark. None for its own hosts is there."""
    lines = []
    for mark, routes in enumerate(router.sprayed, start=1):
        table = _SPRAY_TABLES + mark
        lines.append(f"rule add fwmark {mark} lookup {table} priority {table}")
        lines += [f"{_route_line(route)} table {table}" for route in routes]
    run_batch(namespace, IP, lines)
    try:
        mark_in_turn(namespace, len(router.sprayed))
    except OSError as error:
        raise FabricError(f"{router.name} cannot spray packets by nftables: {error}") from error


def _route_line(route: Route, verb: str = "add") -> str:
    if not route.gateways:
        return f"route {verb} blackhole {route.prefix} proto static"
    if len(route.gateways) == 1:
        gateway, device = route.gateways[0]
        return f"route {verb} {route.prefix} via {gateway} dev {device} proto static"
    hops = " ".join(f"nexthop via {gateway} dev {device} weight 1" for gateway, device in route.gateways)
    return f"route {verb} {route.prefix} proto static {hops}"


def _shape_lines(ports: Iterable[Port], shape: Shape, *, faults: bool) -> list[str]:
    lines = []
    for port in ports:
        lines.append(shape_command(port.device, shape))
        if faults:  # A fault attaches its filter here; an empty one costs a packet nothing.
            lines.append(f"qdisc add dev {port.device} clsact")
    return lines


def run_batch(namespace: Namespace, tool: str, lines: Sequence[str]) -> None:
    """Has `ip` or `tc` carry out these lines there, with the descriptors that they name.

    Raises:
        FabricError: the kernel refused one.
    """
    descriptors = {int(number) for line in lines for number in _DESCRIPTOR.findall(line)}
    with inside(namespace):
        done = subprocess.run(
            [tool, "-batch", "-"], input="\n".join(lines) + "\n", text=True, capture_output=True, check=False,
            pass_fds=tuple(descriptors),
        )  # fmt: skip
    if done.returncode != 0:
        raise FabricError(f"{tool} in {namespace.name}: {done.stderr.strip()}")
