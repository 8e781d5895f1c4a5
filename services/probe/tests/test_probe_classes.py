"""Probes are of the class of their rail's traffic: on the wire, and in the queues of a switch."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time

import pytest

from foliot.clock import HostClock
from foliot.settings import SettingsError, read
from foliot_probe import service
from foliot_probe.core.stream_table import StreamTable
from foliot_probe.path_map import PathMap
from foliot_probe.settings import ProbeSettings
from foliot_schemas import Nic, Node
from patience import patience

LOSSLESS, ECN_BITS = 26, 2
SETTINGS = ProbeSettings(classes={"rail0": LOSSLESS})
ETH_P_IP, ETH_P_ALL = 0x0800, 0x0003
PORT, OVERLAY_PORT, SINK_PORT = 7_946, 4_789, 9_999
SECOND = 1_000_000_000


class Tap:
    """All IPv4 packets of UDP that a device sends or takes."""

    def __init__(self, device):
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        self._socket.bind((device, ETH_P_ALL))
        self._socket.setblocking(False)

    def ds_fields(self, port):
        """The DS fields of those to a port so far, by the address that sent them."""
        found = {}
        with contextlib.suppress(BlockingIOError):
            while True:
                packet, (_, protocol, *_) = self._socket.recvfrom(2_048)
                if (
                    protocol == ETH_P_IP
                    and packet[9] == socket.IPPROTO_UDP
                    and packet[22:24] == port.to_bytes(2, "big")
                ):
                    found.setdefault(socket.inet_ntoa(packet[12:16]), set()).add(packet[1])
        return found

    def close(self):
        """Sees nothing any more."""
        self._socket.close()


@pytest.mark.net
@pytest.mark.usefixtures("packets")
@pytest.mark.parametrize(("network", "port"), [("10.99.0", PORT), ("10.98.0", OVERLAY_PORT)], ids=["wire", "tunnel"])
@pytest.mark.parametrize(("settings", "dscp"), [(SETTINGS, LOSSLESS), (ProbeSettings(), 0)], ids=["26", "none"])
def test_every_probe_on_the_wire_has_the_class_of_its_rail(tunnel, network, port, settings, dscp):
    """Both ends' small, coded and padded ones; in a tunnel the outer packet has it, which switches look at."""
    with tunnel.inside(tunnel.namespaces[1]):
        tap = Tap("wire0")
    pair = tunnel.engines(network, settings)
    for _ in range(12):
        pair.tick()
    assert pair.ends[1].packets.take_report().full_received[0] > 0
    assert tap.ds_fields(port) == {f"10.99.0.{number}": {dscp << ECN_BITS} for number in (1, 2)}
    pair.close()
    tap.close()


@pytest.mark.net
def test_packets_that_ask_for_routers_have_it(line):
    """A switch may choose the way by it as well."""
    nic = Nic(
        name="node0.rail0", rail="rail0", device="net1", address="10.96.1.2", clock="node0", service_address="10.97.0.1",
        path_addresses=("10.98.0.1",), entropies=(49_200,),
    )  # fmt: skip
    far = Nic(
        name="node1.rail0", rail="rail0", device="net3", address="10.96.3.2", clock="node1", service_address="10.97.0.2",
        path_addresses=("10.98.0.2",), entropies=(49_200,),
    )  # fmt: skip
    table = StreamTable(Node(name="node0", nics=(nic,), probe_port=PORT))
    _, begun = table.set_peer(Node(name="node1", nics=(far,), probe_port=PORT))
    asking = PathMap(table, SETTINGS)
    with line.inside(line.namespaces[1]):
        tap = Tap("net1")
    asking.begin(begun, 0)
    with line.inside(line.namespaces[0]):
        asking.step(SECOND)
    assert tap.ds_fields(OVERLAY_PORT) == {"10.96.1.2": {LOSSLESS << ECN_BITS}}
    asking.close()
    tap.close()


