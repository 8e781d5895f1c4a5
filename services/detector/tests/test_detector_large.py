"""What keeps a detector of a large fleet quick: it looks at what an observation concerns."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from foliot.node.shard import WHOLE
from foliot_detector.core.detectors.path_silence.claim import Claim, Judge
from foliot_detector.core.detectors.path_silence.claim_queue import ClaimQueue
from foliot_detector.core.detectors.path_silence.detector import PathSilenceDetector
from foliot_detector.core.state.liveness import Liveness
from foliot_detector.core.state.path_table import PathTable
from foliot_schemas.names import Path, parse_path

NICS = {f"node{node}.rail{rail}": 4 for node in range(4) for rail in range(2)}
"""With their entropies."""


def test_a_node_is_missed_by_its_last_sign_of_life():
    """On the bus or on the fabric; who has left the inventory, or never spoke, is not."""
    liveness = Liveness()
    for node in ("quiet", "heard", "speaks", "gone", "never"):
        liveness.enlist(node, listed=True)
    for node in ("quiet", "heard", "gone", "stranger"):
        liveness.speak(node, 100)
    liveness.show("heard", 200)
    liveness.speak("speaks", 200)
    liveness.enlist("gone", listed=False)

    there = liveness.present(but=("nobody",))
    assert liveness.quiet(there, 200, 100, 3) == ["quiet"]
    assert liveness.count_speaking(there, 100) == 1
    assert (liveness.on_bus_ns("heard"), liveness.last_ns("heard"), liveness.last_ns("gone")) == (100, 200, 0)
    assert liveness.quiet(liveness.present(but=("quiet",)), 200, 100, 3) == []


def test_there_is_room_for_any_number_of_nodes():
    """Columns grow."""
    liveness = Liveness()
    for number in range(1_000):
        liveness.enlist(f"node{number}", listed=True)
        liveness.speak(f"node{number}", number + 1)
    assert liveness.quiet(liveness.present(but=()), 103, 100, 3) == ["node0", "node1", "node2"]


def test_the_paths_of_a_nic_are_found_without_looking_at_all():
    """Those that were heard, by direction; and all of them, to forget what they lost."""
    table = PathTable(WHOLE)
    names = tuple(f"node0.rail0>node{node}.rail0#{entropy}" for node in (1, 2) for entropy in range(2))
    ids = table.ids((*names, "node1.rail0>node0.rail0#0", "node1.rail1>node2.rail1#0"), NICS)
    table.hear(ids[[0, 2]], np.array([5, 6]))
    assert table.leaving("node0.rail0").tolist() == ids[[0, 2]].tolist()
    assert table.entering("node1.rail0").tolist() == ids[[0]].tolist()
    assert table.leaving("node3.rail0").tolist() == []
    assert table.at_nic("node0.rail0") == ids[:5].tolist()
    assert str(table.path(int(ids[3]))) == names[3]


def test_the_places_of_a_regular_report_are_known():
    """Whatever short words come between, until a NIC comes or goes."""
    table = PathTable(WHOLE)
    regular = tuple(f"node{node}.rail0>node0.rail0#{entropy}" for node in (1, 2) for entropy in range(4))
    first = table.ids_said_by("node0", regular, NICS)
    table.ids_said_by("node0", regular[:1], NICS)
    assert table.ids_said_by("node0", tuple(regular), {}).tolist() == first.tolist()
    table.forget_batches()
    assert table.ids_said_by("node0", regular, {}).tolist() == [-1] * 8


def test_paths_that_wait_for_their_port_are_left_alone(make_fleet, monkeypatch):
    """A lost NIC silences all of its paths, and its port's event says why: nobody searches for witnesses meanwhile."""
    inventory = make_fleet(nodes=4)
    inventory.run(3_000)
    searched = []
    prove = Judge._prove
    monkeypatch.setattr(Judge, "_prove", lambda *claim: searched.append(claim) or prove(*claim))
    inventory.set_carrier("node3.rail0", False)
    inventory.run(5_000)
    assert [(event.kind, event.state) for event in inventory.take()] == [("flap", "down")]
    assert searched == []


@pytest.fixture
def looks(monkeypatch):
    """The claims that are looked at, each time."""
    looks = []
    ripe = Judge.is_ripe
    monkeypatch.setattr(
        Judge, "is_ripe", lambda judge, claim, now_ns: looks.append(claim) or ripe(judge, claim, now_ns)
    )
    return looks


