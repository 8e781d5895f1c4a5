"""Structs to messages: every field that HTTP shows, with its value and its description."""

import gc
import re
import time
import typing
from unittest import mock

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reflected import plain

from draws import draws
from foliot_gateway.http import api
from foliot_gateway.rpc import conversion, descriptors, services
from foliot_gateway.rpc.conversion import fields_of, into, make
from foliot_gateway.settings import GatewaySettings
from foliot_gateway.state.live_feed import Change, Missed, State, Tiles, Told
from foliot_gateway.state.nic_condition import Tile
from foliot_gateway.state.records import CommandView
from foliot_gateway.state.store import Store
from foliot_gateway.state.trace_store import Span
from foliot_gateway.subscription import Hub
from foliot_schemas import Command, Outcome, Placement, docstrings
from foliot_schemas.payloads import UNITS

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NUMBERS = st.floats(allow_nan=False)
SCALARS = st.none() | st.booleans() | INT64 | NUMBERS | st.text()
ATTRIBUTES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5)
PLAIN = {
    msgspec.inspect.IntType: INT64,
    msgspec.inspect.FloatType: NUMBERS,
    msgspec.inspect.StrType: st.text(),
    msgspec.inspect.BoolType: st.booleans(),
    msgspec.inspect.NoneType: st.none(),
    msgspec.inspect.AnyType: ATTRIBUTES,
}


def shown():
    """All structs that HTTP shows: what its handlers return and what its stream tells, and what is in them."""
    store = Store(GatewaySettings(), time.time_ns)
    app = api.make(store, Hub(store))
    routes = [route for route in app.routes if route.path.startswith(("/api/v1/", "/healthz"))]
    handlers = [handler for route in routes for handler in route.route_handlers if "GET" in handler.http_methods]
    returned = [handler.parsed_fn_signature.return_type.annotation for handler in handlers]
    found: dict[type[msgspec.Struct], None] = {}
    for annotation in (*returned, Tiles, Told, Missed, State):
        for kind in leaves(annotation):
            within(msgspec.inspect.type_info(kind), found)
    return tuple(found)


def leaves(annotation):
    """The structs in ``tuple[X, ...]`` or ``Response[X]``."""
    inner = [leaf for each in typing.get_args(annotation) for leaf in leaves(each)]
    is_struct = isinstance(annotation, type) and issubclass(annotation, msgspec.Struct)
    return [annotation] if is_struct and not inner else inner


def within(info, found):
    """Adds a struct and all structs inside of it."""
    if isinstance(info, msgspec.inspect.StructType) and info.cls not in found:
        found[info.cls] = None
        for field in info.fields:
            within(field.type, found)
    for inner in (*getattr(info, "types", ()), getattr(info, "item_type", None), getattr(info, "value_type", None)):
        if inner is not None:
            within(inner, found)


def drawn(info):
    """Any value of a type."""
    if isinstance(info, msgspec.inspect.StructType):
        return st.builds(info.cls, **{field.name: drawn(field.type) for field in info.fields})
    if isinstance(info, msgspec.inspect.LiteralType):
        return st.sampled_from(info.values)
    if isinstance(info, msgspec.inspect.VarTupleType):
        return st.lists(drawn(info.item_type), max_size=2).map(tuple)
    if isinstance(info, msgspec.inspect.DictType):
        return st.dictionaries(st.text(), drawn(info.value_type), max_size=3)
    if isinstance(info, msgspec.inspect.UnionType):
        return st.one_of([drawn(each) for each in info.types])
    return PLAIN[type(info)]


