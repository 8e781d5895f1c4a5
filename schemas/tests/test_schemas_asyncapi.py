"""The AsyncAPI document."""

from __future__ import annotations

from pathlib import Path

import msgspec

from foliot_schemas.asyncapi import document
from foliot_schemas.subjects import CHANNELS

COPY = Path(__file__).parents[2] / "docs" / "asyncapi.json"


def test_the_copy_in_docs_is_up_to_date():
    """Regenerate it by ``make asyncapi`` when the contract changes."""
    assert msgspec.json.decode(msgspec.json.encode(document())) == msgspec.json.decode(COPY.read_bytes())


def test_every_channel_stands_in_it_with_its_message():
    """Nothing travels that others cannot read up."""
    channels = document()["channels"]

    assert {channel.message.__name__ for channel in CHANNELS} == {
        name for entry in channels.values() for name in entry["messages"]
    }
    assert len(channels) == len(CHANNELS)


def test_every_reference_resolves():
    """A parser finds all that the document points to."""
    whole = document()

    def references(part):
        if isinstance(part, dict):
            yield from ([part["$ref"]] if "$ref" in part else [])
            part = part.values()
        if not isinstance(part, str) and hasattr(part, "__iter__"):
            for item in part:
                yield from references(item)

    for reference in references(whole):
        at = whole
        for key in reference.removeprefix("#/").split("/"):
            at = at[key]
