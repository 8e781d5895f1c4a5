"""Fleets whose NICs stamp by clocks of their own, which readings join to those of their hosts."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from known_fleet import SECOND, Fleet, Part, Run
from promises import promises_kept, statuses

from foliot_schemas.names import is_nic_clock, nic_clock_name
from foliot_schemas.observation import StampBatch, Stream
from foliot_sync.core.synchroniser import Synchroniser
from foliot_sync.settings import SyncSettings

HOSTS = 5
READ_NS = 600.0
"""How long the bus takes from a reading of the host's clock to one of the NIC's, and back."""


@dataclasses.dataclass(kw_only=True)
class NicFleet(Fleet):
    """Hosts that nobody measures but their own NICs: nodes 0 to 4 are hosts, 5 to 9 their NICs' clocks."""

    nodes: int = 2 * HOSTS
    streams: int = 4
    load: float = 0.2
    tai_ns: int = 1_800_000_000 * SECOND
    """NICs' clocks count from somewhere else."""
    by_kernel: set[int] = dataclasses.field(default_factory=set)
    """Hosts whose NIC gives no stamps any more."""
    unread: set[int] = dataclasses.field(default_factory=set)
    """Hosts that do not read the clock of their NIC any more."""

    def __post_init__(self) -> None:
        """Draws hosts and NICs."""
        super().__post_init__()
        self.names = [f"node{number}" for number in range(HOSTS)]
        self.names += [nic_clock_name(f"node{number}.rail0") for number in range(HOSTS)]
        self.boot_ns[HOSTS:] = [self.tai_ns + each % SECOND for each in self.boot_ns[HOSTS:]]
        for host in range(HOSTS):
            ends = host, host + HOSTS
            self.floor_ns[ends] = np.full(self.streams, READ_NS)
            self.loads |= {ends: 0.0, ends[::-1]: 0.0}

    def end(self, host: int) -> int:
        """The clock that stamps a host's probes."""
        return host if host in self.by_kernel else host + HOSTS

    def batch(self, node: int, window: int) -> StampBatch | None:
        """What a host publishes: its probes to hosts of higher numbers, and readings of its NIC's clock."""
        if node >= HOSTS:
            return None
        since_s = self.phase_s[node] + window * self.window_s
        until_s = since_s + self.window_s
        until_ns = self.local_at(node, until_s)
        ways = [
            (self.end(node), self.end(peer), f"node{node}.rail0>node{peer}.rail0") for peer in range(node + 1, HOSTS)
        ]
        wanted = [(*way, number) for way, number in itertools.product(ways, range(self.streams))]
        if node not in self.unread:
            wanted.append((node, node + HOSTS, f"node{node}.rail0>node{node}.rail0", 0))
        streams, parts = [], []
        for a, b, path, number in wanted:
            (least_ppb,), (most_ppb,) = self.slopes(a, [b], self.local_at(a, until_s))
            kind = "hardware" if min(a, b) >= HOSTS else "kernel"
            for direction, ends in enumerate(((a, b), (b, a))):
                parts.append(Part(len(streams), direction, *ends, number))
            streams.append(
                Stream(
                    path=f"{path}#{number}", initiator=self.names[a], responder=self.names[b], kind=kind,
                    least_ppb=least_ppb, most_ppb=most_ppb,
                )
            )  # fmt: skip
        for a, b, *_ in ways:
            self.floor_ns.setdefault(
                (min(a, b), max(a, b)), self.floor_ns[a % HOSTS + HOSTS, b % HOSTS + HOSTS] + 5_000
            )
        return StampBatch.of(
            self.stamped(parts, since_s), node=self.names[node], since_ns=self.local_at(node, since_s), until_ns=until_ns,
            epoch_ns=self.realtime_ns(node, until_s) - until_ns, streams=tuple(streams), tolerated=8,
        )  # fmt: skip


@pytest.fixture
def begun():
    """Makes a fleet of hosts and NICs, and runs it to a time."""

    def to(true_s, *, seed, settings=None):
        run = Run(NicFleet(seed=seed), Synchroniser(settings or SyncSettings()))
        run.to(true_s)
        return run

    return to


