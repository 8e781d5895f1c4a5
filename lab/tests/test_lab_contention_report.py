"""What was said of contention: whether it is true, what came of it, and what it explains. Of runs that never were."""

import json

import msgspec
import pytest
from made_runs import MS, QUIET, REFERENCE, SECOND, command, event, evidence, lab_ns
from test_lab_job_report import HOME, START, jobs, run

from foliot_lab.faults.injection import Injection
from foliot_lab.measure.bus_recorder import Heard
from foliot_lab.measure.intervals import Intervals
from foliot_lab.measure.link_load import Lane
from foliot_lab.report.conclusion import conclude, lines
from foliot_lab.report.contention_report import Verdicts
from foliot_lab.report.report import build
from foliot_lab.scenario.reading import parse_scenario
from foliot_lab.scenario.spec import JobSpec
from foliot_lab.workload.flow_loop import FlowPlan
from foliot_lab.workload.flow_record import SLOT_NS
from foliot_lab.workload.flow_ways import Way
from foliot_schemas import Outcome, Placement

UP = Lane("rail0.leaf0-spine0", "up")
ENTERS = "10.110.0.1"
"""The address of the spine's port of that link."""
PAIRS = ("node0.rail0>node2.rail0", "node1.rail0>node3.rail0")
FULL = {UP: Intervals([(lab_ns(3), lab_ns(8))])}
AWAY = Way("rail0", 1, "rail0.spine1")


def said(at_s=5.0, state="fabric-contention", who=ENTERS, *, links=(ENTERS,), flows=PAIRS, **fields):
    """An event about contention that began a second before."""
    at_ns = REFERENCE + round(at_s * SECOND)
    given = {"id": f"{who}/{state}", "since_ns": at_ns - SECOND, "fault": f"{who}/contention-1"}
    given["related"] = {"links": links, "flows": flows}
    return event(at_s, "contention", who, state, **(given | fields))


def way(entropy):
    """A way of the traffic from node1 to node3."""
    return Placement(peer="node3", rail="rail0", via="rail0", entropy=entropy)


def ordered(at_s, verb, entropy, **fields):
    """A command to node1 for an event."""
    given = {"node": "node1", "away": (), "placements": (way(entropy),), "cause": said().message.id, "verb": verb}
    return command(at_s, **(given | {"id": f"{verb}-{entropy}"} | fields))


def done(at_s, order, was):
    """The answer to it."""
    at_ns = REFERENCE + round(at_s * SECOND)
    message = Outcome(
        id=f"o-{order.message.id}", command=order.message.id, verb=order.message.verb, node="node1", status="done",
        moved_ns=at_ns, placements=order.message.placements, undo=(way(was),),
    )  # fmt: skip
    return Heard(lab_ns(at_s) + MS, message)


def told(events, *, commands=(), outcomes=(), injections=(), scenario=None, kept=None, **record):
    """The report on a run of jobs, in which the first flow and the second share a link from second 3 to 8."""
    scenario = scenario or run()
    kept = kept or jobs(scenario, **({"full": FULL} | record))
    made = evidence(scenario, list(injections), {each.fault_id: QUIET for each in injections}, events)
    return build(
        msgspec.structs.replace(
            made, flows=kept.flows, record=kept.record, jobs=kept, commands=list(commands), outcomes=list(outcomes)
        )
    )


def strays(report):
    """How much nothing explains: events, commands."""
    return report.unexplained.events, report.unexplained.commands


def test_what_is_said_is_told_in_the_labs_names():
    """And in lab time; what did not happen is null."""
    made = json.loads(told([said()]).json())
    (one,) = made["contention"]
    assert one["event"] == f"{ENTERS}/fabric-contention"
    assert (one["verdict"], one["place"], one["links"]) == ("fabric-contention", UP.link, [UP.link])
    assert one["flows"] == ["node0>node2/rail0", "node1>node3/rail0"]
    assert one["jobs"] == ["a", "b"]
    assert (one["since_ns"], one["detected_ns"], one["ended_ns"]) == (lab_ns(4), lab_ns(5), None)
    assert (one["right"], one["moves"], one["cured_ns"], one["reverted"]) == (True, 0, None, False)
    assert len(one["trace_id"]) == 32
    assert made["moves"] == []


