"""NICs with clocks of their own, simulated by the lab: from the kernel's stamps through probe and sync, and back.

Hosts have real sockets on loopback addresses, and real stamps of the kernel. By these, the lab makes what a NIC would
have stamped, and what reading its clock would show. Hosts and NICs run apart, and the truth is known.
"""

from __future__ import annotations

import socket
import time

import numpy as np
import pytest

from foliot.native import compiled
from foliot_lab.faults.skewed_clock import NicSkewSpec, Skew, SkewedClock, SkewSpec, write_nic_clock
from foliot_probe.core.packet import HARDWARE
from foliot_probe.engine import Engine
from foliot_probe.nic_clocks import NicClocks
from foliot_probe.reports import Reporter
from foliot_probe.settings import ProbeSettings
from foliot_schemas import Nic, Node, Witness
from foliot_schemas.names import is_nic_clock, nic_clock_name
from foliot_sync.core.fit.admission import Admission
from foliot_sync.core.synchroniser import Synchroniser
from foliot_sync.settings import SyncSettings
from patience import patience

HOSTS, SECOND = 3, 1_000_000_000
TICK_S, TICKS_A_REPORT, WINDOW_S = 0.02, 3, 0.5
PROBE = ProbeSettings(tick_ms=20, nic_stamps="auto", window_s=WINDOW_S)
GIVE_UP_S = patience(60.0)


class Host:
    """A node with one NIC: its probe, without the bus."""

    def __init__(self, number, folder, port, start_raw_ns):
        self.name, self.file = f"node{number}", folder / f"node{number}.phc"
        write_nic_clock(self.file)
        nic = NicSkewSpec(
            start_ns=start_raw_ns, offset_ns=1_800_000_000 * SECOND + number * SECOND // 7,
            drift_ppb=-25_000.0 + 20_000 * number, wander_ppb=10.0, seed=number, file=str(self.file),
        )  # fmt: skip
        self.skew = Skew(
            SkewSpec(
                start_raw_ns=start_raw_ns, offset_ns=number * 30_000_000, drift_ppb=10_000.0 * (number - 1),
                wander_ppb=10.0, seed=10 + number, nics={"rail0": nic},
            )
        )  # fmt: skip
        self.clock = SkewedClock(self.name, self.skew)
        address = f"127.0.9.{number + 1}"
        record = Nic(
            name=f"{self.name}.rail0", rail="rail0", device="lo", address=address, clock=self.name,
            service_address="10.97.0.1", path_addresses=(address,), entropies=(49200,),
        )  # fmt: skip
        self.node = Node(name=self.name, nics=(record,), probe_port=port, nic_stamps=True)

    def start(self, peers, now_ns):
        """Begins to probe."""
        self.nics = NicClocks(self.node.nics, self.clock)
        self.engine = Engine(self.node, self.clock, PROBE, now_ns, self.nics.rails)
        self.reporter = Reporter(self.engine, self.clock, PROBE, now_ns)
        self.reporter.nic_windows = self.nics.windows
        assert self.engine.bind() == 0
        self.follows = {self.name, *self.nics.names, *(peer.name for peer in peers)}
        for peer in peers:
            self.reporter.begin(self.engine.set_peer(peer.node)[1])
        self.engine.demand.set_in_use(frozenset(self.engine.table.rows))

    def take(self, state):
        """What sync says of a clock that it follows."""
        if state.clock in self.follows:
            if state.clock == self.name:
                self.clock.update(state)
            self.reporter.set_clock(state)
            self.nics.set_clock(state)

    def by_nic(self, *peers):
        """Whether the streams to these peers (or all) are stamped by its NIC; None: some are."""
        rows = [row for key, row in self.engine.table.rows.items() if not peers or key.peer in peers]
        stamped = self.reporter._stamping.own[rows]
        return bool(stamped.all()) if stamped.all() or not stamped.any() else None


