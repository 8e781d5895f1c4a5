"""Two network namespaces joined by a wire, and two engines that probe each other over it."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import select
import subprocess
import time
from pathlib import Path

import pytest

from foliot import native
from foliot.clock import HostClock
from foliot_probe.engine import Engine
from foliot_probe.io import udp_batch
from foliot_probe.settings import ProbeSettings
from foliot_schemas import Nic, Node
from patience import patience

CLONE_NEWNET = 0x40000000
SETTINGS = ProbeSettings()
TICK_NS = SETTINGS.tick_ms * 1_000_000
PORT = 7946
PATIENCE_S = patience(30.0)


def _libc(name, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


@contextlib.contextmanager
def inside(namespace):
    """The calling thread within a network namespace."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _libc("setns", namespace, CLONE_NEWNET)
        yield
    finally:
        _libc("setns", home, CLONE_NEWNET)
        os.close(home)


def ip(*arguments, **options):
    """Runs ip in the thread's namespace."""
    subprocess.run(("ip", *arguments), check=True, **options)


def anonymous():
    """A descriptor of a new namespace that ends with it."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _libc("unshare", CLONE_NEWNET)
    except OSError as error:
        os.close(home)
        pytest.skip(f"no network namespaces here: {error}")
    try:
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    finally:
        _libc("setns", home, CLONE_NEWNET)
        os.close(home)


def record(name, address):
    """A node with one NIC and one entropy."""
    nic = Nic(
        name=f"{name}.rail0", rail="rail0", device="wire0", address=address, clock=name, service_address="10.97.0.1",
        path_addresses=(address,), entropies=(49200,),
    )  # fmt: skip
    return Node(name=name, nics=(nic,), probe_port=PORT)


class Wire:
    """Two namespaces."""

    inside = staticmethod(inside)
    ip = staticmethod(ip)
    record = staticmethod(record)

    def __init__(self, namespaces):
        self.namespaces = namespaces

    def engines(self, network, settings=SETTINGS):
        """Two engines on addresses 1 and 2 of a /24, introduced to each other."""
        return Pair(self.namespaces, network, settings)


@pytest.fixture(scope="session")
def stamping():
    """The kernel stamps what comes.

    It begins to some time after a first socket has asked for that (net/core/dev.c, `netstamp_work`).
    """
    with udp_batch.open_socket("127.0.0.1", 0) as asking:
        give_up_s = time.monotonic() + PATIENCE_S
        while not _stamped(asking):
            assert time.monotonic() < give_up_s, "this kernel stamps nothing that comes"
        yield


def _stamped(asking):
    """Sends a datagram to itself; whether one came with a stamp."""
    asking.sendto(b"x", asking.getsockname())
    select.select([asking], [], [], 0.1)
    with contextlib.suppress(BlockingIOError):  # only the stamp of its departure is there
        return any(kind == udp_batch.SO_TIMESTAMPING for _, kind, _ in asking.recvmsg(16, 512)[1])
    return False


@pytest.fixture(params=["python", "compiled"])
def packets(request, monkeypatch):
    """Which packet loop an engine has; the name of it."""
    if request.param == "python":
        monkeypatch.setenv("FOLIOT_NATIVE", "off")
    elif native.compiled("packet_loop") is None:
        pytest.skip("nothing was compiled")
    return request.param


@pytest.fixture
def wire(stamping):
    """Two namespaces joined by a veth pair, each end addressed 10.99.0.1 or .2."""
    both = (anonymous(), anonymous())
    with inside(both[0]):
        peer = f"/proc/{os.getpid()}/fd/{both[1]}"
        ip("link", "add", "wire0", "type", "veth", "peer", "name", "wire0", "netns", peer)
    for number, namespace in enumerate(both, 1):
        with inside(namespace):
            ip("addr", "add", f"10.99.0.{number}/24", "dev", "wire0")
            ip("link", "set", "wire0", "up")
    yield Wire(both)
    for namespace in both:
        os.close(namespace)


class Switched(Wire):
    """Two namespaces with a switch between them, which is one too."""

    def __init__(self, namespaces, switch):
        super().__init__(namespaces)
        self.switch = switch

    def narrow(self, mtu):
        """The switch drops silently what is larger, as an IP packet on the wire."""
        with inside(self.switch):
            for port in ("port1", "port2"):
                ip("link", "set", port, "mtu", str(mtu))


@pytest.fixture
def switched(stamping):
    """Two namespaces as `wire` has them, joined by a bridge in a third one."""
    three = tuple(anonymous() for _ in range(3))
    with inside(three[2]):
        ip("link", "add", "bridge0", "type", "bridge")
        ip("link", "set", "bridge0", "up")
        for number, namespace in enumerate(three[:2], 1):
            end = ("peer", "name", "wire0", "netns", f"/proc/{os.getpid()}/fd/{namespace}")
            ip("link", "add", f"port{number}", "type", "veth", *end)
            ip("link", "set", f"port{number}", "master", "bridge0", "up")
    for number, namespace in enumerate(three[:2], 1):
        with inside(namespace):
            ip("addr", "add", f"10.99.0.{number}/24", "dev", "wire0")
            ip("link", "set", "wire0", "up")
    yield Switched(three[:2], three[2])
    for namespace in three:
        os.close(namespace)


@pytest.fixture
def tunnel(wire):
    """The same with a VXLAN device on top, addressed 10.98.0.1 or .2, as the overlay makes them."""
    for number, namespace in enumerate(wire.namespaces, 1):
        other = 3 - number
        with inside(namespace):
            ip(
                "link", "add", "fo0e0", "address", f"02:00:00:00:00:0{number}", "type", "vxlan", "id", "7", "dev", "wire0",
                "local", f"10.99.0.{number}", "srcport", "49200", "49201", "dstport", "4789", "nolearning", "tos", "inherit",
            )  # fmt: skip
            ip("addr", "add", f"10.98.0.{number}/24", "dev", "fo0e0")
            ip("link", "set", "fo0e0", "up")
            ip(
                "neigh",
                "replace",
                f"10.98.0.{other}",
                "lladdr",
                f"02:00:00:00:00:0{other}",
                "dev",
                "fo0e0",
                "nud",
                "permanent",
            )
            subprocess.run(
                ("bridge", "fdb", "append", f"02:00:00:00:00:0{other}", "dev", "fo0e0", "dst", f"10.99.0.{other}"),
                check=True,
            )
    return wire


@pytest.fixture
def line():
    """Two hosts at the ends of a line of two routers: 10.96.1.2 and 10.96.3.2."""
    names = [anonymous() for _ in range(4)]
    for left, right, net in ((0, 1, 1), (1, 2, 2), (2, 3, 3)):
        with inside(names[left]):
            far = f"/proc/{os.getpid()}/fd/{names[right]}"
            ip("link", "add", f"net{net}", "type", "veth", "peer", "name", f"net{net}", "netns", far)
        # The first router is 10.96.1.1, the second one 10.96.2.2 to who comes from there.
        ends = {1: (2, 1), 2: (1, 2), 3: (1, 2)}[net]
        for end, last in zip((left, right), ends, strict=True):
            with inside(names[end]):
                ip("addr", "add", f"10.96.{net}.{last}/24", "dev", f"net{net}")
                ip("link", "set", f"net{net}", "up")
    for place, routes in enumerate(
        ([("10.96.0.0/16", "10.96.1.1")], [("10.96.3.0/24", "10.96.2.2")], [("10.96.1.0/24", "10.96.2.1")], [("10.96.0.0/16", "10.96.3.1")])
    ):  # fmt: skip
        with inside(names[place]):
            for where, by in routes:
                ip("route", "add", where, "via", by)
            if place in {1, 2}:
                # A router limits what it says both to one peer and in all: by the latter, 41 answers in a row were now and
                # then 40. A mask of no types exempts all of them from both.
                for key, value in (("ip_forward", 1), ("icmp_ratemask", 0)):
                    Path(f"/proc/sys/net/ipv4/{key}").write_text(str(value))
    yield Wire(names)
    for name in names:
        os.close(name)


class Pair:
    """Two engines and a time that passes only when it is told to."""

    def __init__(self, namespaces, network, settings=SETTINGS):
        self.now_ns = time.monotonic_ns()
        self.ticks = 0
        self.nodes = [record(name, f"{network}.{number}") for number, name in enumerate(("a", "b"), 1)]
        clock = HostClock("host")  # of both: they share the kernel's
        self.ends = [Engine(node, clock, settings, self.now_ns) for node in self.nodes]
        self.begun = [1_000, 2_000]
        for end, first in zip(self.ends, self.begun, strict=True):
            end._first_sequence = itertools.count(first, 100_000).__next__
        for end, namespace, peer in zip(self.ends, namespaces, reversed(self.nodes), strict=True):
            with inside(namespace):
                assert end.bind() == 0
            end.set_peer(peer)
            end.demand.set_in_use(frozenset(end.table.rows))

    def tick(self, *which, by_ns=TICK_NS):
        """One tick of these ends (or both), after some time."""
        self.now_ns += by_ns
        self.ticks += 1
        return [self._tick(each) for each in which or (0, 1)]

    def _tick(self, each):
        end, other = self.ends[each], self.ends[1 - each]
        changes = end.listen(self.now_ns)
        if end.speak(self.ticks):
            # A busy kernel delivers when it finds the time; the virtual one must not run ahead of it.
            select.select([other._sockets[0]], [], [], PATIENCE_S)
        return changes

    def close(self):
        """Both."""
        for end in self.ends:
            end.close()


@pytest.fixture
def pair(packets, wire):
    """Two engines on the bare wire, introduced to each other."""
    made = wire.engines("10.99.0")
    made.tick()
    yield made
    made.close()