@pytest.mark.parametrize(
    ("claim", "right"),
    [
        ({}, True),
        ({"at_s": 13.9}, True),
        ({"at_s": 14.1}, False),
        ({"at_s": 2.9}, False),
        ({"links": ("10.110.0.3",)}, False),
        ({"links": ("10.110.0.3", ENTERS)}, True),
        ({"flows": (PAIRS[0], "node3.rail0>node1.rail0")}, False),
        ({"state": "own-nic", "who": "node1.rail0"}, True),
        ({"state": "own-nic", "who": "node0.rail0"}, False),
        ({"state": "incast", "who": "node3.rail0"}, True),
        ({"state": "incast", "who": "node1.rail0"}, False),
        ({"state": "slow-receiver", "who": PAIRS[0], "links": ()}, False),
        ({"state": "reduced-rate"}, False),
        ({"state": "something-new"}, None),
    ],
)
def test_a_verdict_is_right_by_the_labs_truth(claim, right):
    """Its link, and two of its flows; two running flows at a NIC. What is not right is unexplained."""
    made = told([said(**claim)])
    assert [each.right for each in made.contention] == [right]
    assert strays(made) == (0 if right else 1, 0)


@pytest.mark.parametrize(
    ("claim", "right"),
    [
        ({"state": "own-nic", "who": "node2.rail0"}, True),
        ({"state": "incast", "who": "node0.rail0"}, True),
        ({"state": "own-nic", "who": "node3.rail0"}, False),
        ({"state": "own-nic", "who": "node2.rail0", "at_s": 12.1}, False),
        ({"flows": ("node0.rail0>node1.rail0", "node2.rail0>node1.rail0")}, True),
        ({"flows": ("node0.rail0>node1.rail0", "node3.rail0>node1.rail0")}, False),
        ({"flows": ("node0.rail0>node1.rail0", "node2.rail0>node1.rail0"), "at_s": 14.1}, False),
        ({"flows": ("node0.rail0>node1.rail0", "node2.rail0>node1.rail0"), "links": ("10.110.0.3",)}, False),
    ],
)
def test_ranks_of_a_training_job_meet_at_their_nics_and_on_full_links(claim, right):
    """Their connections are not the lab's: what it knows is where they run, and which links were full."""
    two = jobs(run(), full={UP: Intervals([(lab_ns(3), lab_ns(8))])})
    trained = msgspec.structs.replace(
        two, specs=(*two.specs, JobSpec(name="train", kind="train")), hosts=(*two.hosts, ("node0", "node1", "node2")),
        ran={2: (START, lab_ns(6))},
    )  # fmt: skip
    made = msgspec.structs.replace(evidence(run(), [], {}, [said(**claim)]), jobs=trained)
    assert [each.right for each in Verdicts(made, [], []).reports()] == [right]


@pytest.mark.parametrize(("flows", "right"), [
    (PAIRS, True), (PAIRS[:1], False), ((*PAIRS, "node3.rail0>node1.rail0"), False),
])  # fmt: skip
def test_an_inferred_link_is_right_if_all_its_flows_share_one(flows, right):
    """Nothing but they says which link it is."""
    link = f"inferred:{PAIRS[0]}#0"
    (claim,) = told([said(who=link, links=(link,), flows=flows)]).contention
    assert (claim.place, claim.links, claim.right) == (link, [link], right)


def test_flows_of_jobs_that_do_not_run_meet_nowhere():
    """Nor is their receiver slow."""
    events = [said(state="own-nic", who="node1.rail0")]
    made = told(events, ran={0: (lab_ns(0), lab_ns(60)), 1: (lab_ns(30), lab_ns(60))})
    assert [each.right for each in made.contention] == [False]


@pytest.mark.parametrize(("at_s", "healed_s", "right"), [(5, 6, None), (40, 6, None), (43, 6, False), (43, None, None)])
@pytest.mark.parametrize(("state", "who"), [("own-nic", "node0.rail0"), ("incast", "node1.rail0")])
def test_where_a_fault_may_have_moved_traffic_the_lab_does_not_know_who_meets(state, who, at_s, healed_s, right):
    """Until half a minute after it has healed: a NIC carries that of a dead one, which no plan tells."""
    fault = Injection(
        fault_id="f1", kind="link-down", where="node0.rail1", injected_ns=lab_ns(4), edges=(),
        healed_ns=healed_s and lab_ns(healed_s),
    )  # fmt: skip
    (claim,) = told([said(at_s, state, who)], injections=[fault]).contention
    assert claim.right is right


