"""Network namespaces, anonymous and gone with the test, in which the real agent runs on a real kernel."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import forked
import pytest

from foliot.settings import NicSettings, NodeSettings
from patience import patience
from patient_bus import connected

if TYPE_CHECKING:
    from foliot.settings import BusSettings
    from foliot_lab.services.forker import Forked


from joining import Node

_CLONE_NEWNET = 0x40000000
_PATIENCE_S = patience(60.0)
_CONSTANTS = {"foliot_agent.peers.echo_confirm.GIVE_UP_S": patience(5.0)}
"""Of the agents. A peer that stands still for two seconds has not answered by then, and tests show that it confirms."""
_libc = ctypes.CDLL(None, use_errno=True)


def _setns(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


@contextlib.contextmanager
def entered(namespace: int):
    """The calling thread is inside; sockets made meanwhile stay inside."""
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _setns(namespace)
        yield
    finally:
        _setns(here)
        os.close(here)


def new_namespace() -> int:
    """A file descriptor that keeps a new namespace alive; its ``lo`` is up."""
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    if _libc.unshare(_CLONE_NEWNET):
        os.close(here)
        if ctypes.get_errno() == errno.EPERM:
            pytest.skip("making a network namespace needs root or a user namespace")
        raise OSError(ctypes.get_errno(), "unshare")
    made = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    _setns(here)
    os.close(here)
    ip(made, "link set lo up")
    return made


def ip(namespace: int, *lines: str, options: tuple[str, ...] = ()) -> str:
    """Runs iproute2 commands inside and returns what they print."""
    with entered(namespace):
        done = subprocess.run(
            ["ip", *options, "-batch", "-"], input="\n".join(lines), capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


def bridge(namespace: int, line: str) -> str:
    """Runs a command of iproute2's ``bridge`` inside and returns the JSON that it prints."""
    with entered(namespace):
        return subprocess.run(["bridge", "-json", *line.split()], capture_output=True, text=True, check=True).stdout


def node_settings(index: int, **changes) -> NodeSettings:
    """A node of two rails and two entropies."""
    nics = tuple(
        NicSettings(rail=f"rail{rail}", number=rail, device=f"rail{rail}", address=f"10.{rail}.0.{index + 1}")
        for rail in (0, 1)
    )
    return NodeSettings(name=f"node{index}", index=index, nics=nics, entropies=(49200, 49201), **changes)


@pytest.fixture
def settings_of():
    """Makes the settings of a node by its index, see `node_settings`."""
    return node_settings


@pytest.fixture
def ip_here():
    """Runs iproute2 commands in the namespace that the test is in, see `ip`."""

    def run(*lines: str, options: tuple[str, ...] = ()) -> str:
        here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            return ip(here, *lines, options=options)
        finally:
            os.close(here)

    return run


@pytest.fixture
def namespace():
    """A namespace with two NICs, the far ends of which are up; the test runs inside."""
    made = new_namespace()
    lines = []
    for rail in (0, 1):
        lines += [
            f"link add rail{rail} type veth peer name far{rail}",
            f"link set far{rail} up",
            f"link set rail{rail} up",
            f"addr add 10.{rail}.0.1/24 dev rail{rail}",
        ]
    ip(made, *lines)
    with entered(made):
        yield made
    os.close(made)