@pytest.mark.net
@pytest.mark.usefixtures("packets")
@pytest.mark.parametrize(("classes", "is_held_up"), [({"*": LOSSLESS}, True), ({}, False)], ids=["26", "none"])
def test_a_queue_of_one_class_holds_up_the_probes_of_that_class_alone(switched, classes, is_held_up):
    """A switch sends DSCP 26 at 400 kb/s and has 48 kB of it in its queue, which takes a second."""
    queues = (
        "qdisc add dev port2 root handle 1: htb default 1",
        "class add dev port2 parent 1: classid 1:1 htb rate 1gbit quantum 3000",
        "class add dev port2 parent 1: classid 1:26 htb rate 400kbit quantum 3000",
        f"filter add dev port2 parent 1: protocol ip u32 match ip dsfield {LOSSLESS << ECN_BITS} 0xfc flowid 1:26",
    )
    with switched.inside(switched.switch):
        for line in queues:
            subprocess.run(("tc", *line.split()), check=True)
    pair = switched.engines("10.99.0", ProbeSettings(classes=classes, full_every=0))
    assert least_delay_ns(pair) < SECOND // 10
    with (
        switched.inside(switched.namespaces[1]),
        contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sink,
    ):
        sink.bind(("10.99.0.2", SINK_PORT))
        with (
            switched.inside(switched.namespaces[0]),
            contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as traffic,
        ):
            traffic.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, LOSSLESS << ECN_BITS)
            for _ in range(48):
                traffic.sendto(bytes(972), ("10.99.0.2", SINK_PORT))
        assert (least_delay_ns(pair) > SECOND // 10) == is_held_up
    pair.close()


def least_delay_ns(pair):
    """The one-way delay of the quickest of the next few probes to the second end, by the kernel's stamps."""
    begun_ns, give_up_s = HostClock("host").local_ns(), time.monotonic() + patience(20)
    delays = []
    while len(delays) < 3:
        assert time.monotonic() < give_up_s, "no probe came"
        pair.tick()
        time.sleep(0.01)  # the class has room for so many probes
        done = pair.ends[1].packets.take_report().incoming
        delays += (done.receive_ns - done.transmit_ns)[done.transmit_ns > begun_ns].tolist()
    return min(delays)


def settings(classes):
    """`[probe]` with these classes."""
    return read(ProbeSettings, "probe", {"probe": {"classes": classes}}, {}, source="foliot.toml")


def test_rails_have_their_own_class_or_that_of_all_others():
    """Without any, 0: best effort."""
    one, all_others = settings({"rail0": 26}), settings({"rail0": 26, "*": 10})
    assert [one.ds_field(rail) for rail in ("rail0", "rail1")] == [104, 0]
    assert [all_others.ds_field(rail) for rail in ("rail0", "rail1")] == [104, 40]


@pytest.mark.parametrize("dscp", [-1, 64, "EF", True])
def test_what_is_no_dscp_is_refused(dscp):
    """In words that name the key and the file."""
    with pytest.raises(SettingsError, match=r"probe\.classes.*expected `int`.*\(from foliot\.toml\)"):
        settings({"rail0": dscp})


async def test_a_rail_that_the_node_lacks_stops_the_start(tmp_path, monkeypatch):
    """Before the bus is asked; `"*"` is none."""
    config = tmp_path / "foliot.toml"
    config.write_text(
        """
        [node]
        name = "node0"
        index = 0
        nics = [{ rail = "rail0", number = 0, device = "lo", address = "127.0.0.1" }]
        [probe.classes]
        "*" = 10
        rail0 = 26
        rail7 = 26
        """
    )
    monkeypatch.setenv("FOLIOT_CONFIG", os.fspath(config))
    with pytest.raises(
        SettingsError, match=r'probe\.classes: "rail7" is no rail of this node; there are "rail0", "\*"'
    ):
        await service.main()
