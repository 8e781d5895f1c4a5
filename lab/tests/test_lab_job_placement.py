"""The placement of jobs: apart where the hash permits it, together where they are to collide, as the kernel has it."""

import socket
from collections import Counter
from types import SimpleNamespace

import pytest

from foliot.node.addressing import describe
from foliot.settings import read
from foliot_lab.scenario.reading import parse_scenario
from foliot_lab.scenario.spec import FabricSpec
from foliot_lab.scenario.topology import plan
from foliot_lab.services.deployment import homes, node_settings
from foliot_lab.services.job_placement import FLOWS_PORT, Carrier, JobFlow, PlacementError, job_flows, place
from foliot_remediator.core.state.homes import pair_number
from foliot_remediator.settings import RemediatorSettings

SPEC = FabricSpec(hosts=6, rails=2, leaves=2, spines=4)
FABRIC = "[fabric]\nhosts = 6\nrails = 2\nleaves = 2\nspines = 4\n"


def scenario(*jobs):
    """A scenario of jobs, each given by its keys; they take steps unless something else is said."""
    tables = [{"name": f"job{number}", "step_mb": 1} | job for number, job in enumerate(jobs)]
    lines = ["\n".join(("[[job]]", *(f"{key} = {value!r}" for key, value in table.items()), "")) for table in tables]
    return parse_scenario(FABRIC + "".join(lines))


def nodes(planned):
    """The records of all hosts."""
    return [describe(node_settings(planned, host)) for host in planned.hosts]


def hashed(flow, ports):
    """A hash of a flow's ends and port, with the spines of a fabric as its values."""
    return f"{flow[2]}.spine{pair_number(flow[0], flow[1] + str(ports), flow[2]) % SPEC.spines}"


class Hashing:
    """A fabric that is only its plan and a hash; `fixed` overrules that for all flows."""

    def __init__(self, fixed=None):
        self.plan = plan(SPEC, 7)
        self.fixed = fixed

    def spine(self, source, destination, rail, port, to=4789, *, protocol=socket.IPPROTO_UDP):
        """As `Fabric.spine`."""
        if self.plan.leaf(source, rail) == self.plan.leaf(destination, rail):
            return None
        return self.fixed or hashed((source, destination, rail), (port, to, protocol))


def lanes(run, fabric, placement):
    """How many flows cross each link of the fabric in each direction, by job."""
    entropies = nodes(fabric.plan)[0].nics[0].entropies
    count = 4
    found = {}
    for flow in job_flows(run):
        ends = flow[1:]
        if run.jobs[flow.job].over == "nic":
            spine = fabric.spine(*ends, placement.port(flow), FLOWS_PORT + flow.job, protocol=socket.IPPROTO_TCP)
        else:
            home = placement.homes().get(ends, pair_number(*ends) % count)
            spine = fabric.spine(*ends, entropies[home])
        if spine is not None:
            for lane in ((fabric.plan.leaf(ends[0], ends[2]), spine), (spine, fabric.plan.leaf(ends[1], ends[2]))):
                found.setdefault(lane, []).append(flow)
    return found


RING = {"kind": "ring"}
CROSSING = {"kind": "pairs", "hosts": ["node0", "node1", "node4", "node5"], "rails": ["rail0"]}
OTHERS = {"kind": "pairs", "hosts": ["node2", "node3"], "rails": ["rail0"]}


def test_what_nobody_places_is_left_to_the_remediator():
    """A job by the hash has no homes of the lab's choice; without jobs nothing is placed."""
    assert not place(scenario(RING), Hashing(), nodes(plan(SPEC, 7))).homes()
    assert not place(parse_scenario(FABRIC), Hashing(), nodes(plan(SPEC, 7))).chosen
    assert homes({}) == {}


def test_jobs_apart_share_no_link():
    """Three flows of two jobs, which the hash leads over one link, where some entropy of each leads elsewhere."""
    fabric = Hashing()
    for placed, most in (("hash", 3), ("apart", 1)):
        run = scenario(CROSSING | {"placed": placed}, OTHERS | {"placed": placed})
        placement = place(run, fabric, nodes(fabric.plan))
        assert max(len(flows) for flows in lanes(run, fabric, placement).values()) == most


def test_jobs_apart_leave_the_links_of_others_alone():
    """What another job's flow takes by the hash is taken."""
    run = scenario(CROSSING, OTHERS | {"placed": "apart"})
    fabric = Hashing()
    placement = place(run, fabric, nodes(fabric.plan))
    for flows in lanes(run, fabric, placement).values():
        assert len({flow.job for flow in flows}) == 1


@pytest.mark.parametrize("over", ["service", "nic"])
def test_jobs_that_collide_share_a_link(over):
    """All flows of both, by their entropies or by their source ports."""
    run = scenario(CROSSING | {"placed": "collide", "over": over}, OTHERS | {"placed": "collide"})
    fabric = Hashing()
    placement = place(run, fabric, nodes(fabric.plan))
    most = max(lanes(run, fabric, placement).values(), key=len)
    assert Counter(flow.job for flow in most) == {0: 2, 1: 1}
    assert set(placement.homes()) == {flow[1:] for flow in job_flows(run) if run.jobs[flow.job].over == "service"}


def test_a_home_serves_all_jobs_between_its_ends():
    """Where one of two jobs between the same hosts is to collide and the other to be apart, they collide."""
    run = scenario(OTHERS | {"placed": "collide"}, OTHERS | {"placed": "apart"}, CROSSING | {"placed": "collide"})
    fabric = Hashing()
    placement = place(run, fabric, nodes(fabric.plan))
    assert len(max(lanes(run, fabric, placement).values(), key=len)) == 4


def test_a_fabric_that_leads_no_two_over_one_link_is_told():
    """With the way out of it."""
    run = scenario(OTHERS | {"placed": "collide"}, CROSSING | {"placed": "collide"})
    alone = SimpleNamespace(plan=plan(SPEC, 7))
    alone.spine = lambda source, *_, **__: f"rail0.spine{source[-1]}"
    with pytest.raises(PlacementError, match=r"leads no two flows .* Take another seed in \[clock\]"):
        place(run, alone, nodes(alone.plan))


def test_homes_are_settings_that_the_remediator_reads():
    """By the names of its own section."""
    rules = homes({("node0", "node3", "rail1"): 2})["remediator.placements"]
    settings = read(RemediatorSettings, "remediator", {"remediator": {"placements": rules}}, {}, source="lab")
    (rule,) = settings.placements
    assert (rule.node, rule.peer, rule.rail, rule.via, rule.entropy) == ("node0", "node3", "rail1", "rail1", 2)
    assert not rule.pinned


@pytest.mark.net
def test_the_kernel_has_it_so(fabric):
    """On a real fabric, by the leaf's own answers, with homes and with ports."""
    run = scenario(CROSSING | {"placed": "collide", "over": "nic"}, OTHERS | {"placed": "collide"}, RING)
    placement = place(run, fabric, nodes(fabric.plan))
    most = max(lanes(run, fabric, placement).values(), key=lambda flows: sum(flow.job < 2 for flow in flows))
    assert {flow.job for flow in most} >= {0, 1}
    assert placement.chosen.keys() == {
        Carrier("node2", "node3", "rail0"),
        *(Carrier(flow.source, flow.destination, flow.rail, 0) for flow in job_flows(run) if flow.job == 0),
    }
    assert JobFlow(2, "node0", "node1", "rail0") in set(job_flows(run))
