"""Ways, losses, and what the bucket `paths` changes."""

from __future__ import annotations

import pytest

from foliot.node.rtnetlink import LinkChange
from foliot_agent.core.desired_diff import wanted
from foliot_agent.core.failed_links import FailedLinks, acts_on_notice, acts_on_own
from foliot_agent.core.overlay_layout import Layout
from foliot_agent.core.routing_table import RoutingTable, destination_of, detours
from foliot_schemas import NodePaths, Placement
from foliot_schemas.notice import Notice


def placed(peer: str = "node1", rail: str = "rail0", via: str = "rail0", entropy: int = 0) -> Placement:
    """A placement."""
    return Placement(peer=peer, rail=rail, via=via, entropy=entropy)


@pytest.fixture
def routing():
    """Two peers at home, each with the other rail as backup of rail0."""
    made = RoutingTable()
    for peer in ("node1", "node2"):
        made.placements[peer, "rail0"] = placed(peer)
        made.backups[peer, "rail0"] = placed(peer, via="rail1")
    return made


def link(*, carrier: bool, count: int = 1, ups: int = 1, index: int = 3, **others) -> LinkChange:
    """What the kernel says of rail0's NIC."""
    return LinkChange(
        name="rail0", carrier=carrier, index=index, carrier_down_count=count, carrier_up_count=ups,
        **{"admin_up": True, **others},
    )  # fmt: skip


@pytest.fixture
def losses(settings_of):
    """Node 0's, nothing lost."""
    return FailedLinks(Layout.of(settings_of(0)), "boot1")


def test_a_rail_that_is_away_goes_by_its_backups_and_by_its_placements_without(routing):
    """As the kernel's rules do: the backup table first, then the table in force."""
    routing.away.add("rail0")
    del routing.backups["node2", "rail0"]
    assert routing.way(("node1", "rail0")) == placed(via="rail1")
    assert routing.way(("node2", "rail0")) == placed("node2")


def test_a_detour_is_taken_only_by_those_whose_way_is_dead(routing):
    """One peer's lost NIC moves what goes to that peer."""
    found = detours(routing, routing.placements, lambda peer, via: (peer, via) == ("node1", "rail0"))
    assert found == (placed(via="rail1"),)


def test_no_detour_leads_onto_a_dead_way(routing):
    """With both rails of a peer lost nothing is moved: a guess would not help."""
    assert detours(routing, routing.placements, lambda peer, via: peer == "node1") == ()


def test_a_moved_destination_returns_when_the_way_it_took_dies(routing):
    """What stands in the table in force is an alternative to a dead backup."""
    routing.away.add("rail0")
    found = detours(routing, routing.placements, lambda peer, via: via == "rail1")
    assert found == (placed(), placed("node2"))


def test_a_rail_without_a_living_backup_cannot_be_left(routing):
    """A rule onto an empty or dead table would move nothing."""
    assert routing.can_leave("rail0", lambda peer, via: False)
    assert not routing.can_leave("rail0", lambda peer, via: via == "rail1")
    assert not routing.can_leave("rail1", lambda peer, via: False)


def test_where_nothing_is_armed_any_rail_will_do_its_own_first(routing):
    """Of a node with three rails, from which all traffic had gone to the last one."""
    routing.backups.clear()
    routing.rails["node1"] = ("rail0", "rail1", "rail2")
    routing.placements["node1", "rail0"] = placed(via="rail2")
    routing.placements["node1", "rail1"] = placed(rail="rail1", via="rail2")

    def found(*dead):
        return detours(routing, routing.of_peer("node1"), lambda peer, via: via in dead)

    assert found("rail2") == (placed(), placed(rail="rail1", via="rail1"))
    assert found("rail2", "rail0") == (placed(via="rail1"), placed(rail="rail1", via="rail1"))
    assert found("rail2", "rail1") == (placed(), placed(rail="rail1"))
    assert found("rail0", "rail1") == found("rail0", "rail1", "rail2") == ()


def test_a_rail_can_return_when_what_it_went_to_is_dead(routing):
    """And what it would return to is not; without backups its rule takes nothing away."""
    assert not routing.can_return("rail0", lambda peer, via: False)
    assert routing.can_return("rail0", lambda peer, via: via == "rail1")
    assert not routing.can_return("rail0", lambda peer, via: True)
    routing.backups.clear()
    assert not routing.can_return("rail0", lambda peer, via: via == "rail1")


def test_a_loss_and_its_return_are_one_fault(losses):
    """Each turns once, however often the kernel repeats itself; a change of another device is none."""
    assert losses.take_link(link(carrier=True)) is None
    lost = losses.take_link(link(carrier=False, count=2))
    assert (lost.state, lost.fault) == ("lost", "boot1/node0.rail0/device-3/carrier-2")
    assert losses.take_link(link(carrier=False, count=2)) is None
    assert losses.dead("node1", "rail0")
    back = losses.take_link(link(carrier=True, count=2, ups=2))
    assert (back.state, back.fault) == ("back", lost.fault)
    assert not losses.own


