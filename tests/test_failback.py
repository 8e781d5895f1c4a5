"""Failback without a storm: a detector and a remediator over one flapping NIC, in virtual time.

And a detector over a real kernel's.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap

import pytest
from remediator_world import World, make_node

from foliot_detector.core.pipeline import Pipeline
from foliot_detector.flap_rules import PRESETS
from foliot_detector.settings import DetectorSettings
from foliot_schemas import PortState

NIC = "node1.rail0"
SECOND = 1_000_000_000
FIRST_S, LONGEST_S = 0.5, 6.0
"""Probation: a tenth of the defaults, as is all the rest here."""


class Road:
    """A NIC, what a detector says of it, and what a remediator does about that."""

    def __init__(self, rule, **settings):
        self.world = World(nodes=2, probation_s=FIRST_S, longest_probation_s=LONGEST_S)
        self.detector = Pipeline(DetectorSettings(flap_rule=rule, **settings))
        for name in self.world.names:
            self.detector.observe(make_node(name))
        self.downs, self.ups, self.reuse_at_ns = 0, 1, 0
        self.tell(carrier=True)

    def tell(self, *, carrier, admin_up=True):
        """The port's state, to both; and to the remediator what the detector makes of it."""
        (self.world.dead_nics.discard if carrier else self.world.dead_nics.add)(NIC)
        port = PortState(
            node="node1", nic=NIC, at_ns=self.world.now_ns, carrier=carrier, admin_up=admin_up, index=3, fault="boot",
            carrier_down_count=self.downs, carrier_up_count=self.ups,
        )  # fmt: skip
        self.world.see(port)
        for event in self.detector.observe(port):
            self.reuse_at_ns = event.evidence["reuse_at_ns"]
            self.world.see(event)

    def lose(self):
        """The carrier goes."""
        self.downs += 1
        self.tell(carrier=False)

    def find(self):
        """And comes back."""
        self.ups += 1
        self.tell(carrier=True)

    def flap(self, for_s=0.3):
        """One after the other."""
        self.lose()
        self.world.run(for_s)
        self.find()

    def pass_over(self, until_ns):
        """Lets time pass in which nothing happens, but for its last second."""
        if until_ns - self.world.now_ns > SECOND:
            self.world.now_ns = (until_ns - SECOND) // SECOND * SECOND
        self.world.run((until_ns - self.world.now_ns) / SECOND)

    @property
    def is_away(self):
        """Whether the traffic of the NIC goes elsewhere."""
        return bool(self.world.core.routing.away)

    @property
    def moves(self):
        """What the NIC's node was told to do, in order."""
        return [command.verb for command in self.world.commands if command.node == "node1"]


@pytest.mark.parametrize("rule", PRESETS)
def test_flaps_cost_a_few_moves_and_end_at_home(rule):
    """Ten, one every 2 s: away and home three times at most, never home while held back, home soon after the hold."""
    road = Road(rule)
    for _ in range(10):
        road.flap()
        for _ in range(17):
            road.world.run(0.1)
            assert road.is_away or road.world.now_ns >= road.reuse_at_ns
    assert road.is_away
    assert len(road.moves) <= 2 * 3
    if road.reuse_at_ns > road.world.now_ns + SECOND:
        road.pass_over(road.reuse_at_ns - SECOND)
        assert road.is_away
    road.world.run(LONGEST_S + 2)

    assert not road.is_away
    assert road.moves[0::2] == ["reroute"] * len(road.moves[0::2])
    assert road.moves[1::2] == ["restore"] * len(road.moves[0::2])


