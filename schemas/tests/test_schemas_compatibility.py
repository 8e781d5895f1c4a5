"""What others build on stays."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from foliot_schemas import compatibility
from foliot_schemas.compatibility import breaks, contract

SNAPSHOT = Path(__file__).parent / "golden" / "contract.json"


def test_nothing_that_was_promised_is_gone():
    """A change that fails here needs a new version of the message, beside the old one."""
    assert not breaks(msgspec.json.decode(SNAPSHOT.read_bytes()), contract())


def test_the_snapshot_is_up_to_date():
    """Whatever is added is promised from then on: ``make asyncapi`` takes it up."""
    assert msgspec.json.decode(SNAPSHOT.read_bytes()) == contract()


def struct(name):
    """The properties of a struct, to be changed."""
    return lambda it: it["structs"][name]["properties"]


def _lose_field(it):
    del struct("Event")(it)["evidence"]


def _rename_field(it):
    fields = struct("Event")(it)
    fields["whom"] = fields.pop("who")


def _change_type(it):
    struct("ClockState")(it)["offset_ns"] = {"type": "number"}


def _change_items(it):
    struct("Node")(it)["nics"]["items"] = {"$ref": "Placement"}


def _change_inner_struct(it):
    del struct("Placement")(it)["via"]


def _lose_default(it):
    del struct("Event")(it)["cause"]["default"]
    it["structs"]["Event"]["required"].append("cause")


def _change_default(it):
    struct("Event")(it)["confidence"]["default"] = 0.5


def _narrow_enum(it):
    struct("ClockState")(it)["status"]["enum"].remove("holdover")


def _lose_kind(it):
    del it["event_kinds"]["refusal"]


def _lose_state(it):
    del it["event_kinds"]["path"]["states"]["lossy"]


def _turn_relief(it):
    it["event_kinds"]["path"]["states"]["speaking"]["is_relief"] = False


def _rename_concerned(it):
    it["event_kinds"]["nic"]["concerns"] = "path"


def _close_word(it):
    struct("Event")(it)["kind"] = {"enum": ["flap", "path"]}


def _change_tag(it):
    struct("Event")(it)["type"]["enum"] = ["event.v2"]
    it["messages"]["event.v2"] = it["messages"].pop("event.v1")


def _need_new_field(it):
    struct("Event")(it)["colour"] = {"type": "string"}
    it["structs"]["Event"]["required"].append("colour")


def _lose_channel(it):
    del it["channels"]["outcome"]


def _turn_tokens(it):
    it["channels"]["event"]["tokens"].reverse()


def _lose_stream(it):
    del it["streams"]["foliot.v1.event.>"]


def _change_column(it):
    it["columns"]["delay.v1"]["least_ns"] = "<f8"


def _add_column(it):
    it["columns"]["delay.v1"]["jitter_ns"] = "<i8"


def _change_bucket(it):
    it["buckets"]["paths"]["key"] = "rail"


BREAKS = {
    _lose_field: "Event.evidence is gone",
    _rename_field: "Event.who is gone",
    _change_type: 'ClockState.offset_ns was {"type":"integer"}, is {"type":"number"}',
    _change_items: "Node.nics was",
    _change_inner_struct: "Placement.via is gone",
    _lose_default: "Event.cause",
    _change_default: "Event.confidence had the default 1.0, has 0.5",
    _narrow_enum: "ClockState.status may no longer be holdover",
    _lose_kind: "events: the kind refusal is gone",
    _lose_state: 'events: the state lossy of the kind path was {"is_relief":false}, is gone',
    _turn_relief: "events: the state speaking of the kind path was",
    _rename_concerned: "events: concerns of the kind nic was nic, is path",
    _close_word: 'Event.kind was {"type":"string"}, is {"enum":["flap","path"]}',
    _change_tag: "messages: event.v1 is gone",
    _need_new_field: "Event.colour is new and has no default",
    _lose_channel: "channels: outcome is gone",
    _turn_tokens: "channels: event was",
    _lose_stream: "streams: foliot.v1.event.> is gone",
    _change_column: "columns: delay.v1 was",
    _add_column: "columns: delay.v1 was",
    _change_bucket: "buckets: paths was",
}


@pytest.fixture
def changed():
    """A copy of the contract, to be changed."""
    return contract()


@pytest.mark.parametrize(("change", "sentence"), BREAKS.items(), ids=[change.__name__.strip("_") for change in BREAKS])
def test_what_breaks_somebody_is_found(changed, change, sentence):
    """Each way to break a reader, and the sentence that names it."""
    change(changed)

    assert any(said.startswith(sentence) for said in breaks(contract(), changed))


def _add_field(it):
    struct("Event")(it)["colour"] = {"type": "string", "default": ""}


def _widen_enum(it):
    struct("ClockState")(it)["status"]["enum"].append("stolen")


def _open_enum(it):
    struct("ClockState")(it)["status"] = {"type": "string"}


def _add_kind(it):
    it["event_kinds"]["lemon"] = {"concerns": "process", "publisher": "detector", "states": {}}
    it["event_kinds"]["path"]["states"]["late"] = {"is_relief": False}


def _add_channel(it):
    it["channels"]["observation.power"] = {"tokens": ["node"], "message": "power.v1", "stream": ""}


def _give_default(it):
    struct("Event")(it)["state"]["default"] = ""
    it["structs"]["Event"]["required"].remove("state")


@pytest.mark.parametrize(
    "change",
    [_add_field, _widen_enum, _open_enum, _add_kind, _add_channel, _give_default],
    ids=lambda it: it.__name__.strip("_"),
)
def test_what_is_added_breaks_nobody(changed, change):
    """New fields with defaults, new values, lists of values that are opened, new kinds and states, new channels."""
    change(changed)

    assert not breaks(contract(), changed)


def test_a_break_cannot_be_written_into_the_snapshot(tmp_path, changed, capsys):
    """The command that takes additions up refuses to hide a loss."""
    struct("Event")(changed)["evidences"] = {"type": "string"}
    path = tmp_path / "contract.json"
    path.write_bytes(msgspec.json.encode(changed))

    assert compatibility.main(path) == 1
    assert "Event.evidences is gone" in capsys.readouterr().err
    assert msgspec.json.decode(path.read_bytes()) == changed


def test_an_addition_is_taken_up(tmp_path, changed):
    """From then on it is promised."""
    del struct("Event")(changed)["policy"]
    path = tmp_path / "contract.json"
    path.write_bytes(msgspec.json.encode(changed))

    assert compatibility.main(path) == 0
    assert not breaks(contract(), msgspec.json.decode(path.read_bytes()))
    assert "policy" in struct("Event")(msgspec.json.decode(path.read_bytes()))


def test_an_enumeration_may_be_opened():
    """More values were promised to come, so a reader has to bear any."""
    before, after = contract(), contract()
    struct("Command")(before)["verb"] = {"enum": ["reroute", "restore"]}

    assert not breaks(before, after)
    assert breaks(after, before)