class World:
    """Some hosts and a sync, which tick by the machine's own time."""

    def __init__(self, folder, port):
        start_raw_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        self.hosts = [Host(number, folder, port, start_raw_ns) for number in range(HOSTS)]
        self.sync, self.admission = Synchroniser(SyncSettings(window_s=WINDOW_S)), Admission()
        self.start_s = time.monotonic()
        self.tick, self.window, self.states = 0, 0, {}
        self.worst_ns, self.told, self.unknown, self.statuses = 0.0, 0, 0, set()
        for host in self.hosts:
            self.admission.learn(host.name, host.node)
            host.start([other for other in self.hosts if other is not host], self.now_ns())

    def now_ns(self):
        """The engines' time."""
        return time.monotonic_ns()

    def forget(self):
        """Begins to watch anew."""
        self.worst_ns, self.told, self.unknown, self.statuses = 0.0, 0, 0, set()

    def until(self, what):
        """Runs until something holds."""
        give_up_s = time.monotonic() + GIVE_UP_S
        while not what():
            assert time.monotonic() < give_up_s, "waited in vain"
            self.turn()

    def run(self, seconds):
        """Runs for some time."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.turn()

    def turn(self):
        """One tick of all."""
        self.tick += 1
        time.sleep(max(0.0, self.start_s + self.tick * TICK_S - time.monotonic()))
        for host in self.hosts:
            host.engine.listen(self.now_ns())
            host.engine.speak(self.tick)
        if self.tick % TICKS_A_REPORT:
            return
        for host in self.hosts:
            host.nics.take(host.nics.read(), host.engine)
            for batch in host.reporter.delays(self.now_ns()):
                self.judge(batch.rows())
            for clock in host.reporter.take_strange_clocks():
                host.follows.add(clock)
                if clock in self.states:
                    host.reporter.set_clock(self.states[clock])
        if self.tick * TICK_S >= (self.window + 1) * WINDOW_S:
            self.window += 1
            self.close()

    def judge(self, rows):
        """Delays on loopback are short, whoever stamps; some are told as long as both clocks are known."""
        heard = rows[(rows["witness"] == Witness.DESTINATION) & (rows["received"] > 0)]
        known = heard[heard["p99_ns"] != 0]
        self.told, self.unknown = self.told + len(known), self.unknown + len(heard) - len(known)
        if len(known):
            self.worst_ns = max(self.worst_ns, -float(known["least_ns"].min()), float(known["least_ns"].max()))

    def close(self):
        """A window of sync."""
        for host in self.hosts:
            for batch in filter(None, list(host.reporter.stamps())):
                admitted = self.admission.admit(batch)
                assert admitted is batch
                self.sync.add(admitted, self.now_ns())
        self.states = {state.clock: state for state in self.sync.solve(self.now_ns())}
        for state in self.states.values():
            for host in self.hosts:
                host.take(state)
        self.statuses |= {state.status for name, state in self.states.items() if not is_nic_clock(name)}

    def errors_ns(self):
        """The true error of each host's time by its state, and the greatest that sync holds possible."""
        raw_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        told, bounds = {}, {}
        for host in self.hosts:
            local_ns = raw_ns + host.skew.offset_ns(raw_ns)
            told[host.name] = self.states[host.name].reference_ns(local_ns)
            bounds[host.name] = self.states[host.name].hard_bound_at_ns(local_ns)
        reference_ns = told[self.sync.reference]
        return {name: (abs(at_ns - reference_ns), bounds[name]) for name, at_ns in told.items()}

    def check_hosts(self):
        """Hosts are in step, and were all the time."""
        assert self.statuses == {"synchronised"}
        assert not is_nic_clock(self.sync.reference)
        assert all(error_ns <= bound_ns + 1 for error_ns, bound_ns in self.errors_ns().values())

    def close_all(self):
        """The end."""
        for host in self.hosts:
            host.engine.close()
            host.nics.close()


@pytest.fixture
def port(free_port):
    """A port of the hosts' addresses that nobody has."""
    return free_port(socket.SOCK_DGRAM)


@pytest.fixture
def world(tmp_path, port):
    """Three hosts whose NICs stamp."""
    made = World(tmp_path, port)
    yield made
    made.close_all()


def all_by_nic(world):
    """Whether all NICs are used, and both ends know of it."""
    return all((host.engine.packets.kinds()[: HOSTS - 1] == HARDWARE).all() for host in world.hosts)


def by_kernel(host):
    """Whether a host's streams are stamped by its kernel."""
    return host.by_nic() is False


