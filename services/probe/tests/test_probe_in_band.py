"""In-band delays: what the stamps of real connections say, and what becomes of stamps that say nothing."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
from structlog.testing import capture_logs

from foliot.clock import HostClock
from foliot_probe import in_band
from foliot_probe.core.measure.ack_delays import AckDelays, Ends
from foliot_probe.in_band import InBandMeter
from foliot_probe.io.ack_headers import AckHeaders, AckRow
from foliot_probe.io.tcp_clock import MonotonicOffset, MonotonicReading, TcpClock
from foliot_schemas import ClockState, Nic, Node
from patience import patience

SECOND = 1_000_000_000
MILLISECOND = 1_000_000
PATIENCE_S = patience(30.0)
TCP_USEC_TS = 1 << 4
HERE, THERE = "10.99.0.1", "10.99.0.2"
NAMES = {HERE: "a", THERE: "b"}


def number(address):
    """An address as rows have it."""
    return int.from_bytes(socket.inet_aton(address))


def node(address):
    """A node whose service address this is."""
    name = NAMES[address]
    nic = Nic(
        name=f"{name}.rail0", rail="rail0", device="wire0", address=address, clock=name, service_address=address,
        path_addresses=(), entropies=(),
    )  # fmt: skip
    return Node(name=name, nics=(nic,))


def state(name, reading, **changes):
    """That of a clock whose local time is the common one."""
    made = ClockState(
        clock=name, reference="a", offset_ns=0, drift_ppb=0.0, hard_bound_ns=10, bound_ns=10, growth_ppb=0.0,
        as_of_ns=reading.local_ns, void_after_ns=reading.local_ns + 3_600 * SECOND, status="synchronised",
        monotonic_ns=reading.monotonic_ns - reading.local_ns,
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def attribute(kind, value):
    """One of netlink, of four bytes, or of others."""
    return struct.pack("=HH", 4 + len(value), kind) + value


def replace_route(features):
    """That of the wire's network in the thread's namespace. iproute2 before 6.7 has no word for the feature."""
    body = struct.pack("=8BI", socket.AF_INET, 24, 0, 0, 254, 4, 253, 1, 0)
    metrics = attribute(12, struct.pack("=I", features))
    body += attribute(1, socket.inet_aton("10.99.0.0")) + attribute(8, metrics)
    body += attribute(4, struct.pack("=I", socket.if_nametoindex("wire0")))
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as asked:
        # RTM_NEWROUTE: request, answer, replace, create.
        asked.send(struct.pack("=IHHII", 16 + len(body), 24, 0x505, 1, 0) + body)
        assert struct.unpack_from("=i", asked.recv(4096), 16) == (0,)


# -- with a kernel ----------------------------------------------------------------------------------------------------


class Hosts:
    """Two network namespaces with a switch between, whose port to the second one is slow."""

    def __init__(self, switched, stack):
        self._wire, self._stack = switched, stack
        self._address_of = {}

    def stamp(self, *, timestamps="2", features=TCP_USEC_TS):
        """Sets what TCP's stamps are."""
        for namespace in self._wire.namespaces:
            with self._wire.inside(namespace):
                Path("/proc/sys/net/ipv4/tcp_timestamps").write_text(timestamps)
                replace_route(features)

    def narrow(self):
        """A queue of up to 100 ms before the second host."""
        queue = ("root", "tbf", "rate", "20mbit", "burst", "64kb", "limit", "250kb")
        with self._wire.inside(self._wire.switch):
            subprocess.run(("tc", "qdisc", "add", "dev", "port2", *queue), check=True)

    def meter(self, address, **changes):
        """That of one host, which knows both clocks."""
        clock = HostClock(NAMES[address])
        with self.at(address):
            made = InBandMeter(node(address), clock)
        self._address_of[made] = address
        self._stack.callback(made.close)
        reading, other = made._tcp_clock.reading(), THERE if address == HERE else HERE
        made.set_peer(NAMES[other], node(other))
        clock.update(state(NAMES[address], reading))
        made.set_clock(state(NAMES[other], reading, **changes))
        return made

    def reader(self, address, *addresses):
        """Of acknowledgements to these addresses that come to a host."""
        with self.at(address):
            made = AckHeaders(addresses)
        self._stack.callback(made.close)
        return made

    def send(self, source, destination):
        """A connection that always has data to send."""
        with self.at(destination):
            server = self._stack.enter_context(socket.create_server((destination, 0)))
        with self.at(source):
            sender = self._stack.enter_context(socket.create_connection(server.getsockname(), PATIENCE_S))
        receiver = self._stack.enter_context(server.accept()[0])
        for work in (lambda: sender.sendall(bytes(1 << 16)), lambda: receiver.recv(1 << 20)):
            thread = threading.Thread(target=self._repeat, args=(work,), daemon=True)
            thread.start()
            self._stack.callback(thread.join, PATIENCE_S)
        self._stack.callback(receiver.shutdown, socket.SHUT_RDWR)

    def at(self, address):
        """The calling thread on a host."""
        return self._wire.inside(self._wire.namespaces[(HERE, THERE).index(address)])

    def _repeat(self, work):
        with contextlib.suppress(OSError):
            while work() != b"":
                pass

    def run(self, *meters, for_s=1.5):
        """Reads for some time; the last delays of each."""
        end_s = time.monotonic() + for_s
        while time.monotonic() < end_s:
            for meter in meters:
                with self.at(self._address_of[meter]):
                    meter.read()
            time.sleep(0.02)
        return [meter.take() for meter in meters]


