"""Two engines on loopback addresses whose sockets ask for NICs' stamps: prints what they saw, as JSON.

It runs below `stamping_nic.c`. Its one argument says how the NICs' clocks are told: ``right``, or ``off`` by a second.
"""

from __future__ import annotations

import json
import os
import sys
import time

from foliot.clock import HostClock
from foliot_probe.engine import Engine
from foliot_probe.settings import ProbeSettings
from foliot_schemas import Nic, Node

TICK_NS = ProbeSettings().tick_ms * 1_000_000
SHIFT_NS = int(os.environ["SHIFT_NS"])


def record(name, address, port):
    """A node whose NIC is the loopback device."""
    nic = Nic(
        name=f"{name}.rail0", rail="rail0", device="lo", address=address, clock=name, service_address="10.97.0.1",
        path_addresses=(address,), entropies=(49200,),
    )  # fmt: skip
    return Node(name=name, nics=(nic,), probe_port=port, nic_stamps=True)


def ticks(engines, first, count):
    """Both tick, and the kernel has a moment to deliver."""
    for tick in range(first, first + count):
        for engine in engines:
            engine.listen(tick * TICK_NS)
            engine.speak(tick)
        time.sleep(0.002)
    return first + count


def told(report):
    """The probes completed of a report: their delays, and how far their stamps are from now."""
    now_ns = HostClock("now").local_ns()
    return {
        "kinds": [int(report.own_kind[0]), int(report.peer_kind[0])],
        "count": len(report.outgoing.row),
        "delays": (report.outgoing.receive_ns - report.outgoing.transmit_ns).tolist(),
        "transmit_age": [now_ns - at_ns for at_ns in report.outgoing.transmit_ns.tolist()],
        "receive_age": [now_ns - at_ns for at_ns in report.incoming.receive_ns.tolist()],
        "left_age": now_ns - int(report.left_ns[0]),
        "unsent": int(report.unsent[0]),
        "received": int(report.received[0]),
        "silent": False,
    }


def main():
    """Ten ticks by the kernel's stamps, then by those of one NIC, of both, and of the kernel again."""
    nodes = [record(name, f"127.0.8.{number}", 7946) for number, name in enumerate("ab", 1)]
    clock = HostClock("host")
    engines = [Engine(node, clock, ProbeSettings(), 0, frozenset({"rail0"})) for node in nodes]
    for engine, peer in zip(engines, reversed(nodes), strict=True):
        assert engine.bind() == 0
        engine.set_peer(peer)
        engine.demand.set_in_use(frozenset(engine.table.rows))
        engine.set_nic_shifts({"rail0": SHIFT_NS + (10**9 if sys.argv[1] == "off" else clock.epoch_ns())})
    said, tick = [], ticks(engines, 1, 12)
    for ends in ((), (0,), (0, 1), (1,), ()):
        for number, engine in enumerate(engines):
            engine.set_by_nic("rail0", by_nic=number in ends)
        tick = ticks(engines, tick, 3)
        for engine in engines:
            engine.packets.take_report()
            engine.take_stamp_counts()
        tick = ticks(engines, tick, 25)
        said.append(
            [
                told(engine.packets.take_report()) | {"counts": engine.take_stamp_counts()["rail0"].tolist()}
                for engine in engines
            ]
        )
    sys.stdout.write(json.dumps(said))


main()