def test_a_slow_receiver_is_that_of_a_job_that_reads_slowly():
    """By its flow."""
    scenario = run("read_mbps = 5")
    for who, right in (("node3.rail0>node1.rail0", True), ("node0.rail0>node2.rail0", False)):
        made = told([said(state="slow-receiver", who=who, links=(), flows=(who,))], scenario=scenario)
        assert [each.right for each in made.contention] == [right]
        assert made.contention[0].place == f"{who[:5]}>{who[12:17]}/rail0"


@pytest.mark.parametrize(("kind", "where", "right"), [
    ("rate", UP.link, True), ("rate", "rail0.leaf0-spine1", False), ("drop", UP.link, False),
])  # fmt: skip
def test_a_reduced_rate_is_that_of_a_fault(kind, where, right):
    """Of its own kind and place."""
    injected = Injection(fault_id="f1", kind=kind, where=where, injected_ns=lab_ns(2), healed_ns=lab_ns(9), edges=())
    made = told([said(state="reduced-rate")], injections=[injected])
    assert [each.right for each in made.contention] == [right]


def moved_run(*, back):
    """A run in which node1's traffic was moved at second 5, and perhaps came back at second 8."""
    orders = [ordered(5.01, "reroute", 1)] + [ordered(8, "restore", 0)] * back
    answers = [done(5.02, order, 0) if order is orders[0] else done(8.1, order, 1) for order in orders]
    events = [said()]
    if back:
        cause = said().message.id
        events.append(event(8, "refusal", PAIRS[1], "refused", id="r", cause=cause, policy="no-gain", fault="x"))
        events.append(said(9, "clear", id="clear", cause=cause))
    ways = [(lab_ns(0), HOME), (lab_ns(5), AWAY)]
    return told(events, commands=orders, outcomes=answers, ways=[[(lab_ns(0), HOME)], ways, ways, [(lab_ns(0), HOME)]])


def test_a_move_is_told_with_its_ways():
    """And explained by its event."""
    made = moved_run(back=False)
    (one,) = json.loads(made.json())["moves"]
    assert one == {
        "at_ns": lab_ns(5.02), "flow": "node1>node3/rail0", "from": "node1.rail0>node3.rail0#0",
        "to": "node1.rail0>node3.rail0#1", "event": f"{ENTERS}/fabric-contention", "kept": True,
    }  # fmt: skip
    assert (made.contention[0].moves, made.contention[0].reverted) == (1, False)
    assert strays(made) == (0, 0)


def test_a_way_that_was_in_force_before_its_command_came_is_a_move_and_told_again_it_is_none():
    """A node may read the bucket `paths` first. It does not say then from where it moved, nor when."""
    first, again = (ordered(at_s, "reroute", 3, id=f"r-{at_s}") for at_s in (4.6, 5.6))
    answers = [
        Heard(each.at_ns, msgspec.structs.replace(each.message, status="already", moved_ns=0, undo=()))
        for each in (done(4.7, first, 1), done(5.7, again, 1))
    ]
    made = told([said()], commands=[first, again], outcomes=answers)
    assert [(move.at_ns, move.before, move.kept) for move in made.moves] == [(answers[0].at_ns, None, True)]
    assert made.contention[0].moves == 1
    assert strays(made) == (0, 0)


def test_what_takes_a_move_back_is_explained_with_it():
    """And the refusal that says why, and the end."""
    made = moved_run(back=True)
    assert [move.kept for move in made.moves] == [False]
    assert (made.contention[0].moves, made.contention[0].reverted) == (1, True)
    assert made.contention[0].ended_ns == lab_ns(9)
    assert strays(made) == (0, 0)


def test_advice_moves_nothing_and_is_explained():
    """As a command that nobody carried out."""
    made = told([said()], commands=[ordered(5.01, "reroute", 1, advice=True)])
    assert (made.contention[0].moves, made.moves, strays(made)) == (0, [], (0, 0))


def test_what_a_wrong_verdict_moves_is_unexplained():
    """With its end."""
    wrong = said(links=("10.110.0.3",))
    made = told([wrong, said(9, "clear", id="clear", cause=wrong.message.id)], commands=[ordered(5.01, "reroute", 1)])
    assert strays(made) == (2, 1)


def test_the_end_of_what_was_said_before_second_0_is_no_event_of_the_run():
    """A job alone may have loaded itself; nobody heard the beginning. What was heard and is wrong is no excuse."""
    before, within = (said(at_s, "clear", id="clear", cause=f"{ENTERS}/before") for at_s in (0.9, 1.1))
    assert (strays(told([before])), strays(told([within]))) == ((0, 0), (1, 0))
    assert strays(told([said(links=("10.110.0.3",)), said(9, "clear", id="clear", cause=said().message.id)])) == (2, 0)


