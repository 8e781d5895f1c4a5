"""The wires that all tools share: hosts, routers, a bottleneck on the middle hop, and two hosts that load it.

Only the middle hop has a queue. The kernel stamps a packet after its own host's queue, so a wait there comes before the
stamp.
"""

from __future__ import annotations

import re
import subprocess
from typing import NamedTuple

from foliot_lab.fabric.fabric import run_batch
from foliot_lab.fabric.iproute import IP, TC
from foliot_lab.fabric.namespaces import Namespace, inside
from foliot_lab.fabric.sysctls import EVERYWHERE, HOST, ROUTER, set_sysctls, settle_neighbours

DEVICE = "eth0"
"""The device of a host into the network."""
RATE_MBPS = 100.0
_BOTTLENECK = f"tbf rate {RATE_MBPS:g}mbit burst 1600 limit 300000"
"""The bottleneck: one full packet may pass at once, and 24 ms of packets may wait."""
_FRONT = "front"
_FRONT_ADDRESS = "10.254.0.1"
_GATEWAY = "10.255.0.1"
_TRUNK = "trunk"
_LOADERS = 200
"""Number of the first loading host. Other hosts are numbered from 0."""

BUS = f"{_FRONT_ADDRESS}:4222"
"""The NATS server's address, beside the wires, so that its packets wait for nothing there."""


class Flow(NamedTuple):
    """A loading host, and the host that its load goes to."""

    source: str
    sink: str


class Plan(NamedTuple):
    """A topology."""

    title: str
    hosts: tuple[str, ...]
    router_of: dict[str, str]
    """The router of every host, loading hosts too."""
    flows: tuple[Flow, Flow]
    """The load one way, and the way back."""

    @property
    def routers(self) -> tuple[str, ...]:
        """All routers."""
        return tuple(sorted(set(self.router_of.values())))

    def address(self, host: str) -> str:
        """The address of a host, as `foliot.node.describe` has it for a node of this index, rail 0 and entropy 0."""
        number = self.hosts.index(host) if host in self.hosts else _LOADERS + int(host.removeprefix("load"))
        return f"100.64.0.{number + 1}"


def path() -> Plan:
    """Two hosts at a router whose links to both are narrow. A host of its own loads each of them."""
    hosts = ("host00", "host01")
    router_of = dict.fromkeys((*hosts, "load0", "load1"), "r0")
    return Plan("path: A - R - B", hosts, router_of, (Flow("load0", "host01"), Flow("load1", "host00")))


def mesh(count: int) -> Plan:
    """Hosts at two routers, every other host at each, and a narrow link between the routers."""
    hosts = tuple(f"host{number:02}" for number in range(count))
    router_of = {host: f"r{number % 2}" for number, host in enumerate(hosts)} | {"load0": "r0", "load1": "r1"}
    title = f"mesh: {count} hosts at two routers"
    return Plan(title, hosts, router_of, (Flow("load0", "load1"), Flow("load1", "load0")))


