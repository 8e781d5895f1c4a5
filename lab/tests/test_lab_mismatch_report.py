"""What was said of traffic that does not take its path: whether it is true, and what it explains."""

import json
import socket

import msgspec
import pytest
from made_runs import REFERENCE, SECOND, event, evidence, lab_ns
from test_lab_job_report import HOME, jobs, run

from foliot_lab.report.conclusion import conclude, lines
from foliot_lab.report.report import build
from foliot_lab.scenario.reading import parse_scenario
from foliot_lab.scenario.topology import plan
from foliot_lab.workload.flow_loop import FlowPlan
from foliot_lab.workload.flow_ways import FlowWays, Way

FLOW = "node1.rail0>node3.rail0"
PATHS = (f"{FLOW}#0", "node3.rail0>node1.rail0#1")
FABRIC = plan(run().fabric, 7)
LINKS = {
    PATHS[0]: FABRIC.links_between("node1", "node3", "rail0", "rail0.spine0"),
    PATHS[1]: FABRIC.links_between("node3", "node1", "rail0", "rail0.spine1"),
}
AS_SAID = Way("rail0", -1, "rail0.spine0", "rail0.spine1")


def said(at_s=5.0, state="elsewhere", *, addresses="nic", **fields):
    """An event about a flow that job a has between service addresses, and job b between NICs."""
    at_ns = REFERENCE + round(at_s * SECOND)
    given = {
        "id": f"m/{state}", "since_ns": at_ns - 2 * SECOND, "fault": "m", "evidence": {"addresses": addresses},
        "related": {"flows": (FLOW,), "paths": PATHS},
    }  # fmt: skip
    return event(at_s, "mismatch", FLOW, state, **(given | fields))


def told(events, *, nic=AS_SAID, service=HOME, paths=LINKS, more='over = "nic"', **record):
    """The report on a run of jobs whose flows between these hosts took these ways."""
    scenario = run(more)
    ways = [[(lab_ns(0), HOME)], [(lab_ns(0), service)], [(lab_ns(0), nic)], [(lab_ns(0), HOME)]]
    kept = jobs(scenario, ways=ways, **record)
    made = msgspec.structs.replace(
        evidence(scenario, [], {}, events), flows=kept.flows, record=kept.record, jobs=kept, paths=paths
    )
    return build(made), scenario


def test_what_is_said_is_told_in_the_labs_names():
    """With the job whose flow it is, in lab time; and the end of it follows from it."""
    report, scenario = told([said(), said(9, "agrees", cause="m/elsewhere")], nic=Way("rail0", -1, "rail0.spine1"))
    assert json.loads(report.json())["mismatches"] == [
        {"event": "m/elsewhere", "job": "b", "flow": "b:node1>node3/rail0", "at_ns": lab_ns(5), "right": True}
    ]
    assert (report.unexplained.events, report.unexplained.commands) == (0, 0)
    assert ("mismatch: b:node1>node3/rail0 of job b does not take the path that is probed for it") in list(
        lines(*conclude(report, scenario, {}))
    )


@pytest.mark.parametrize(("changed", "right"), [
    ({"nic": AS_SAID}, False),
    ({"nic": AS_SAID._replace(spine="rail0.spine1")}, True),
    ({"nic": AS_SAID._replace(acks_spine="rail0.spine0")}, True),
    ({"nic": AS_SAID._replace(spine="rail0.spine1"), "paths": {}}, None),
    ({"nic": AS_SAID._replace(spine="rail0.spine1"), "ran": {0: (lab_ns(0), lab_ns(60))}}, False),
])  # fmt: skip
def test_traffic_between_nics_is_elsewhere_if_the_kernels_lead_it_so(changed, right):
    """Or its acknowledgements. The job has to run, and the lab to know the path's links."""
    report, scenario = told([said()], **changed)
    assert [each.right for each in report.mismatches] == [right]
    assert report.unexplained.events == (0 if right else 1)
    words = ", which is not so" if right is False else ""
    flow = "node1>node3/rail0" if "ran" in changed else "b:node1>node3/rail0 of job b"
    assert f"mismatch: {flow} does not take the path that is probed for it{words}" in list(
        lines(*conclude(report, scenario, {}))
    )


@pytest.mark.parametrize(("way", "right"), [(HOME, False), (Way("rail0", 2, "rail0.spine0"), True)])
def test_traffic_that_foliot_moves_is_elsewhere_if_its_routes_name_another_path(way, right):
    """Whichever links that has."""
    report, _ = told([said(addresses="service")], service=way)
    assert [(each.job, each.right) for each in report.mismatches] == [("a", right)]


def test_the_way_that_counts_is_that_of_the_time():
    """A later one does not matter."""
    ways = [(lab_ns(0), AS_SAID), (lab_ns(7), AS_SAID._replace(spine="rail0.spine1"))]
    scenario = run('over = "nic"')
    kept = jobs(scenario, ways=[[(lab_ns(0), HOME)]] * 2 + [ways, [(lab_ns(0), HOME)]])
    for at_s, right in ((5, False), (8, True)):
        made = evidence(scenario, [], {}, [said(at_s)])
        whole = build(msgspec.structs.replace(made, flows=kept.flows, record=kept.record, jobs=kept, paths=LINKS))
        assert [each.right for each in whole.mismatches] == [right]


def test_what_the_lab_cannot_know():
    """A flow without a way; leaves that spray; a workload, in which nothing explains it."""
    assert [each.right for each in told([said()], ran={})[0].mismatches] == [False]
    scenario = run('over = "nic"')
    kept = jobs(scenario, ways=[[]] * 4)
    made = evidence(scenario, [], {}, [said()])
    made = msgspec.structs.replace(made, flows=kept.flows, record=kept.record, jobs=kept, paths=LINKS)
    assert [each.right for each in build(made).mismatches] == [None]
    alone = build(evidence(parse_scenario("[fabric]\nhosts = 4\n"), [], {}, [said()]))
    assert [(each.job, each.flow, each.right) for each in alone.mismatches] == [(None, "node1>node3/rail0", None)]
    assert alone.unexplained.events == 1


def test_of_a_flow_between_nics_the_leaves_are_asked_both_ways():
    """By its ports, and by these exchanged."""

    class Fabric:
        plan = FABRIC

        def spine(self, source, destination, rail, source_port, port, *, protocol):
            assert (source_port, port) == ((20_003, 7_951) if source == "node1" else (7_951, 20_003))
            assert (rail, protocol, destination != source) == ("rail0", socket.IPPROTO_TCP, True)
            return f"rail0.spine{int(source == 'node3')}"

    flow = FlowPlan(
        id="", source="node1", destination="node3", rail="rail0", source_address="", destination_address="",
        bytes_per_s=0, job=1, over="nic", source_port=20_003,
    )  # fmt: skip
    ways = FlowWays(Fabric(), [], [flow])
    ways.look(1)
    assert ways.taken == [[(1, AS_SAID)]]