@pytest.mark.parametrize("nics", [["node3.rail0"], ["node2.rail0", "node3.rail0"]], ids=["one end", "both ends"])
def test_paths_at_a_nic_that_is_down_are_looked_at_when_it_is_back(make_fleet, looks, nics):
    """Once as they fall silent, perhaps once more as the other end is lost as well, and not while it lasts.

    A NIC of a large flat fleet has thousands of them.
    """
    inventory = make_fleet(nodes=4)
    for nic in nics:
        inventory.set_carrier(nic, False)
    inventory.run(2_000)
    claims = {claim.path_id for claim in looks}
    assert claims
    looks.clear()
    inventory.run(10_000)
    assert looks == []
    inventory.take()

    path = Path("node2.rail0", "node3.rail0", 0)
    inventory.cut.add(path)
    for nic in nics:
        inventory.run(50)
        inventory.set_carrier(nic, True)
    inventory.run(2_000)
    assert {claim.path_id for claim in looks} <= claims
    assert [event.who for event in inventory.take() if event.state == "silent"] == [str(path)]


def test_claims_that_wait_for_a_port_are_void_with_its_nic(make_fleet, make_node):
    """The node has left: nothing waits for it."""
    inventory = make_fleet(nodes=4)
    inventory.set_carrier("node3.rail0", False)
    inventory.run(2_000)
    (waiting,) = [each._waiting for each in inventory.detector._detectors if isinstance(each, PathSilenceDetector)]
    assert list(waiting._of_nic) == ["node3.rail0"]
    assert waiting.claims.keys() == waiting._of_nic["node3.rail0"].keys()
    inventory.tell(msgspec.structs.replace(make_node("node3"), nics=()))
    assert (waiting.claims, waiting._of_nic, waiting._of_node) == ({}, {}, {})


def test_a_claim_waits_for_one_port_at_a_time(make_claim):
    """Neither news of its nodes nor another port wakes it."""
    waiting = ClaimQueue()
    claim, other = make_claim(1, "node1.rail0>node2.rail0#0"), make_claim(2, "node1.rail0>node3.rail0#0")
    waiting.add(claim)
    waiting.add(other)
    assert waiting.due(0, ()) == [claim, other]
    claim.down = "node2.rail0"
    waiting.look_again(claim)
    waiting.look_again(other)
    assert waiting.due(1, ["node1", "node2"], ["node1.rail0"]) == [other]
    assert waiting.due(2, (), ["node2.rail0"]) == [claim]
    claim.down = "node1.rail0"
    waiting.look_again(claim)
    assert waiting.due(3, ["node2"], ["node2.rail0"]) == []
    waiting.remove(1)
    assert waiting.due(4, ["node1", "node2"], ["node1.rail0"]) == [other]


def test_a_claim_that_nobody_confirms_is_looked_at_only_upon_news(make_fleet, looks):
    """Of a stalled sender nothing comes: the ticks in between have nothing new to find."""
    inventory = make_fleet(nodes=3, ticks=True)
    inventory.run(3_000)
    inventory.stopped.add("node2")
    inventory.run(800)
    claims = {claim.path_id for claim in looks}
    ticks = 800 // 10
    assert 0 < len(looks) < len(claims) * ticks / 4


def test_thousands_of_waiting_claims_are_not_looked_at_for_the_news_of_a_node_that_is_in_none_of_them(make_claim):
    """In a storm most of what is said is about others."""
    waiting = ClaimQueue()
    for number in range(1, 1_000):
        waiting.add(make_claim(number, f"node{number}.rail0>node{number + 1}.rail0#0"))
    assert len(waiting.due(0, ())) == 999
    assert waiting.due(1, ["node5000"]) == []
    assert {claim.path_id for claim in waiting.due(2, ["node7"])} == {6, 7}
    waiting.remove(7)
    assert [claim.path_id for claim in waiting.due(3, ["node7"])] == [6]


def test_a_claim_is_looked_at_when_its_time_comes_and_not_for_news_before(make_claim):
    """It sleeps through the storm, and then wakes for news too."""
    waiting = ClaimQueue()
    claim = make_claim(1, "node1.rail0>node2.rail0#0")
    waiting.add(claim)
    assert waiting.due(0, ()) == [claim]
    claim.rest_ns = claim.look_ns = 100
    waiting.look_again(claim)
    assert waiting.due(99, ["node1", "node2"]) == []
    assert waiting.due(100, ()) == [claim]
    waiting.look_again(claim)
    assert waiting.due(101, ()) == []
    assert waiting.due(102, ["node2"]) == [claim]


@pytest.fixture
def make_claim():
    """A claim of a path by its number and name; its times do not matter."""

    def make(path_id, name):
        return Claim(
            path_id=path_id, path=parse_path(name), name=name, since_ns=1, since_here_ns=1, said_ns=2, said_here_ns=2,
            bound_ns=0, owed_ns=0, confirmed_ns=2, confirmed_here_ns=2,
        )  # fmt: skip

    return make
