"""What lies on a fault's paths, and which fault explains what."""

import pytest

from foliot_lab.faults.injection import Injection
from foliot_lab.measure.bus_recorder import Heard
from foliot_lab.measure.outages import End, Pair, Verdict
from foliot_lab.report.attribution import RECOVERY_NS, SETTLE_NS, explain, spans
from foliot_lab.report.blast_radius import scope
from foliot_lab.scenario.spec import FabricSpec
from foliot_lab.scenario.topology import plan
from foliot_schemas import Command, Event, Placement

SECOND = 1_000_000_000
FABRIC = plan(FabricSpec(hosts=4, rails=2, leaves=2, spines=2), 7)
"""node0 and node1 on leaf0, node2 and node3 on leaf1."""


def event(kind, who, **fields):
    """An event."""
    return Event(
        **({"id": f"{kind}-{who}", "kind": kind, "who": who, "state": "down", "at_ns": 0, "since_ns": 0} | fields)
    )


def command(node, **fields):
    """A command to a node."""
    values = {"id": f"to-{node}", "verb": "reroute", "cause": "", "issued_ns": 0, "deadline_ns": 0, "lease_revision": 1}
    return Command(node=node, **(values | fields))


def placement(peer, rail="rail0", via="rail1"):
    """A service address and the rail that carries it."""
    return Placement(peer=peer, rail=rail, via=via, entropy=0)


def injection(where, fault_id="f1", kind="link-down", at_s=10, healed_s=40):
    """A fault that was injected."""
    healed_ns = None if healed_s is None else healed_s * SECOND
    return Injection(
        fault_id=fault_id, kind=kind, where=where, injected_ns=at_s * SECOND, healed_ns=healed_ns, edges=()
    )


@pytest.mark.parametrize(
    ("where", "kind", "nodes", "held"),
    [
        ("node3/rank", "hang", ("node3",), True),
        ("node3/rank", "straggler", ("node2",), False),
        ("node3.rail0", "hang", ("node0", "node3"), True),
        ("node3.rail0", "hang", ("node0",), False),
        ("node3", "hang", ("node3",), True),
        ("bus", "hang", ("node0",), True),
        ("sync", "hang", ("node0",), False),
    ],
)
def test_what_is_said_of_ranks_belongs_to_their_nodes(where, kind, nodes, held):
    """To a fault of the rank, of its host or of a NIC there; and to a bus that is away."""
    said = event(kind, "train/rank3", related={"nodes": nodes})
    assert scope("hang", where, FABRIC).has_event(said) is held


@pytest.mark.parametrize(
    ("where", "kind", "who", "held"),
    [
        ("node3.rail0", "flap", "node3.rail0", True),
        ("node3.rail0", "flap", "node3.rail1", False),
        ("node3.rail0", "path", "node0.rail0>node3.rail0#2", True),
        ("node3.rail0", "path", "node3.rail0>node2.rail0#0", True),
        ("node3.rail0", "path", "node0.rail1>node3.rail1#2", False),
        ("node3.rail0", "path", "node0.rail0>node2.rail0#2", False),
        ("node3.rail0", "path", "nonsense>", False),
        ("node3.rail0", "clock", "node3", False),
        ("node3.rail0", "process", "node3/probe", False),
        ("node3.rail0", "refusal", "node3.rail0", True),
        ("node3.rail0", "refusal", "node0.rail0", False),
        ("rail0.leaf1-spine1", "path", "node0.rail0>node3.rail0#2", True),
        ("rail0.leaf1-spine1", "path", "node2.rail0>node3.rail0#2", False),
        ("rail0.leaf1-spine1", "path", "node0.rail1>node3.rail1#2", False),
        ("rail0.leaf1-spine1", "flap", "node3.rail0", False),
        ("node3", "flap", "node3.rail1", True),
        ("node3", "path", "node3.rail1>node0.rail1#0", True),
        ("node3", "clock", "node3", True),
        ("node3", "clock", "node2", False),
        ("node3", "process", "node3/agent", True),
        ("node3/probe", "process", "node3/probe", True),
        ("node3/probe", "path", "node3.rail1>node0.rail1#0", True),
        ("node3/probe", "process", "node2/probe", False),
        ("sync", "clock", "node0", True),
        ("sync", "refusal", "node0.rail0", True),
        ("sync", "path", "node0.rail0>node3.rail0#2", False),
        ("bus", "refusal", "node0.rail0", True),
        ("bus", "process", "node0/probe", True),
        ("bus", "flap", "node0.rail0", False),
        ("node3.rail0", "nic", "node3.rail0", True),
        ("rail0.leaf1-spine1", "nic", "node3.rail0", True),
        ("rail0.leaf1-spine1", "nic", "node0.rail0", False),
        ("node3.rail0", "quake", "node3.rail0", True),
        ("node3.rail0", "quake", "node0.rail0", False),
        ("node3", "quake", "node3", True),
    ],
)
def test_events_on_a_faults_paths(where, kind, who, held):
    """A fault holds the events about its own things and no others."""
    assert scope("stop", where, FABRIC).has_event(event(kind, who)) is held


