"""The AsyncAPI document."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from foliot_schemas import orders
from foliot_schemas.asyncapi import document, golden_files
from foliot_schemas.subjects import BUCKETS, CHANNELS
from patience import patience

COPY = Path(__file__).parents[2] / "docs" / "asyncapi.json"
GOLDEN = Path(__file__).parent / "golden"
CHECK = Path(__file__).parents[1] / "asyncapi"
NPM = Path(__file__).parents[2] / "services" / "gateway" / "web" / "npm"


@pytest.fixture(scope="module")
def whole():
    """The document as the code makes it now."""
    return document(golden_files(GOLDEN))


def test_the_copy_in_docs_is_up_to_date(whole):
    """Regenerate it by ``make asyncapi`` when the contract changes."""
    assert msgspec.json.decode(msgspec.json.encode(whole)) == msgspec.json.decode(COPY.read_bytes())


def test_every_channel_and_bucket_stands_in_it_with_its_message(whole):
    """Nothing travels that others cannot read up."""
    found = {entry["address"].partition(".{")[0]: set(entry["messages"]) for entry in whole["channels"].values()}

    assert found == {f"foliot.v1.{channel.name}": {channel.message.__name__} for channel in CHANNELS} | {
        f"$KV.{bucket.name}": {bucket.message.__name__} for bucket in BUCKETS
    }


def test_every_field_says_what_it_is(whole):
    """Below each field of a message stands a string that describes it."""
    silent = [
        f"{name}.{field}"
        for name, schema in whole["components"]["schemas"].items()
        for field, is_ in schema["properties"].items()
        if not is_["description"]
    ]

    assert not silent


def test_a_field_that_names_a_unit_says_it(whole):
    """Nanoseconds stand in the description, and for programs in ``x-unit``."""
    age = whole["components"]["schemas"]["ClockState"]["properties"]["offset_ns"]

    assert age["x-unit"] == "ns"
    assert age["description"] == "Reference minus local time at `as_of_ns`. In ns."


@pytest.mark.parametrize("field", ["Command.action", "Outcome.action", "Outcome.undo_action"])
def test_an_action_is_an_order_of_foliot_s_or_of_another_verb(whole, field):
    """The types that there are, and beside them whatever an extension registers."""
    schemas = whole["components"]["schemas"]
    message, _, name = field.partition(".")
    *own, other = schemas[message]["properties"][name]["oneOf"]

    assert own == [{"$ref": f"#/components/schemas/{order.__name__}"} for order in orders.BUILT_IN]
    assert other["properties"]["verb"]["not"]["enum"] == [orders.verb_of(order) for order in orders.BUILT_IN]


def run_parser(path):
    """The messages of AsyncAPI's own parser about a file, and its exit status."""
    if not (CHECK / "node_modules" / ".done").exists():
        pytest.skip("AsyncAPI's parser is not installed: make schemas/asyncapi/node_modules/.done")
    command = (NPM, "--prefix", CHECK, "run", "--silent", "check", "--", path)
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(120), check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_official_parser_has_nothing_to_say_against_it():
    """Neither errors nor warnings nor hints; examples are checked against the schemas, too."""
    assert run_parser(COPY) == (0, "")


def test_the_check_finds_all_that_is_wrong(tmp_path):
    """The parser is really asked, examples are compared, and also hints make it fail."""
    broken = msgspec.json.decode(COPY.read_bytes())
    messages = broken["components"]["messages"]
    broken["channels"]["event"]["messages"]["Event"] = {"$ref": "#/components/messages/Evnt"}
    messages["Event"]["examples"][0]["payload"].pop("who")
    messages["Command"]["examples"][0]["payload"]["action"] = {"verb": "reroute", "away": "rail0"}
    broken["asyncapi"] = "3.0.0"
    path = tmp_path / "broken.json"
    path.write_bytes(msgspec.json.encode(broken))

    status, said = run_parser(path)

    assert status == 1
    for complaint in (
        "latest version",
        "'#/components/messages/Evnt' does not exist",
        "example of Event: data must have required property 'who'",
        "example of Command: data/action/away must be array",
    ):
        assert complaint in said
