"""When two hosts had no way to each other, and when those who act could not."""

import pytest

from foliot_lab.faults.injection import Edge, Injection
from foliot_lab.measure.intervals import Intervals
from foliot_lab.report.connectivity import TRUSTED_NS, Ways
from foliot_lab.report.hindrances import BACK_AT_WORK_NS, BUS_MISSED_NS, bus_away, hindrances
from foliot_lab.scenario.spec import FabricSpec
from foliot_lab.scenario.topology import plan

SECOND = 1_000_000_000
END = 100 * SECOND
HOSTS = ("node0", "node1", "node2", "node3")


def fault(kind, where, since_s, until_s=None, *, edges=()):
    """A fault that was on for these seconds."""
    healed_ns = None if until_s is None else round(until_s * SECOND)
    return Injection(
        fault_id="f1", kind=kind, where=where, injected_ns=since_s * SECOND, healed_ns=healed_ns, edges=edges
    )


def dead(one, other, *faults, rails=2, spines=2, paths=None):
    """Seconds in which two hosts have no way to each other; node0 and node1 share a leaf, node2 and node3 the other."""
    fabric = plan(FabricSpec(hosts=4, rails=rails, leaves=2, spines=spines), 7)
    found = Ways(fabric, faults, END, paths or {}).without(one, other)
    return [(since / SECOND, (until - TRUSTED_NS) / SECOND) for since, until in found]


def test_intervals_are_joined_and_measured():
    """Those that overlap or touch count once; of a span, what lies in it."""
    some = Intervals([(30, 40), (10, 20), (15, 25), (25, 26), (50, 50)])
    assert list(some) == [(10, 26), (30, 40)]
    assert (some.within(0, 100), some.within(20, 35), some.within(26, 30)) == (26, 11, 0)
    assert list(some | Intervals([(24, 31)])) == [(10, 40)]
    assert list(some.longer(4)) == [(10, 44)]


def test_a_way_lives_while_one_rail_does():
    """No way is left only while both hosts lack a common rail: each NIC counts, at either end, either way."""
    lost = fault("link-down", "node3.rail0", 10, 40)
    assert dead("node0", "node3", lost) == []
    assert dead("node0", "node3", lost, rails=1) == [(10, 40)]
    assert dead("node0", "node1", lost, rails=1) == []
    assert dead("node0", "node3", lost, fault("drop", "node3.rail1", 20, 30)) == [(20, 30)]
    assert dead("node3", "node0", lost, fault("admin-down", "node0.rail1", 20)) == [(20, 40)]
    assert dead("node0", "node3", lost, fault("drop-one-way", "node3.rail1", 20)) == [(20, 40)]
    assert dead("node0", "node3", lost, fault("rate", "node3.rail1", 20)) == []


def test_directions_may_take_rails_of_their_own():
    """Each direction goes its own way, so two NICs dead one way leave a way, but the same one twice does not."""
    here = fault("drop-one-way", "node3.rail0", 10, 40)
    assert dead("node0", "node3", here, fault("drop-one-way", "node0.rail1", 10, 40)) == []
    assert dead("node0", "node3", here, fault("drop-one-way", "node3.rail1", 10, 40)) == [(10, 40)]


def test_between_leaves_a_spine_has_to_live():
    """Hosts of one leaf need none."""
    first = fault("link-down", "rail0.leaf0-spine0", 10, 40)
    assert dead("node0", "node3", first, rails=1) == []
    assert dead("node0", "node3", first, fault("drop", "rail0.leaf1-spine1", 20, 30), rails=1) == [(20, 30)]
    assert dead("node0", "node1", first, fault("drop", "rail0.leaf0-spine1", 20, 30), rails=1) == []
    assert dead("node0", "node3", first, rails=1, spines=1) == [(10, 40)]