def test_a_clock_step_holds_the_clock_and_no_path():
    """A stepped clock explains what is said of it, and nothing of the node's paths."""
    stepped = scope("clock-step", "node3", FABRIC)
    assert stepped.has_event(event("clock", "node3"))
    assert not stepped.has_event(event("clock", "node2"))
    assert not stepped.has_event(event("path", "node3.rail1>node0.rail1#0"))
    assert stepped.pairs() == ()


def test_commands_are_held_part_by_part():
    """A command may turn a lost NIC away and move single destinations: each part is judged by its own rail's ends."""
    cut = scope("link-down", "node3.rail0", FABRIC)
    assert cut.parts_of(command("node3", away=("rail0", "rail1"))) == (True, False)
    assert cut.parts_of(command("node0", placements=(placement("node3"), placement("node2")))) == (True, False)
    assert cut.parts_of(command("node0", placements=(placement("node3", rail="rail1", via="rail0"),))) == (False,)


def test_a_nics_pairs_are_both_directions_on_its_rail():
    """The pairs to watch for a NIC join its service address with every other node's on the rail, both ways."""
    pairs = scope("link-down", "node3.rail0", FABRIC).pairs()
    assert len(set(pairs)) == len(pairs) == 6
    assert Pair(End("node3", "rail0"), End("node1", "rail0")) in pairs
    assert Pair(End("node1", "rail0"), End("node3", "rail0")) in pairs


def test_a_fabric_links_pairs_cross_the_spines():
    """The pairs to watch for a fabric link join the hosts of its leaf with those of others, both ways."""
    pairs = scope("drop", "rail1.leaf0-spine0", FABRIC).pairs()
    assert len(pairs) == 8
    assert {frozenset((pair.source.node, pair.destination.node)) for pair in pairs} == {
        frozenset((near, far)) for near in ("node0", "node1") for far in ("node2", "node3")
    }


CUT = injection("node3.rail0")


def sort(events=(), commands=(), faults=(CUT,), seen=None):
    """The explanations of events, at the seconds given."""
    return explain(
        [Heard(round(at_s * SECOND), message) for at_s, message in events],
        [Heard(round(at_s * SECOND), message) for at_s, message in commands],
        spans(faults, seen or {}, FABRIC, 1000 * SECOND),
    )


def test_events_are_explained_from_the_injection_to_the_end_of_the_recovery():
    """Events before the fault or after its recovery are stray, even about the fault's own things."""
    last_s = 40 + RECOVERY_NS / SECOND
    moments = (9.9, 10.1, last_s - 0.1, last_s + 0.1)
    found = sort([(at_s, event("flap", "node3.rail0", id=str(at_s))) for at_s in moments])
    assert [heard.at_ns / SECOND for heard in found.events["f1"]] == [10.1, last_s - 0.1]
    assert len(found.stray_events) == 2


def test_the_end_of_an_explained_trouble_is_explained_however_late_it_comes():
    """A NIC that lost packets is sound again when enough of them have passed. A new trouble that late is stray."""
    lossy = event("nic", "node3.rail0", state="lossy", id="lossy", fault="loss")
    sound = event("nic", "node3.rail0", state="sound", id="sound", fault="loss", cause="lossy")
    again = event("nic", "node3.rail0", state="lossy", id="again", fault="again", cause="lossy")
    late_s = 40 + RECOVERY_NS / SECOND + 30
    found = sort([(11, lossy), (late_s, sound), (late_s, again)])
    assert [heard.message.id for heard in found.events["f1"]] == ["lossy", "sound"]
    assert [heard.message.id for heard in found.stray_events] == ["again"]