class Network:
    """A plan built for real. It disappears when it is closed, or when the process ends for whatever reason."""

    def __init__(self, plan: Plan, control: Namespace) -> None:
        self.plan = plan
        self._control = control
        self.namespaces: dict[str, Namespace] = {}
        """Namespaces of hosts, loading hosts and routers, by name."""

    def build(self) -> None:
        """Builds everything.

        Raises:
            FabricError: the kernel refused a step.
        """
        routers = self.plan.routers
        for name in (*self.plan.router_of, *routers):
            self.namespaces[name] = Namespace.make(name)
            with inside(self.namespaces[name]):
                set_sysctls(EVERYWHERE | (ROUTER if name in routers else HOST))
        run_batch(self._control, IP, self._wires())
        for host in self.plan.router_of:
            run_batch(self.namespaces[host], IP, self._host_lines(host))
        for router in routers:
            run_batch(self.namespaces[router], IP, self._router_lines(router))
            run_batch(
                self.namespaces[router],
                TC,
                [f"qdisc add dev {each} root {_BOTTLENECK}" for each in self.narrow],
            )
        for name, namespace in self.namespaces.items():
            with inside(namespace):
                for device in self._devices(name):
                    settle_neighbours(device)

    def close(self) -> None:
        """Closes everything, and removes the rest in the control namespace at once. May be called twice."""
        if self.namespaces:
            with inside(self._control):
                subprocess.run([IP, "link", "del", _FRONT], check=False, capture_output=True)
                for host in self.plan.hosts:
                    subprocess.run([IP, "link", "del", f"f{host}"], check=False, capture_output=True)
        for namespace in self.namespaces.values():
            namespace.close()
        self.namespaces.clear()

    @property
    def narrow(self) -> tuple[str, ...]:
        """The devices of each router that are bottlenecks."""
        return (_TRUNK,) if len(self.plan.routers) > 1 else self.plan.hosts

    @property
    def doors(self) -> list[tuple[Namespace, str]]:
        """The devices by which hosts' packets enter the first router."""
        return [(self.namespaces[router], host) for host, router in self.plan.router_of.items()]

    def carried_bytes(self) -> list[int]:
        """The bytes that have left each bottleneck so far."""
        carried = []
        for router in self.plan.routers:
            with inside(self.namespaces[router]):
                shown = [
                    subprocess.run(
                        [TC, "-s", "qdisc", "show", "dev", each], capture_output=True, text=True, check=True
                    ).stdout
                    for each in self.narrow
                ]
            carried += [int(re.findall(r"Sent (\d+) bytes", text)[0]) for text in shown]
        return carried

    def _devices(self, name: str) -> list[str]:
        if name not in self.plan.routers:
            return [DEVICE]
        ports = [host for host, router in self.plan.router_of.items() if router == name]
        return [*ports, *([_TRUNK] if len(self.plan.routers) > 1 else [])]

    def _wires(self) -> list[str]:
        lines = [
            "link set lo up",
            f"link add {_FRONT} type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
            f"addr add {_FRONT_ADDRESS}/24 dev {_FRONT}",
            f"link set {_FRONT} up",
        ]
        for host in self.plan.hosts:
            lines.append(f"link add name f{host} type veth peer {self._end(host, _FRONT)}")
            lines.append(f"link set f{host} master {_FRONT} up")
        for host, router in self.plan.router_of.items():
            lines.append(f"link add {self._end(host, DEVICE)} type veth peer {self._end(router, host)}")
        if len(self.plan.routers) > 1:
            one, other = self.plan.routers
            lines.append(f"link add {self._end(one, _TRUNK)} type veth peer {self._end(other, _TRUNK)}")
        return lines

    def _end(self, owner: str, device: str) -> str:
        # One queue: the kernel would make as many as there are processors, and reorder among them.
        return f"name {device} netns /proc/self/fd/{self.namespaces[owner].fd} numtxqueues 1 numrxqueues 1"

    def _host_lines(self, host: str) -> list[str]:
        lines = [
            "link set lo up", f"addr add {self.plan.address(host)}/32 dev {DEVICE}", f"link set {DEVICE} up",
            f"route add default via {_GATEWAY} dev {DEVICE} onlink",
        ]  # fmt: skip
        if host in self.plan.hosts:
            front = f"10.254.0.{self.plan.hosts.index(host) + 10}"
            lines += [f"addr add {front}/24 dev {_FRONT}", f"link set {_FRONT} up"]
        return lines

    def _router_lines(self, router: str) -> list[str]:
        lines = ["link set lo up"]
        for host, its_router in self.plan.router_of.items():
            if its_router == router:
                lines += [
                    f"addr add {_GATEWAY}/32 dev {host}",
                    f"link set {host} up",
                    f"route add {self.plan.address(host)}/32 dev {host}",
                ]
        if len(self.plan.routers) > 1:
            number = self.plan.routers.index(router)
            lines += [f"addr add 10.255.1.{number}/31 dev {_TRUNK}", f"link set {_TRUNK} up"]
            lines.append(f"route add default via 10.255.1.{1 - number} dev {_TRUNK}")
        return lines