def test_an_older_word_of_the_kernel_overrules_no_newer_one(losses):
    """A snapshot that was taken before the loss, and read after it; and one of the loss, read after the return."""
    losses.take_link(link(carrier=True))
    losses.take_link(link(carrier=False, count=2))
    assert losses.take_link(link(carrier=True)) is None
    assert losses.own == {"rail0"}
    assert losses.take_link(link(carrier=True, count=2, ups=2)).state == "back"
    assert losses.take_link(link(carrier=False, count=2)) is None
    assert losses.own == frozenset()


def test_counts_that_wrap_are_not_older(losses):
    """They have 32 bits."""
    losses.take_link(link(carrier=True, count=2**32 - 1, ups=2**32 - 1))
    assert losses.take_link(link(carrier=False, count=0, ups=2**32 - 1)).state == "lost"
    assert losses.take_link(link(carrier=True, count=0, ups=0)).state == "back"


def test_a_device_made_anew_counts_anew(losses):
    """Its counts begin at 0, and it comes without carrier and down.

    It may even have the old one's index, as after a visit to another namespace.
    """
    losses.take_link(link(carrier=True, count=7, ups=8))
    assert losses.take_link(link(carrier=False, count=7, ups=8, gone=True)).state == "lost"
    assert losses.take_link(link(carrier=False, count=0, ups=0, index=9, admin_up=False)) is None
    assert losses.take_link(link(carrier=True, count=0, ups=1, index=9)).state == "back"
    assert losses.take_link(link(carrier=False, count=0, ups=1, index=9, gone=True)).state == "lost"
    assert losses.take_link(link(carrier=True, count=0, ups=0, index=9)).state == "back"


def test_the_end_of_a_device_that_another_has_replaced_is_no_loss(losses):
    """The new one was given its name."""
    losses.take_link(link(carrier=True))
    losses.take_link(link(carrier=True, index=9))
    assert losses.take_link(link(carrier=False, gone=True)) is None
    assert losses.own == frozenset()


def test_a_peers_word_holds_until_it_takes_it_back(losses):
    """Lost kills the ways to that peer on that rail, and no others."""
    said = {"node": "node1", "rail": "rail0", "fault": "boot1/x", "sequence": 1, "at_ns": 5}
    losses.take_notice(Notice(state="lost", **said))
    assert losses.dead("node1", "rail0")
    assert not losses.dead("node1", "rail1")
    assert losses.told_ns("node1", "rail0") == 5
    losses.take_notice(Notice(state="back", **said))
    assert not losses.dead("node1", "rail0")


@pytest.mark.parametrize(
    ("armed", "policy", "connected", "own", "notice"),
    [
        ("off", "act", False, False, False),
        ("bus-away", "act", True, False, True),
        ("bus-away", "act", False, True, True),
        ("always", "act", True, True, True),
        ("always", "advise", True, False, False),
        ("always", "off", False, False, False),
    ],
)
def test_when_a_node_acts_by_itself(armed, policy, connected, own, notice):
    """Only under the policy act; with bus-away on an own loss only without the bus, but for a peer without it too."""
    assert acts_on_own(armed, policy, bus_connected=connected) is own
    assert acts_on_notice(armed, policy) is notice


def changes(before, after, routing, losses):
    """What follows, where every placement is known."""
    return wanted(before, after, routing, losses, is_known=lambda placement: True)


def test_a_value_written_for_another_reason_moves_nothing_back(routing, losses):
    """A notice has moved node1 meanwhile; the new value differs in its backups alone."""
    before = NodePaths(node="node0", lease_revision=1, placements=(placed(),))
    routing.placements["node1", "rail0"] = placed(via="rail1")
    after = NodePaths(node="node0", lease_revision=1, placements=(placed(),), backups=(placed(via="rail1", entropy=1),))
    assert changes(before, after, routing, losses).placements == ()
    assert changes(before, after, routing, losses).backups == after.backups


def test_the_first_value_counts_in_full_and_a_change_of_mind_alone_after_it(routing, losses):
    """What is in force already is no change."""
    value = NodePaths(node="node0", lease_revision=1, placements=(placed(), placed("node2", entropy=1)))
    assert changes(None, value, routing, losses).placements == (placed("node2", entropy=1),)
    later = NodePaths(node="node0", lease_revision=1, placements=(placed(entropy=1), placed("node2", entropy=1)))
    assert [destination_of(each) for each in changes(value, later, routing, losses).placements] == [("node1", "rail0")]


def test_no_value_leads_onto_a_lost_nic(routing, losses):
    """Neither a placement over it nor the return to it."""
    routing.away.add("rail0")
    routing.placements["node1", "rail0"] = placed(via="rail1")
    away = NodePaths(node="node0", lease_revision=1, away=("rail0",))
    home = NodePaths(node="node0", lease_revision=1, placements=(placed(),))
    assert changes(away, home, routing, losses).back == ("rail0",)
    assert changes(away, home, routing, losses).placements == (placed(),)
    losses.take_link(link(carrier=False))
    found = changes(away, home, routing, losses)
    assert (found.back, found.placements) == ((), ())