@pytest.mark.parametrize("loop", ["python", "compiled"])
def test_nics_stamp_for_their_hosts_until_one_is_set(loop, monkeypatch, tmp_path, port):
    """They are taken into use and given up without a step in any host's clock, and without a delay that is wrong."""
    if loop == "python":
        monkeypatch.setenv("FOLIOT_NATIVE", "off")
    elif compiled("packet_loop") is None:
        pytest.skip("nothing was compiled")
    world = World(tmp_path, port)
    world.until(lambda: all_by_nic(world))
    world.forget()
    world.run(4.0)
    world.check_hosts()
    names = {nic_clock_name(f"node{number}.rail0") for number in range(HOSTS)}
    assert names < set(world.states)
    assert {world.states[name].status for name in names} == {"synchronised"}
    # By stamps of the same kernel, all NICs are as far from their hosts' sides of the path: the delays are those of lo.
    assert world.told > 10 * world.unknown
    assert world.worst_ns < 2_000_000

    world.forget()
    write_nic_clock(world.hosts[1].file, step_ns=400_000)
    world.until(lambda: by_kernel(world.hosts[1]))
    world.run(4.0)
    world.check_hosts()
    assert not by_kernel(world.hosts[0])
    assert not by_kernel(world.hosts[2])
    assert world.told > 10 * world.unknown
    assert world.worst_ns < 2_000_000
    world.close_all()


@pytest.mark.parametrize(
    "fault", [{"lies_ns": 1_500_000}, {"lies_ns": -1_500_000}, {"lies_ns": 10**12}, {"lost": 6}, {"unread": True}]
)
def test_a_nic_that_goes_wrong_is_left_for_the_kernel(world, fault):
    """It lies, either way, loses stamps, or its clock cannot be read any more: no host's clock takes a step."""
    world.until(lambda: all_by_nic(world))
    world.forget()
    write_nic_clock(world.hosts[1].file, **fault)
    world.until(lambda: by_kernel(world.hosts[1]))
    world.run(3.0)
    world.check_hosts()
    assert not by_kernel(world.hosts[0])
    assert world.worst_ns < 2_000_000
    assert world.told > 5 * world.unknown


@pytest.mark.parametrize("fault", [{"lies_ns": 10**12}, {"lost": 8}, {"lost": 2}, {"unread": True}])
def test_a_nic_that_was_never_good_is_never_used(tmp_path, port, fault):
    """Its clock is not even measured; the others are used, and the hosts are in step."""
    world = World(tmp_path, port)
    write_nic_clock(world.hosts[1].file, **fault)
    others = (world.hosts[0], world.hosts[2])
    world.until(lambda: all(host.by_nic() for host in others))
    world.run(1.0)
    assert by_kernel(world.hosts[1])
    assert nic_clock_name("node1.rail0") not in world.states
    world.forget()
    world.run(1.0)
    world.check_hosts()
    world.close_all()


def test_a_peer_of_an_earlier_version_gets_the_kernels_stamps(tmp_path, port):
    """It would take the NIC's for the host's. Whoever understands them gets them all the same."""
    world = World(tmp_path, port)
    old = world.hosts[2]
    for host in world.hosts[:2]:
        host.engine.set_peer(Node(name=old.name, nics=old.node.nics, probe_port=old.node.probe_port))
        host.reporter.begin([row for key, row in host.engine.table.rows.items() if key.peer == old.name])
        host.engine.demand.set_in_use(frozenset(host.engine.table.rows))
    first, second, _ = world.hosts
    world.until(lambda: first.by_nic("node1") and second.by_nic("node0"))
    world.run(1.0)
    assert first.by_nic("node2") is second.by_nic("node2") is False
    assert old.by_nic()
    world.forget()
    world.run(1.0)
    world.check_hosts()
    world.close_all()


def test_without_the_setting_nothing_is_asked_of_a_nic(tmp_path):
    """No clock is opened, and sockets ask for what they always did."""
    assert ProbeSettings().nic_stamps == "off"
    nics = NicClocks((), SkewedClock("node0", Skew(SkewSpec(start_raw_ns=0))))
    assert not nics
    assert nics.rails == frozenset()
    assert np.array_equal(list(nics.windows()), [])
