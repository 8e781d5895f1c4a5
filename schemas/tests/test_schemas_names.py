"""Names and subjects."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foliot_schemas.names import Path, escape, nic_name, node_of, parse_path, rail_of, unescape
from foliot_schemas.subjects import CHANNELS, EVENT

TOKEN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


@given(st.text(min_size=1).filter(lambda text: text.isprintable()))
def test_every_name_becomes_one_token_and_comes_back(name):
    """The escape is total, and loses nothing."""
    token = escape(name)

    assert set(token) <= TOKEN
    assert name == unescape(token)


@given(st.text(min_size=1), st.text(min_size=1))
def test_different_names_have_different_tokens(one, other):
    """Two nodes never share a subject."""
    assert (one == other) == (escape(one) == escape(other))


@pytest.mark.parametrize("token", ["", "Node", "a.b", "_", "_2", "_zz", "_61", "a>b", "*"])
def test_what_no_name_escapes_to_is_refused(token):
    """A token has one name or none; ``_61`` would be a second spelling of ``a``."""
    with pytest.raises(ValueError, match="escape"):
        unescape(token)


def test_an_empty_name_is_refused():
    """A subject has no empty token."""
    with pytest.raises(ValueError, match="empty"):
        escape("")


def test_a_path_has_a_name_and_a_way_back():
    """Paths are written as they are travelled."""
    path = parse_path("node0.rail0>node3.rail0#2")

    assert path == Path("node0.rail0", "node3.rail0", 2)
    assert str(path) == "node0.rail0>node3.rail0#2"
    assert str(path.back) == "node3.rail0>node0.rail0#2"


@pytest.mark.parametrize("name", ["", "a>b", "a>b#x", "a#1", "a>b>c#1", "a>b#1#2"])
def test_what_is_no_path_is_refused(name):
    """With the form that was expected."""
    with pytest.raises(ValueError, match="expected source>destination#entropy"):
        parse_path(name)


def test_a_nic_knows_its_node_and_rail():
    """Also where the node's name holds dots."""
    nic = nic_name("rack1.node3", "rail0")

    assert (node_of(nic), rail_of(nic)) == ("rack1.node3", "rail0")


def test_a_subject_names_the_one_concerned_last():
    """Events of one kind and one NIC have a subject of their own."""
    assert EVENT.subject("flap", "node3.rail0") == "foliot.v1.event.flap.node3_2erail0"
    assert EVENT.all == "foliot.v1.event.*.*"


@pytest.mark.parametrize("channel", CHANNELS, ids=lambda channel: channel.name)
def test_a_subject_takes_as_many_names_as_it_has_tokens(channel):
    """One too many is an error where it is made, not a silent other subject."""
    with pytest.raises(ValueError, match="takes"):
        channel.subject(*("x" for _ in channel.tokens), "y")