def test_flows_are_cured_when_all_have_what_they_had_alone():
    """From a whole second on, and for five; a flow that waits for its job is not short."""
    scenario = run()
    kept = jobs(scenario, full=FULL)
    for slot in range(kept.record.slot(lab_ns(7.5)), kept.record.slot(lab_ns(60))):
        for number in (1, 2):  # with the 40 Mb/s of before, all that they had alone
            kept.record.received(slot, number, round(40 * SLOT_NS / 8e3))
    made = told([said()], scenario=scenario, kept=kept)
    assert made.contention[0].cured_ns == lab_ns(8)
    for at_s, cured_s in ((7.3, 8), (8.2, 8.2), (9.1, 8)):  # what is moved within that second was moved for it
        order = ordered(7.01, "reroute", 1)
        moved = {"commands": [order], "outcomes": [done(at_s, order, 0)]}
        assert told([said()], scenario=scenario, kept=kept, **moved).contention[0].cured_ns == lab_ns(cured_s)
    assert told([said()]).contention[0].cured_ns is None
    assert told([said()], alone=None).contention[0].cured_ns is None


def test_each_event_has_a_line():
    """With the verdict, the link's name in the lab, and what came of it."""
    scenario = run()
    made = moved_run(back=True)
    assert (
        "contention: fabric-contention at rail0.leaf0-spine0; found after 2.0 s; 1 move; taken back, as it gained nothing"
    ) in list(lines(*conclude(made, scenario, {})))
    wrong = told([said(links=("10.110.0.3",), who="10.110.0.3")])
    assert ("contention: fabric-contention at rail0.leaf0-spine1, which is not so; found after 1.0 s; 0 moves") in list(
        lines(*conclude(wrong, scenario, {}))
    )


WORKLOAD = "[fabric]\nhosts = 4\nrails = 1\n[[fault]]\nat_s = 10\nkind = 'drop'\nwhere = 'node3.rail0'\nfor_s = 5\n"


def flow(source, destination):
    """A flow of a workload."""
    return FlowPlan(
        id=f"{source}>{destination}/rail0", source=source, destination=destination, rail="rail0", source_address="",
        destination_address="", bytes_per_s=1,
    )  # fmt: skip


def without_jobs(events, commands=(), flows=()):
    """The report on a run of one workload and one fault."""
    scenario = parse_scenario(WORKLOAD)
    dropped = Injection(
        fault_id="f1", kind="drop", where="node3.rail0", injected_ns=lab_ns(10), healed_ns=lab_ns(15), edges=()
    )
    made = evidence(scenario, [dropped], {"f1": QUIET}, events, commands=commands)
    return build(msgspec.structs.replace(made, flows=flows))


@pytest.mark.parametrize(("at_s", "flows", "explained"), [
    (12, ("node0.rail0>node2.rail0", "node1.rail0>node3.rail0"), True),
    (34, ("node0.rail0>node2.rail0", "node3.rail0>node1.rail0"), True),
    (36, ("node0.rail0>node2.rail0", "node1.rail0>node3.rail0"), False),
    (9, ("node0.rail0>node2.rail0", "node1.rail0>node3.rail0"), False),
    (12, ("node0.rail0>node2.rail0", "node1.rail0>node2.rail0"), False),
])  # fmt: skip
def test_without_jobs_a_fault_explains_contention_of_its_hosts_flows(at_s, flows, explained):
    """While it or its recovery lasts; with its end, and with what is advised. It is no finding of the fault."""
    begun = said(at_s, flows=flows)
    ended = said(at_s + 20, "clear", id="clear", cause=begun.message.id, flows=flows)
    elsewhere = Placement(peer="node2", rail="rail0", via="rail0", entropy=1)
    made = without_jobs([begun, ended], [ordered(at_s + 0.1, "reroute", 1, advice=True, placements=(elsewhere,))])
    assert [each.right for each in made.contention] == [None]
    assert strays(made) == ((0, 0) if explained else (2, 1))
    assert (made.faults[0].events, made.faults[0].detected_ns) == ([], None)


def test_flows_of_a_workload_meet_at_nics():
    """They send all the time."""
    both = (flow("node0", "node2"), flow("node1", "node2"))
    made = without_jobs([said(5, "incast", "node2.rail0"), said(5, "own-nic", "node0.rail0")], flows=both)
    assert [each.right for each in made.contention] == [True, False]