@pytest.fixture
def hosts(switched):
    """Both, with whatever a test lets them send."""
    with contextlib.ExitStack() as stack:
        yield Hosts(switched, stack)


def test_a_queue_shows_in_the_direction_that_it_is_in(hosts):
    """Round trips of both flows have it, as acknowledgements of the one wait with the data of the other."""
    hosts.stamp()
    hosts.narrow()
    here, there = hosts.meter(HERE), hosts.meter(THERE)
    hosts.send(HERE, THERE)
    hosts.send(THERE, HERE)
    hosts.run(here, there)
    late, quick = hosts.run(here, there)
    late_ns, quick_ns = late[Ends(number(HERE), number(THERE))], quick[Ends(number(THERE), number(HERE))]
    assert late_ns > 2 * MILLISECOND
    assert quick_ns < late_ns / 2


@pytest.mark.parametrize(
    "stamps", [{"timestamps": "1"}, {"features": 0}], ids=["a number of its own added", "milliseconds"]
)  # fmt: skip
def test_stamps_of_another_kind_say_nothing(hosts, stamps):
    """Of hosts that are as most are. Acknowledgements come all the same."""
    hosts.stamp(**stamps)
    here = hosts.meter(HERE)
    hosts.send(HERE, THERE)
    assert hosts.run(here) == [{}]


@pytest.mark.parametrize(
    "changes", [{"monotonic_ns": 0}, {"status": "disrupted"}], ids=["it does not say", "its clock is disrupted"]
)  # fmt: skip
def test_nothing_is_known_of_a_peer_whose_clock_is_not(hosts, changes):
    """Its probe may be an earlier one, or not permitted to look."""
    hosts.stamp()
    here = hosts.meter(HERE, **changes)
    hosts.send(HERE, THERE)
    assert hosts.run(here, for_s=0.5) == [{}]


def test_only_acknowledgements_to_the_own_addresses_are_read(hosts):
    """What comes to others is none, nor is data: of what a receiver gets, the end of the handshake alone is one."""
    hosts.stamp()
    stranger, receiver = hosts.reader(THERE, "10.99.9.9"), hosts.reader(THERE, THERE)
    sender = hosts.reader(HERE, "10.99.9.9", HERE)
    hosts.send(HERE, THERE)
    deadline_s = time.monotonic() + PATIENCE_S
    while not len(found := sender.read()) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert set(found[["local", "remote"]].tolist()) == {(number(HERE), number(THERE))}
    assert len(stranger.read()) == 0
    assert len(receiver.read()) <= 1