@pytest.mark.parametrize("seed", [1, 2])
def test_hosts_are_in_step_by_their_nics(begun, seed):
    """A host is measured by its NIC alone, whose bus bounds how far off it may be; the reference is a host."""
    run = begun(31, seed=seed)
    for _ in range(8):
        run.next()
        assert not is_nic_clock(run.sync.reference)
        assert set(statuses(run).values()) == {"synchronised"}
        promises_kept(run)
    errors = {name: abs(error) for name, error in run.errors_ns().items()}
    assert max(errors.values()) < 400
    hosts = [state for name, state in run.states.items() if not is_nic_clock(name) and name != run.sync.reference]
    nics = [state for name, state in run.states.items() if is_nic_clock(name)]
    assert all(state.hard_bound_ns > READ_NS for state in hosts)
    # Two buses and a path lie between hosts. The reference's NIC is one bus away.
    assert min(state.hard_bound_ns for state in nics) < 3 * READ_NS


def test_the_common_time_and_its_rate_are_the_hosts():
    """Clocks in NICs run 150 ppm faster, as nobody tunes them; the time goes on as the median host has it."""
    run = Run(NicFleet(seed=3, drift_ppb=1_000.0), Synchroniser())
    for nic in range(HOSTS, 2 * HOSTS):
        run.fleet.slew(nic, -10.0, 1e6, 150_000.0)
    run.to(41)
    drifts = [state.drift_ppb for name, state in run.states.items() if not is_nic_clock(name)]
    assert abs(np.median(drifts)) < 1_000
    assert all(state.drift_ppb < -140_000 for name, state in run.states.items() if is_nic_clock(name))
    promises_kept(run)


def test_a_step_of_a_nics_clock_is_its_own(begun):
    """Someone's ptp4l sets it, by half a millisecond: no host's clock moves, and none is doubted."""
    run = begun(31, seed=4)
    run.fleet.step(2 + HOSTS, 31.1, 500_000)
    stepped, seen = nic_clock_name("node2.rail0"), set()
    for _ in range(8):
        run.next()
        seen.add(run.states[stepped].status)
        # Who knows its host by that NIC alone knows nothing for a window: its bound grows.
        assert {run.states[f"node{host}"].status for host in range(HOSTS)} <= {"synchronised", "holdover"}
        for name, error in run.errors_ns().items():
            if name != stepped:
                assert abs(error) <= run.states[name].bound_at_ns(
                    run.fleet.local_at(run.fleet.names.index(name), run.now_s)
                )
    assert "disrupted" in seen
    run.to(61)
    assert run.states[stepped].status == "synchronised"
    promises_kept(run)


def test_a_nic_that_stops_stamping_makes_no_step_in_its_hosts_clock(begun):
    """The kernel's stamps go on where the NIC's end. Paths by them are longer, and are remembered apart."""
    run = begun(31, seed=5)
    before = run.errors_ns()["node3"]
    run.fleet.by_kernel.add(3)
    for _ in range(6):
        run.next()
        assert run.states["node3"].status == "synchronised"
        promises_kept(run)
    assert abs(run.errors_ns()["node3"] - before) < 400
    run.fleet.by_kernel.clear()
    for _ in range(6):
        run.next()
        assert run.states["node3"].status == "synchronised"
        promises_kept(run)


def test_the_heir_of_the_reference_is_a_host(begun):
    """By name, NICs of the reference's host would come first."""
    run = begun(31, seed=6)
    assert run.sync.reference == "node0"
    run.fleet.step(0, 31.1, -5_000_000)
    for _ in range(4):
        run.next()
    assert run.sync.reference in {"node1", "node2"}


def test_a_new_leader_goes_on_with_nics_clocks(begun):
    """Their states have no date, and are good all the same: delays by them are told without a gap."""
    run = begun(31, seed=7)
    sync = Synchroniser()
    sync.resume(run.states.values())
    run.sync = sync
    run.next()
    assert set(statuses(run).values()) == {"synchronised"}
    promises_kept(run)


@pytest.mark.parametrize("step_ns", [5_000_000, -300_000])
def test_a_step_of_a_host_is_seen_though_its_nic_alone_measures_it(begun, step_ns):
    """As after a virtual machine was halted: its NIC's clock ran on, and nobody else is doubted."""
    run = begun(31, seed=8)
    run.fleet.step(2, 31.1, step_ns)
    seen = []
    for _ in range(5):
        run.next()
        seen.append(run.states["node2"].status)
        assert {state.status for name, state in run.states.items() if name != "node2"} == {"synchronised"}
    assert "disrupted" in seen[1:3]
    run.to(61)
    assert run.states["node2"].status == "synchronised"
    promises_kept(run)
