"""Routers that are not to answer do not, and what is asked of them stays unknown."""

from __future__ import annotations

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

SPEC = FabricSpec(hosts=4, rails=1, leaves=2, spines=2, icmp=False)
PORT = 49_200


def test_no_hop_is_known_where_routers_say_nothing(fabric):
    """Though packets reach the far host, and nothing keeps the routers from sending."""
    plan = fabric.plan
    with inside(fabric.host("node0")):
        asking = HopSocket(plan.underlay("node0", "rail0"), PORT)
    far = plan.underlay("node3", "rail0")
    tracer = HopTracer(200.0, Random(1))
    tracer.begin(0, time.monotonic_ns())
    answers, deadline_s = [], time.monotonic() + patience(60)
    while tracer.hops(0) is None:
        assert time.monotonic() < deadline_s
        for answer in asking.answers():
            answers.append(answer)
            tracer.answered(0, answer.router, answer.token, time.monotonic_ns())
        for ask in tracer.due(time.monotonic_ns()):
            asking.send(far, OVERLAY_PORT, ask.ttl, ask.token)
        time.sleep(0.01)
    asking.close()
    assert answers == []
    assert tracer.hops(0) == ()
