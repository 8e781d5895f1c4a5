"""The questions of every transport that may have no answer."""

import time

import pytest

from foliot_gateway.settings import GatewaySettings
from foliot_gateway.state import queries
from foliot_gateway.state.queries import NotFoundError, WrongQueryError
from foliot_gateway.state.store import Store
from foliot_schemas import Event, Node, PortState


@pytest.fixture
def known():
    """What a gateway knows."""
    return Store(GatewaySettings(), time.time_ns)


def port(nic):
    """The state of a NIC's port."""
    return PortState(
        node=nic.partition(".")[0], nic=nic, at_ns=7, carrier=True, admin_up=True, carrier_down_count=1,
        carrier_up_count=1,
    )  # fmt: skip


def test_a_kind_that_is_none_is_refused_with_those_there_are(known):
    """In a sentence."""
    with pytest.raises(WrongQueryError, match="There is no kind of event quake; there are flap, path"):
        queries.events(known, limit=1, kind="quake")


@pytest.mark.parametrize(
    ("event", "reason"), [("nobody", "no-such-event"), ("alone", "no-fault"), ("early", "no-spans")]
)
def test_a_trace_that_is_not_here_says_why(known, event, reason):
    """By a word for programs and a sentence for people."""
    for name, fault in (("alone", ""), ("early", "boot/node3.rail0/carrier-1")):
        known.event(Event(id=name, kind="flap", who="node3.rail0", state="down", at_ns=1, since_ns=1, fault=fault))

    with pytest.raises(NotFoundError) as refused:
        queries.trace_of_event(known, event, 0)

    assert refused.value.reason == reason
    assert str(refused.value).endswith(".")


@pytest.mark.parametrize(("now_s", "healthy"), [(9.0, False), (18.0, True)])
def test_health_is_as_of_a_time(known, now_s, healthy):
    """A service that could not store for four seconds is named until it has been quiet for ten."""
    known.bus_connected = True
    known.past_read()
    for at_s in (1.0, 4.0, 8.0):
        known.not_stored("detector", at_s)

    assert queries.health(known, now_s).healthy is healthy


def test_a_node_that_leaves_while_the_fleet_is_read_is_passed_over(known):
    """Who reads in slices sees each node as it is then."""
    for name in ("node0", "node1", "node2"):
        known.fleet.fold_node(name, Node(name=name, nics=()))
        known.fleet.fold_port(port(f"{name}.rail0"))
    nodes = known.fleet.nodes()
    first = next(nodes)
    known.fleet.fold_node("node1", None)

    assert [first.node, *(each.node for each in nodes)] == ["node0", "node2"]