def test_there_is_always_another_attempt():
    """Fifty losses, each as soon as it is home again: it is always taken home, after the longest probation at most."""
    road = Road("gpud")  # which does not count what is so short: nothing but probation holds it
    waited = []
    for _ in range(50):
        road.flap()
        back_ns = road.world.now_ns
        if len(waited) > 5:
            road.pass_over(back_ns + round((LONGEST_S - 0.5) * SECOND))
            assert road.is_away
        while road.is_away and road.world.now_ns < back_ns + round((LONGEST_S + 2) * SECOND):
            road.world.run(0.1)
        waited.append((road.world.now_ns - back_ns) / SECOND)

    assert waited[:5] == pytest.approx([0.5, 1, 2, 4, 6], abs=0.25)
    assert waited[5:] == pytest.approx([6] * 45, abs=0.25)
    assert road.moves == ["reroute", "restore"] * 50


def test_an_administrators_maintenance_does_not_prolong_anything():
    """Down and up ten times: away each time, and home after the first probation each time."""
    road = Road("hpe-high")
    for _ in range(10):
        road.downs += 1
        road.tell(carrier=False, admin_up=False)
        road.world.run(0.3)
        assert road.is_away
        road.find()
        road.world.run(FIRST_S + 0.5)
        assert not road.is_away


CODE = textwrap.dedent("""
    import asyncio, subprocess, time
    from foliot.node.link_monitor import LinkMonitor
    from foliot.node.addressing import describe
    from foliot.settings import NicSettings, NodeSettings
    from foliot_detector.core.pipeline import Pipeline
    from foliot_detector.settings import DetectorSettings
    from foliot_probe.io.port_reader import PortReader

    def ip(line):
        subprocess.run(["ip", *line.split()], check=True)

    def make():
        ip("link add near type veth peer far")
        ip("link set near up")

    class Now:
        now_ns = staticmethod(time.time_ns)

    async def main():
        own = describe(NodeSettings(name="n", index=0, \
nics=(NicSettings(rail="r", number=0, device="near", address="10.0.0.1"),)))
        detector, events, states = Pipeline(DetectorSettings()), [], []
        detector.observe(own)

        def tell(state):
            states.append(state)
            events.extend(detector.observe(state))

        async def until(holds):
            async with asyncio.timeout(60):
                while not (states and holds(states[-1])):
                    await asyncio.sleep(0.01)

        make()
        ports = PortReader(own, Now(), "boot", tell)
        async with LinkMonitor(ports.changed) as links:
            ports.begin(await links.present())
            ports.tell_counters()
            ip("link set far up")  # the first cable
            await until(lambda state: state.carrier)
            for _ in range(3):
                ip("link set far down")
                await until(lambda state: not state.carrier)
                ip("link set far up")
                await until(lambda state: state.carrier)
            for _ in range(3):
                ip("link set near down")
                await until(lambda state: not state.admin_up)
                ip("link set near up")
                await until(lambda state: state.carrier)
            for _ in range(3):  # a driver that is loaded again
                ip("link del near")
                await until(lambda state: not state.admin_up)
                make()
                ip("link set far up")
                await until(lambda state: state.carrier)
            ip("link set far down")
            await until(lambda state: not state.carrier)
        print([(event.state, event.evidence["flaps"], event.evidence["suppressed"]) for event in events])
        print(len({state.index for state in states}), len({event.id for event in events}))

    asyncio.run(main())
""")


@pytest.mark.net
def test_a_real_kernels_flaps_maintenance_and_reloads():
    """A first cable, three flaps, an administrator, a device made anew, each three times, and a last loss.

    Those are four flaps, all with their own ids.
    """
    told = subprocess.run(
        ["unshare", "--net", "--map-root-user", sys.executable, "-c", CODE], capture_output=True, text=True, check=False
    )

    assert told.returncode == 0, told.stderr
    *_, said, counts = told.stdout.splitlines()  # behind the log
    events = ast.literal_eval(said)
    assert [(state, flaps) for state, flaps, _ in events] == [
        *[("down", 1), ("up", 0)] * 3,
        *[("admin-down", 0), ("admin-up", 0)] * 6,
        ("down", 1),
    ]
    assert [suppressed for *_, suppressed in events] == [False] * 4 + [True] * 15
    assert counts == f"4 {len(events)}"
