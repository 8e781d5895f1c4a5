"""Orders: what a command asks for, and how it travels."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from foliot_schemas import Command, Outcome, Placement, Reroute, Restore, WireError, decode, encode, orders
from foliot_schemas.orders import OrderError

GOLDEN = Path(__file__).parent / "golden"
WAY = Placement(peer="node3", rail="rail0", via="rail1", entropy=2)
HEADER = {"id": "c1", "node": "node3", "cause": "e1", "issued_ns": 1, "deadline_ns": 2, "lease_revision": 9}


class Mark(msgspec.Struct, frozen=True, kw_only=True, tag="mark", tag_field="verb"):
    """An order of an extension."""

    name: str
    size: int = 1


@pytest.fixture
def mark():
    """The verb `mark`, for one test."""
    orders.register(Mark)
    yield Mark
    orders.forget(Mark)


def the_bytes(action, verb="mark", **more):
    """A command as somebody sends it, whatever it says."""
    fields = {"type": "command.v1", "verb": verb, "action": action, **HEADER, **more}
    return msgspec.msgpack.encode(fields)


@pytest.mark.parametrize("name", ["command", "outcome"])
def test_the_order_of_a_message_of_before_is_read_from_its_own_fields(name):
    """The golden files mean the same."""
    message = decode((GOLDEN / f"{name}.v1.msgpack").read_bytes(), {"command": Command, "outcome": Outcome}[name])

    assert message.order() == Reroute(away=("rail0",), placements=(WAY,))


@pytest.mark.parametrize("kind", [Reroute, Restore])
def test_an_order_for_service_addresses_is_written_as_readers_of_before_know_it(kind):
    """Its fields stand beside the verb, and nothing stands in the action."""
    command = decode(encode(Command.of(kind(back=("rail0",), placements=(WAY,)), **HEADER)), Command)

    assert (command.verb, command.back, command.placements, command.action) == (
        orders.verb_of(kind), ("rail0",), (WAY,), {},
    )  # fmt: skip
    assert command.order() == kind(back=("rail0",), placements=(WAY,))


def test_traffic_of_another_class_looks_like_nothing_to_who_knows_service_addresses_alone():
    """A node of before would move the service address: so the fields that it reads are empty."""
    order = Reroute(traffic="queue-pairs", placements=(msgspec.structs.replace(WAY, key="qp-17"),))
    command = decode(encode(Command.of(order, **HEADER)), Command)

    assert (command.away, command.back, command.placements) == ((), (), ())
    assert command.order() == order


@pytest.mark.usefixtures("mark")
def test_an_order_of_another_verb_survives_the_wire():
    """By its verb it is read as what it was."""
    command = decode(encode(Command.of(Mark(name="x", size=3), **HEADER)), Command)

    assert command.action == {"verb": "mark", "name": "x", "size": 3}
    assert command.order() == Mark(name="x", size=3)


def test_a_command_of_an_unknown_verb_is_read_and_its_order_is_refused_by_name():
    """So whoever gets it can answer it."""
    command = decode(the_bytes({"verb": "mark", "name": "x"}), Command)

    with pytest.raises(OrderError, match="the verb mark is not known here; known are replace-rank, reroute, restore"):
        command.order()


@pytest.mark.usefixtures("mark")
@pytest.mark.parametrize("fields", [{}, {"name": 1}, {"name": "x", "size": "large"}])
def test_a_malformed_order_is_read_as_a_command_and_refused_as_an_order(fields):
    """Its reason says what is wrong."""
    command = decode(the_bytes({"verb": "mark", **fields}), Command)

    with pytest.raises(OrderError, match="the order is no mark: "):
        command.order()


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ({"verb": "restore"}, "its verb is mark, its action says restore"),
        ({"name": "x"}, "its verb is mark, its action says None"),
        ({"verb": "mark", "data": b"x"}, "not plain: bytes"),
        ({"verb": "mark", "share": float("nan")}, "not plain: float"),
        ({"verb": "mark", "count": 1 << 63}, "not plain: int"),
        ({"verb": "mark", "text": "x" * 4_097}, "not plain: str"),
        ({"verb": "mark", "deep": [[[[[[[[1]]]]]]]]}, "too many values, or they lie too deep"),
        ({"verb": "mark", "many": [0] * (1 << 16)}, "too many values"),
        ({"verb": "mark", "by": {1: 2}}, "whose name is no text"),
    ],
)
def test_an_action_that_no_order_can_be_is_a_wire_error(action, reason):
    """Whatever its verb."""
    with pytest.raises(WireError, match=reason):
        decode(the_bytes(action), Command)


def test_an_order_in_two_places_is_a_wire_error():
    """Readers of before and of now would do different things."""
    with pytest.raises(WireError, match="an action, and an order in its own fields"):
        decode(the_bytes({"verb": "reroute"}, "reroute", away=["rail0"]), Command)


@pytest.mark.parametrize("verb", ["", "Mark", "mark.node4", "*", "m" * 65])
def test_a_verb_is_a_plain_word(verb):
    """It stands in subjects."""
    with pytest.raises(WireError):
        decode(the_bytes({}, verb), Command)


def test_the_undo_of_a_reroute_is_a_reroute_the_other_way():
    """Outcomes of before say it by their own fields."""
    outcome = decode((GOLDEN / "outcome.v1.msgpack").read_bytes(), Outcome)

    assert outcome.undo_order() == Reroute(back=("rail0",), placements=(WAY,))


@pytest.mark.usefixtures("mark")
def test_an_outcome_carries_the_order_that_undoes_it():
    """It may be of another verb; where there is none, nothing can be undone."""
    header = {"id": "o", "command": "c", "verb": "mark", "node": "n", "status": "done"}
    done = {"action": {"verb": "mark", "name": "x"}}
    undone = decode(encode(Outcome(**header, **done, undo_action=orders.write(Restore(back=("rail0",))))), Outcome)

    assert undone.undo_order() == Restore(back=("rail0",))
    assert Outcome(**header, **done).undo_order() is None


def test_a_verb_has_one_type():
    """A second one is refused; the same again is not."""
    orders.register(Reroute)

    with pytest.raises(ValueError, match="the verb reroute has a type of order: Reroute"):
        orders.register(msgspec.defstruct("Other", [], frozen=True, tag="reroute", tag_field="verb"))


@pytest.mark.parametrize("config", [{"tag": "mark"}, {"tag": "Mark", "tag_field": "verb"}, {}])
def test_a_type_without_a_verb_is_no_order(config):
    """The error tells the author of the type what is missing."""
    with pytest.raises(ValueError, match='tag_field="verb" and a verb as its tag'):
        orders.register(msgspec.defstruct("Other", [], frozen=True, **config))