def test_a_late_return_belongs_to_the_recovery():
    """If the witness saw traffic come back later than the usual recovery, what came until then is explained."""
    restored_ns = 300 * SECOND
    seen = {"f1": Verdict(interrupted=1, changed=1, moved_ns=1, restored_ns=restored_ns, moves=2)}
    restore = command("node3", verb="restore", back=("rail0",))
    assert sort(commands=[(300 + SETTLE_NS / SECOND / 2, restore)], seen=seen).stray_commands == []
    assert len(sort(commands=[(301 + SETTLE_NS / SECOND, restore)], seen=seen).stray_commands) == 1


def test_a_fault_that_is_not_healed_explains_to_the_end():
    """An unhealed fault goes on explaining."""
    found = sort([(900, event("flap", "node3.rail0"))], faults=[injection("node3.rail0", healed_s=None)])
    assert found.stray_events == []


def test_the_latest_fault_explains():
    """If a new fault at the same place falls into an older one's recovery, later events are the new one's."""
    faults = [injection("node3.rail0"), injection("node3.rail0", "f2", at_s=45, healed_s=50)]
    found = sort([(46, event("flap", "node3.rail0"))], faults=faults)
    assert (len(found.events["f1"]), len(found.events["f2"])) == (0, 1)


def test_what_ends_a_trouble_belongs_to_the_fault_that_began_it():
    """An agent killed during a link's fault does not explain the carrier's return: the trace says whose it is."""
    lost = event("flap", "node3.rail0", id="lost", fault="carrier-1")
    back = event("flap", "node3.rail0", id="back", state="up", fault="carrier-1")
    anew = event("flap", "node3.rail0", id="anew", fault="carrier-2")
    faults = [CUT, injection("node3/agent", "f2", "kill", at_s=20)]
    found = sort([(11, lost), (40, back), (41, anew)], faults=faults)
    assert [heard.message.id for heard in found.events["f1"]] == ["lost", "back"]
    assert [heard.message.id for heard in found.events["f2"]] == ["anew"]


def test_a_command_is_explained_only_in_all_its_parts():
    """A command that also moves something that no fault touches is stray; parts may belong to different faults."""
    both = command("node0", placements=(placement("node3"), placement("node2")))
    assert len(sort(commands=[(11, both)]).stray_commands) == 1
    faults = [injection("node3.rail0"), injection("node2.rail0", "f2", at_s=10.5)]
    found = sort(commands=[(11, both)], faults=faults)
    assert found.stray_commands == []
    assert len(found.commands["f2"]) == 1


def test_a_command_is_the_faults_that_caused_it():
    """If two faults could explain a command, the one whose event caused it does."""
    faults = [injection("node3.rail0"), injection("node0.rail0", "f2", at_s=10.5)]
    moved = command("node0", placements=(placement("node3"),), cause="flap-node3.rail0")
    found = sort([(10.1, event("flap", "node3.rail0"))], [(11, moved)], faults)
    assert (len(found.commands["f1"]), len(found.commands["f2"])) == (1, 0)


def test_being_caused_by_a_nics_fault_is_not_enough():
    """A command about another NIC is stray, though it names an explained event as its cause."""
    moved = command("node2", away=("rail1",), cause="flap-node3.rail0")
    assert len(sort([(10.1, event("flap", "node3.rail0"))], [(11, moved)]).stray_commands) == 1


def test_what_follows_from_a_cut_bus_is_explained():
    """An event or command caused by a refusal that the cut bus explains is explained with it, while the bus is cut."""
    faults = [injection("bus", kind="bus-cut")]
    refusal = event("refusal", "node2.rail1")
    follows = event("path", "node2.rail1>node3.rail1#0", cause="refusal-node2.rail1")
    moved = command("node2", away=("rail1",), cause="path-node2.rail1>node3.rail1#0")
    found = sort([(11, refusal), (12, follows)], [(13, moved)], faults)
    assert (found.stray_events, found.stray_commands) == ([], [])
    assert len(sort([(12, follows)], (), faults).stray_events) == 1
    assert len(sort([(11, refusal)], [(90, moved)], faults).stray_commands) == 1


def test_without_a_fault_everything_is_stray():
    """Without an injection, every event and command is unexplained, an empty command too."""
    found = sort([(1, event("flap", "node3.rail0"))], [(1, command("node3"))], faults=())
    assert (len(found.stray_events), len(found.stray_commands)) == (1, 1)
