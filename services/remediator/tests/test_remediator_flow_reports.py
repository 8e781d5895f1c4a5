"""What senders say of their flows, and how much of that is believed, and for how long."""

from __future__ import annotations

import numpy as np
import pytest
from remediator_world import SECOND, make_node

from foliot_remediator.core.state.flow_reports import FlowReports
from foliot_remediator.core.state.inventory import Inventory
from foliot_schemas import FlowBatch, FlowRow

HALF = SECOND // 2
START = 600 * SECOND * 3_000_000
FLOW = "node0.rail0>node1.rail0"


class Sender:
    """Node 0, in virtual time."""

    def __init__(self):
        inventory = Inventory()
        for number in range(3):
            inventory.learn(make_node(f"node{number}"))
        self.inventory, self.reports, self.now_ns = inventory, FlowReports(inventory), START

    def say(self, *, node="node0", late_ns=0, share=1.0, interval_ns=HALF, **megabits):
        """Half a second later, it says how much each of its flows got, by the peer's number; returns the news."""
        self.now_ns += HALF
        names = tuple(f"{node}.rail0>node{peer.removeprefix('to')}.rail0" for peer in megabits)
        return self.tell(names, [*megabits.values()], node, late_ns=late_ns, share=share, interval_ns=interval_ns)

    def tell(self, names, megabits, node="node0", *, late_ns=0, share=1.0, interval_ns=HALF):
        """It says this now."""
        rows = np.zeros(len(names), FlowRow)
        rows["flow"] = range(len(names))
        rows["acked_bytes"] = np.multiply(megabits, interval_ns / 8e3).astype(np.int64)
        rows["busy_ns"] = share * interval_ns
        batch = FlowBatch.of(rows, node=node, at_ns=self.now_ns, interval_ns=interval_ns, flows=names)
        return self.reports.take(batch, self.now_ns - late_ns, self.now_ns)

    def known(self):
        """What is known of the flow, in Mb/s: now and at best."""
        history = self.reports.get(FLOW)
        return history.rate_bps / 1e6, history.best_bps / 1e6


@pytest.fixture
def sender():
    """Node 0, which has said nothing."""
    return Sender()


def test_a_rate_is_the_mean_of_two_words(sender):
    """The best is the best of such means: acknowledgements come in bursts."""
    for megabits in (100, 200, 0, 20):
        sender.say(to1=megabits)
    assert sender.known() == (10, 150)


def test_words_that_do_not_follow_each_other_make_no_mean(sender):
    """It paused between them."""
    sender.say(to1=100)
    sender.say()
    sender.say(to1=300)
    assert sender.known() == (300, 0)


def test_the_best_is_forgotten_after_a_while(sender):
    """A rate that a wrong word told is not believed for ever."""
    sender.say(to1=900)
    sender.say(to1=900)
    sender.now_ns += 599 * SECOND
    sender.say(to1=50)
    sender.say(to1=50)
    assert sender.known() == (50, 900)
    assert sender.reports.line_bps("rail0") == 900e6
    sender.now_ns += 599 * SECOND
    sender.say(to1=50)
    sender.say(to1=50)
    assert sender.known() == (50, 50)
    assert sender.reports.line_bps("rail0") == 50e6


def test_a_nic_carries_what_its_flows_get_together(sender):
    """The rail's best NIC counts, and no other rail's."""
    for _ in range(2):
        sender.say(to1=30, to2=50)
    assert sender.reports.line_bps("rail0") == 80e6
    assert sender.reports.line_bps("rail1") == 0


@pytest.mark.parametrize(("share", "is_limited"), [(0.9, True), (0.5, True), (0.4, False)])
def test_a_flow_that_waits_for_the_network_is_limited_by_it(sender, share, is_limited):
    """For half of the time, that is."""
    sender.say(to1=10, share=share)
    assert sender.reports.get(FLOW).is_limited is is_limited


def test_a_flow_that_its_sender_names_no_more_does_not_send(sender):
    """The sender has spoken since; if it has not, nobody knows, and it is not said to send either."""
    sender.say(to1=10)
    assert sender.reports.is_sending(FLOW, sender.now_ns)
    sender.say()
    assert (sender.reports.is_sending(FLOW, sender.now_ns), sender.reports.is_fresh("node0", sender.now_ns)) == (
        False,
        True,
    )
    sender.say(to1=10)
    sender.now_ns += 3 * SECOND
    assert (sender.reports.is_sending(FLOW, sender.now_ns), sender.reports.is_fresh("node0", sender.now_ns)) == (
        False,
        False,
    )


def test_a_word_that_another_has_overtaken_is_left_out(sender):
    """One that lies ahead of now was said before the reference was set back, and overtakes nothing."""
    sender.say(to1=10)
    assert sender.say(to1=99, late_ns=2 * SECOND) == []
    assert sender.known() == (10, 0)
    sender.now_ns -= 3_600 * SECOND
    assert len(sender.say(to1=99)) == 1


@pytest.mark.parametrize(
    ("name", "node"),
    [("node0.rail0>node9.rail0", "node0"), ("node9.rail0>node1.rail0", "node9"), ("node0.rail9>node1.rail0", "node0")],
)
def test_flows_that_the_fleet_does_not_have_are_passed_over(sender, name, node):
    """Nothing is kept of them."""
    assert sender.tell((name,), [10], node) == []
    assert sender.reports.get(name) is None


def test_an_interval_of_no_length_says_nothing(sender):
    """There is no rate in it."""
    assert sender.say(to1=10, interval_ns=0) == []


def test_flows_that_ended_long_ago_are_forgotten(sender):
    """Else all that ever talked to each other would be kept."""
    sender.say(to1=10)
    sender.now_ns += 1_200 * SECOND
    sender.say(to2=10)
    assert sender.reports.get(FLOW) is None


def test_flows_go_with_either_of_their_nics(sender):
    """And the NIC's best with it."""
    sender.say(to1=10, to2=10)
    sender.say(to1=10, to2=10)
    sender.reports.forget_nic("node1.rail0")
    assert [flow for flow, _ in sender.reports.since(0)] == ["node0.rail0>node2.rail0"]
    sender.reports.forget_nic("node0.rail0")
    assert [*sender.reports.since(0)] == []
    assert sender.reports.line_bps("rail0") == 0
