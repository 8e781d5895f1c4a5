"""The routers that a probe finds on a fabric with ECMP are those that its kernel sends the same packets over."""

from __future__ import annotations

import itertools
import time
from random import Random

import pytest

from foliot_lab.fabric.namespaces import inside
from foliot_lab.scenario.spec import FabricSpec
from foliot_probe.core.measure.hop_tracer import HopTracer
from foliot_probe.io.hop_sockets import HopSocket
from foliot_schemas.inventory import OVERLAY_PORT
from patience import patience

pytestmark = pytest.mark.net

SPEC = FabricSpec(hosts=4, rails=1, leaves=2, spines=4)
PORTS = tuple(range(49_200, 49_208))


def traced(fabric, rate_hz=200.0):
    """The hops of every path: source, destination, port."""
    hosts = fabric.plan.hosts
    paths = [(*ends, port) for ends in itertools.permutations(hosts, 2) for port in PORTS]
    sockets = {}
    for host in hosts:
        for port in PORTS:
            with inside(fabric.host(host)):
                sockets[host, port] = HopSocket(fabric.plan.underlay(host, "rail0"), port)
    tracer = HopTracer(rate_hz, Random(1))
    for row in range(len(paths)):
        tracer.begin(row, time.monotonic_ns())
    row_of = {
        (source, port, fabric.plan.underlay(sink, "rail0")): row for row, (source, sink, port) in enumerate(paths)
    }
    deadline_s = time.monotonic() + patience(60)
    while any(tracer.hops(row) is None for row in range(len(paths))) and time.monotonic() < deadline_s:
        for (host, port), each in sockets.items():
            for answer in each.answers():
                tracer.answered(row_of[host, port, answer.peer], answer.router, answer.token, time.monotonic_ns())
        for ask in tracer.due(time.monotonic_ns()):
            source, sink, port = paths[ask.row]
            sockets[source, port].send(fabric.plan.underlay(sink, "rail0"), OVERLAY_PORT, ask.ttl, ask.token)
        time.sleep(0.01)
    for each in sockets.values():
        each.close()
    return {path: tracer.hops(row) for row, path in enumerate(paths)}


def test_every_path_crosses_the_spine_that_the_leaf_sends_it_to(fabric):
    """And paths that share a spine and a far leaf share these routers' addresses, and no others do."""
    found = traced(fabric)
    truth = {path: fabric.spine(path[0], path[1], "rail0", path[2]) for path in found}
    assert {len(hops) for path, hops in found.items() if truth[path] is None} == {1}
    crossing = {path: hops for path, hops in found.items() if truth[path] is not None}
    assert {len(hops) for hops in crossing.values()} == {3}
    assert len(set(truth.values())) == SPEC.spines + 1  # else the ports are too few to tell anything
    leaf = lambda host: fabric.plan.leaf(host, "rail0")  # noqa: E731
    for one, other in itertools.combinations(crossing, 2):
        same_up = (leaf(one[0]), truth[one]) == (leaf(other[0]), truth[other])
        same_down = (leaf(one[1]), truth[one]) == (leaf(other[1]), truth[other])
        assert (crossing[one][1] == crossing[other][1]) == same_up
        assert (crossing[one][2] == crossing[other][2]) == same_down