# -- without one ------------------------------------------------------------------------------------------------------


def acks(*rows):
    """Rows of acknowledgements from one peer: when it sent each, and when the data had left, in ns of the clocks."""
    local, remote = number(HERE), number(THERE)
    return np.array([(local, remote, *(each // 1_000 % (1 << 32) for each in row)) for row in rows], AckRow)


def test_a_host_that_may_not_look_says_so_once_and_goes_on(monkeypatch, tmp_path):
    """It still tells peers of its clock, which may be permitted."""

    def refuse(_addresses):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(in_band, "AckHeaders", refuse)
    (tmp_path / "tcp_timestamps").write_text("2\n")
    clock = HostClock("a")
    with capture_logs() as logs:
        made = InBandMeter(node(HERE), clock, TcpClock(clock, tmp_path / "tcp_timestamps"))
        made.read()
        made.read()
    assert [(each["event"], each["reason"]) for each in logs] == [("in_band_unknown", "Operation not permitted")]
    assert made.take() == {}
    made.close()


def test_a_delay_is_the_difference_by_the_common_time():
    """The peer's clock was begun at another time; both may have run over since, as stamps have 32 bits."""
    own_ns, other_ns = 3 * SECOND, (1 << 32) * 1_000 + SECOND // 100
    delays = AckDelays()
    rows = acks(*((other_ns - 4 * MILLISECOND, own_ns - (5 + each) * MILLISECOND) for each in (1, 2, 30)))
    rows["local"][0] = rows["local"][1]
    delays.add(rows, own_ns, {number(THERE): other_ns})
    assert delays.take() == {Ends(number(HERE), number(THERE)): 3 * MILLISECOND}
    assert delays.take() == {}


def test_stamps_that_cannot_be_are_passed_over():
    """Data that has not left yet, or left long ago; an acknowledgement of the future, or of long ago; a stranger."""
    own_ns = other_ns = 100 * SECOND
    strange = [
        (other_ns, own_ns + MILLISECOND), (other_ns, own_ns - 3 * SECOND), (other_ns + SECOND, own_ns - SECOND),
        (other_ns - 3 * SECOND, own_ns),
    ]  # fmt: skip
    delays = AckDelays()
    delays.add(acks(*strange), own_ns, {number(THERE): other_ns})
    delays.add(acks((other_ns, own_ns - MILLISECOND)), own_ns, {number(HERE): other_ns})
    assert delays.take() == {}


class Clocks(TcpClock):
    """One whose readings a test says."""

    def __init__(self, setting, *readings):
        super().__init__(HostClock("a"), setting)
        self.readings = [MonotonicReading(*each) for each in readings]

    def reading(self):
        """The next one."""
        return self.readings.pop(0)


def test_a_host_tells_the_clock_of_its_stamps_with_its_rate(tmp_path):
    """From the second time on; while stamps have a number of their own added, it tells nothing."""
    setting = tmp_path / "tcp_timestamps"
    setting.write_text("2\n")
    clocks = Clocks(setting, (SECOND, 5 * SECOND), (3 * SECOND, 7 * SECOND + 20_000), (4 * SECOND, 80 * SECOND))
    assert clocks.offset() == MonotonicOffset()
    assert clocks.offset() == MonotonicOffset(4 * SECOND + 20_000, pytest.approx(10_000.0))
    assert clocks.offset() == MonotonicOffset()  # no crystal has such a rate
    setting.write_text("1\n")
    assert clocks.offset() == MonotonicOffset()


def test_two_clocks_that_show_the_same_are_known_to(tmp_path):
    """A difference of 0 would say that nothing is known."""
    setting = tmp_path / "tcp_timestamps"
    setting.write_text("2\n")
    clocks = Clocks(setting, (SECOND, SECOND), (3 * SECOND, 3 * SECOND))
    clocks.offset()
    assert clocks.offset() == MonotonicOffset(1, 0.0)


def test_a_host_that_hides_its_settings_tells_nothing(tmp_path):
    """As a container does."""
    assert not TcpClock(HostClock("a"), tmp_path / "nothing").is_bare()