def test_a_spine_that_no_path_takes_is_no_way():
    """Leaves choose it by a hash of the entropy. A few may all have the same, in one direction alone, too."""
    lost = fault("link-down", "rail0.leaf0-spine0", 10, 40)

    def by(*spines):
        def path(source, destination, number, spine):
            here, there = ("leaf0", "leaf1") if source == "node0" else ("leaf1", "leaf0")
            links = (
                f"{source}.rail0",
                f"rail0.{here}-spine{spine}",
                f"rail0.{there}-spine{spine}",
                f"{destination}.rail0",
            )
            return f"{source}.rail0>{destination}.rail0#{number}", links

        forth, back = (path("node0", "node3", number, spine) for number, spine in enumerate(spines[0])), spines[1]
        return dict([*forth, *(path("node3", "node0", number, spine) for number, spine in enumerate(back))])

    assert dead("node0", "node3", lost, rails=1, paths=by((0, 0), (0, 1))) == [(10, 40)]
    assert dead("node0", "node3", lost, rails=1, paths=by((0, 1), (0, 0))) == [(10, 40)]
    assert dead("node0", "node3", lost, rails=1, paths=by((0, 1), (1, 0))) == []
    assert dead("node0", "node3", lost, rails=2, paths=by((0, 0), (0, 1))) == []
    upwards = fault("drop-one-way", "rail0.leaf0-spine0", 10, 40)
    assert dead("node0", "node3", upwards, rails=1, paths=by((1, 1), (0, 0))) == []
    assert dead("node0", "node3", upwards, rails=1, paths=by((0, 0), (1, 1))) == [(10, 40)]
    assert dead("node0", "node2", lost, rails=1, paths=by((0, 0), (0, 1))) == []


def test_what_flaps_is_a_way_while_it_is_up_and_trusted():
    """Each time down counts, with the time until what is back is trusted; so a quick flap is no way at all."""
    edges = tuple(Edge(at * SECOND, down) for at, down in ((10, True), (11, False), (30, True), (31, False)))
    flap = fault("flap", "node3.rail0", 10, 31, edges=edges)
    assert dead("node0", "node3", flap, rails=1) == [(10, 11), (30, 31)]
    quick = tuple(Edge(at * SECOND, down) for at, down in ((10, True), (11, False), (12, True), (13, False)))
    assert dead("node0", "node3", fault("flap", "node3.rail0", 10, 13, edges=quick), rails=1) == [(10, 13)]


@pytest.mark.parametrize(
    ("kind", "where", "tasks"),
    [
        ("bus-cut", "bus", {"tell", "command"}),
        ("kill", "nats", {"tell", "command"}),
        ("stop", "detector", {"tell", "command"}),
        ("kill", "remediator", {"command"}),
        ("kill", "node1/agent", {"command", "armed"}),
        ("stop", "node1/probe", {"tell", "command"}),
        ("stop", "node1", {"tell", "command", "armed"}),
        ("partition", "node1|bus", {"tell", "command"}),
        ("partition", "detector|nats", {"tell", "command"}),
        ("partition", "node1|detector", set()),
        ("clock-step", "node1", {"command"}),
        ("kill", "gateway", set()),
        ("cpu", "node1", set()),
        ("link-down", "node1.rail0", set()),
    ],
)
def test_who_is_needed_for_what(kind, where, tasks):
    """Only the absence of a needed service counts against a task; a busy machine is no absence."""
    found = {
        task for task in ("tell", "command", "armed") if hindrances(task, HOSTS, [fault(kind, where, 10, 20)], END)
    }
    assert found == tasks


def test_who_was_gone_has_time_to_come_back():
    """A hindrance lasts until its services are back at work; a momentary one begins that time at once."""
    cut = fault("bus-cut", "bus", 10, 20)
    assert hindrances("tell", HOSTS, [cut], END) == [("f1", 10 * SECOND, 20 * SECOND + BACK_AT_WORK_NS)]
    assert hindrances("tell", HOSTS, [fault("restart", "detector", 10)], END)[0][1:] == (10 * SECOND, 30 * SECOND)
    assert hindrances("tell", HOSTS, [fault("kill", "detector", 10)], END)[0][1:] == (
        10 * SECOND,
        END + BACK_AT_WORK_NS,
    )
    assert hindrances("command", HOSTS, [fault("kill", "sync", 10, 20)], END) == []
    assert hindrances("command", HOSTS, [fault("kill", "sync", 10, 40)], END)[0][1:] == (30 * SECOND, 60 * SECOND)


def test_the_bus_is_missed_after_a_while():
    """Agents that are armed while the bus is away have to notice that first."""
    cut = fault("bus-cut", "bus", 10, 20)
    assert bus_away([cut], 9 * SECOND) is bus_away([cut], 20 * SECOND) is None
    assert bus_away([cut], 12 * SECOND) == ("f1", 10 * SECOND, 10 * SECOND + BUS_MISSED_NS)