async def until(condition, what: str) -> None:
    """Waits for something outside of the event loop to become true."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_S):
            while not condition():  # noqa: ASYNC110 - the kernel and other processes set no event of ours
                await asyncio.sleep(0.01)
            return
    pytest.fail(f"not within {_PATIENCE_S:.0f} s: {what}")


class Host:
    """A node in a namespace of its own, and its agent as a process."""

    def __init__(self, index: int, bus: BusSettings, folder: Path, armed: str) -> None:
        self.settings = node_settings(index)
        self.namespace = new_namespace()
        with entered(self.namespace), contextlib.suppress(FileNotFoundError):
            # Duplicate address detection takes two seconds of each device; where there is no IPv6, none.
            Path("/proc/sys/net/ipv6/conf/default/accept_dad").write_text("0")
        self.config = folder / f"node{index}.toml"
        self._log = folder / f"node{index}.log"
        self._process: Forked | None = None
        nics = "\n".join(
            f'[[node.nics]]\nrail = "{nic.rail}"\nnumber = {nic.number}\n'
            f'device = "{nic.device}"\naddress = "{nic.address}"'
            for nic in self.settings.nics
        )
        self.config.write_text(
            f'[bus]\nurl = "{bus.url}"\n[telemetry]\nendpoint = ""\n'
            f'[agent]\narmed = "{armed}"\nmemory = "{folder}"\nkey = "a key that the fleet shares"\n'
            f'[node]\nname = "node{index}"\nindex = {index}\nentropies = [49200, 49201]\n{nics}\n'
        )

    @property
    def service_address(self) -> str:
        """On rail0."""
        return f"10.200.0.{self.settings.index + 1}"

    def entered(self):
        """See `entered`."""
        return entered(self.namespace)

    def ip(self, *lines: str, options: tuple[str, ...] = ()) -> str:
        """See `ip`."""
        return ip(self.namespace, *lines, options=options)

    def bridge(self, line: str) -> str:
        """See `bridge`."""
        return bridge(self.namespace, line)

    def routes(self, table: int) -> int:
        """How many routes stand in a table, which the kernel makes with the first one."""
        is_there = f"table {table} " in self.ip("route show table all")
        return self.ip(f"route show table {table}").count("via") if is_there else 0

    def stands(self) -> bool:
        """Whether the kernel has done all that it does by itself once a NIC has a carrier.

        That is its state, and its own IPv6 address.
        """
        links = json.loads(self.ip("addr", options=("-json",)))
        nics = [link for link in links if link["ifname"] in {"front", "rail0", "rail1"}]
        return all(link["operstate"] == "UP" and self._has_own_address(link) for link in nics)

    def _has_own_address(self, link: dict) -> bool:
        with self.entered():
            disabled = Path(f"/proc/sys/net/ipv6/conf/{link['ifname']}/disable_ipv6")
            if not disabled.exists() or disabled.read_text().strip() != "0":
                return True
        return any(each["family"] == "inet6" and not each.get("tentative") for each in link["addr_info"])

    @property
    def log(self) -> str:
        """What the agent has said so far."""
        return self._log.read_text()

    async def start(self, *arguments: str) -> None:
        """Starts the agent."""
        with entered(self.namespace), self._log.open("a") as log:
            env = {**os.environ, "FOLIOT_CONFIG": str(self.config), "FOLIOT_BOOT_ID": "boot1"}
            self._process = forked.start("foliot_agent", *arguments, stderr=log.fileno(), env=env, constants=_CONSTANTS)

    async def ready(self, times: int = 1) -> None:
        """Waits until the agent is."""
        await until(lambda: self.log.count("agent_ready") >= times, f"{self.settings.name} is ready")

    async def ended(self) -> int:
        """Waits for the agent to end; its exit status."""
        assert self._process is not None
        return await self._process.wait()

    async def stop(self) -> int | None:
        """SIGTERM, and waits for the end."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            return await self.ended()
        return None


class Fleet:
    """Hosts on two rails and a management network; a switch of each, and the bus, in a namespace of their own."""

    def __init__(self, folder: Path, server, *, count: int, armed: str) -> None:
        self.hub = new_namespace()
        self.server = server
        self.hosts = [Host(index, self.server.settings, folder, armed) for index in range(count)]
        for network in ("rail0", "rail1", "front"):
            ip(self.hub, f"link add {network} type bridge", f"link set {network} up")
            for host in self.hosts:
                index = host.settings.index
                prefix = "192.0.2" if network == "front" else f"10.{network[-1]}.0"
                self.make(host, network)
                ip(self.hub, f"link set {network}-{index} master {network} up")
                host.ip(f"addr add {prefix}.{index + 1}/24 dev {network}", f"link set {network} up")
        ip(self.hub, "addr add 192.0.2.254/24 dev front")

    until = staticmethod(until)

    def make(self, host: Host, network: str) -> None:
        """Makes a NIC, as loading its driver does: down, without carrier and address.

        It has no carrier, as its far end is down and not at the switch.
        """
        inside = f"/proc/{os.getpid()}/fd/{host.namespace}"
        ip(self.hub, f"link add {network}-{host.settings.index} type veth peer name {network} netns {inside}")

    def hub_ip(self, *lines: str) -> str:
        """See `ip`; where the far ends and the switches are."""
        return ip(self.hub, *lines)

    def cut(self, nic: str, state: str = "down") -> None:
        """Sets the far end of a NIC (``rail0-1``) down or up, as pulling the cable would."""
        ip(self.hub, f"link set {nic} {state}")

    async def close(self) -> None:
        """Ends all processes and lets the namespaces go."""
        for host in self.hosts:
            await host.stop()
            os.close(host.namespace)
        await self.server.kill()
        os.close(self.hub)


@pytest.fixture
async def fleet(tmp_path, request, make_server):
    """Three hosts whose agents run, armed always (or as the test's parameter says)."""
    server = make_server(tmp_path / "nats", address="192.0.2.254", port=4222)
    made = Fleet(tmp_path, server, count=3, armed=getattr(request, "param", "always"))
    try:
        # The test itself lives where the bus is: there its client also finds it again.
        with entered(made.hub):
            await server.start()
            for host in made.hosts:
                await until(host.stands, f"{host.settings.name} has what its kernel gives it")
            yield made
    finally:
        await made.close()


@pytest.fixture
async def bus(fleet):
    """A central service's connection, which makes what agents wait for, and anew what the bus forgets."""
    async with connected(fleet.server.settings) as bus:
        yield bus


@pytest.fixture
async def nodes(fleet, tmp_path):
    """Two hosts of the fleet, which have routes, rules and settings of their own."""
    made = [Node(fleet, index, tmp_path / f"root{index}") for index in (0, 1)]
    for node in made:
        node.host.ip(
            "route add 10.9.0.0/16 via 10.0.0.9 dev rail0 metric 7",
            "rule add priority 6999 to 10.200.0.0/13 lookup 7",
            "neigh add 10.0.0.77 lladdr 02:00:00:00:00:77 nud permanent dev rail0",
        )
        node.set_sysctl("ipv4/conf/default/rp_filter", "1")
    return made