def as_json_has_it(value):
    """A struct as the JSON of HTTP has it, without the tag.

    It has those fields, too, that are left out where they have their default.
    """
    if isinstance(value, msgspec.Struct):
        return {name: as_json_has_it(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple | list):
        return [as_json_has_it(each) for each in value]
    return {name: as_json_has_it(each) for name, each in value.items()} if isinstance(value, dict) else value


SHOWN = shown()


def made(struct, at_once=100):
    """The message of a struct, and how many pauses there were."""
    message = descriptors.message(type(struct).__name__)()
    with mock.patch.object(conversion, "_AT_ONCE", at_once):
        pauses = sum(1 for _ in make(struct, into(message)))
    return message, pauses


@pytest.mark.parametrize("kind", SHOWN, ids=lambda kind: kind.__name__)
@settings(max_examples=len(draws(8)))
@given(data=st.data())
def test_every_field_arrives_with_its_value(kind, data):
    """And the message has no field that the struct has not, made at once and in steps."""
    struct = data.draw(drawn(msgspec.inspect.type_info(kind)))
    message, _ = made(struct, data.draw(st.sampled_from([0, 100])))

    read = type(message).FromString(message.SerializeToString())
    assert plain(read) == as_json_has_it(struct)


def ways(count):
    """So many placements."""
    return (Placement(peer="node3", rail="rail0", via="rail1", entropy=3),) * count


@pytest.mark.parametrize(
    ("ordered", "outcomes", "pauses"), [(100, 9, 0), (101, 0, 101), (90, 11, 11), (0, 101, 101), (0, 300, 300)]
)
def test_a_large_command_is_made_in_steps(ordered, outcomes, pauses):
    """A step for each entry of a list that holds more than is made at once, whatever they hold themselves.

    One for each command of a few.
    """
    command = Command(
        id="c", verb="reroute", node="node0", cause="e", issued_ns=1, deadline_ns=2, lease_revision=3,
        placements=ways(ordered),
    )  # fmt: skip
    outcome = Outcome(id="o", command="c", verb="reroute", node="node0", status="done", started_ns=1, undo=ways(9))
    view = CommandView(
        id="c", verb="reroute", node="node0", at_ns=1, status="done", armed=False, fault="", command=command,
        outcomes=(outcome,) * outcomes,
    )  # fmt: skip
    message, found = made(view)

    assert (len(message.command.placements), len(message.outcomes)) == (ordered, outcomes)
    assert all(len(each.undo) == 9 for each in message.outcomes)
    assert found == pauses


def test_all_that_http_shows_is_looked_at():
    """A struct that a handler returns tomorrow is looked at too."""
    assert {
        "NodeView",
        "PathView",
        "ClockState",
        "Event",
        "CommandView",
        "Outcome",
        "Trace",
        "Span",
        "Tile",
        "Health",
    } <= {kind.__name__ for kind in SHOWN}


@pytest.mark.parametrize("tiles", [1, 1_000])
def test_a_change_that_was_told_is_freed_without_the_garbage_collector(tiles):
    """There are ten a second, and what survives long is not looked through again."""
    tile = Tile(nic="node0.rail0", node="node0", rail="rail0", condition="up", moved=False, why="")
    gc.collect()
    gc.disable()
    try:
        for part in services.parts(Change(Tiles(whole=True, tiles=(tile,) * tiles, gone=()))):
            assert part.said.tiles
        del part
        assert not gc.collect()
    finally:
        gc.enable()


def test_a_field_that_the_message_lacks_stops_the_start():
    """A struct that gets a field needs one in schemas/proto."""
    grown = msgspec.defstruct("Missed", [("events", int), ("since_ns", int)])

    with pytest.raises(TypeError, match="the message Missed has no field since_ns"):
        fields_of(grown)


def test_the_start_looks_at_all_that_is_served(monkeypatch):
    """Not the first request that shows it."""
    grown = msgspec.defstruct("Missed", [("since_ns", int)])
    store = Store(GatewaySettings(), time.time_ns)
    monkeypatch.setattr(services, "SERVED", (*services.SERVED, grown))

    with pytest.raises(TypeError, match="the message Missed has no field since_ns"):
        services.handlers(store, Hub(store))


def test_what_is_served_is_all_that_http_shows():
    """With what is in it."""
    found = {}
    for kind in services.SERVED:
        within(msgspec.inspect.type_info(kind), found)

    assert set(found) == set(SHOWN)


def test_a_struct_without_a_message_stops_the_start():
    """By its name."""
    with pytest.raises(KeyError, match=r"foliot\.v1\.Stranger"):
        fields_of(msgspec.defstruct("Stranger", []))


def test_a_word_that_the_enum_lacks_stops_the_start():
    """A literal that gets a value needs one in schemas/proto."""
    with pytest.raises(KeyError, match="NIC_STATE_MELTED"):
        fields_of(msgspec.defstruct("NicView", [("state", typing.Literal["up", "melted"])]))


def test_any_word_does_not_fit_into_an_enum():
    """A list of words that is opened to extensions is a text in schemas/proto."""
    with pytest.raises(TypeError, match=r"the field foliot\.v1\.NicView\.state is an enum"):
        fields_of(msgspec.defstruct("NicView", [("state", str)]))


def test_a_time_beyond_int64_becomes_the_last_one():
    """A span may bear any 64 bits, which HTTP shows; the trace that it is in can still be read."""
    span = Span(
        trace_id="a", span_id="b", parent_id="", name="x", service="s", start_ns=1, end_ns=(1 << 64) - 1,
        attributes={"count": 1 << 63},
    )  # fmt: skip
    message, _ = made(span)

    assert (message.start_ns, message.end_ns) == (1, (1 << 63) - 1)
    assert message.attributes["count"].integer == (1 << 63) - 1


def comments():
    """What the interface says of each message's fields."""
    found = {}
    for file in descriptors.FILES:
        for location in file.source_code_info.location:
            match list(location.path):
                case [4, index, 2, number]:
                    message = file.message_type[index]
                    found[message.name, message.field[number].name] = words(location.leading_comments)
                case [4, index]:
                    found[file.message_type[index].name, ""] = words(location.leading_comments)
    return found


def words(text):
    """A text without its line ends."""
    return " ".join(text.split())


@pytest.mark.parametrize("kind", SHOWN, ids=lambda kind: kind.__name__)
def test_the_interface_says_of_a_field_what_its_struct_says(kind):
    """With its unit; a description that is changed in one place is changed in the other."""
    said = comments()
    units = {**UNITS, "_ms": "ms"}
    described = docstrings.of_struct(kind)

    assert said[kind.__name__, ""] == words(docstrings.markdown(kind.__doc__))
    for name in kind.__struct_fields__:
        unit = next((f"In {text}." for end, text in units.items() if name.endswith(end)), "")
        expected = re.sub(r"\bNone:", "absent:", words(described.get(name, "")))
        comment = said[kind.__name__, name]
        assert comment.endswith(unit)
        assert comment.removesuffix(unit).strip() == expected or (comment.removesuffix(unit) and not expected)
