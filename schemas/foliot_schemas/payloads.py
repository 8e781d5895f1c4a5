"""The messages as JSON schemas, with the descriptions of fields from the source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from foliot_schemas import docstrings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_REFERENCE = "#/components/schemas/{name}"

UNITS = {"_ns": "ns", "_ppb": "parts per billion", "_s": "s", "_hz": "Hz", "_bps": "bit/s"}
"""The unit of a field, by the end of its name."""


def payloads(messages: Iterable[type[msgspec.Struct]]) -> dict[str, Any]:
    """The schema of each message, and of each struct inside of one, by the struct's name.

    Raises:
        OSError: the source is not there to read the descriptions from.
    """
    messages = tuple(messages)
    _, schemas = msgspec.json.schema_components(messages, ref_template=_REFERENCE)
    for struct in structs(messages):
        schema = schemas[struct.__name__]
        schema["description"] = docstrings.markdown(struct.__doc__ or "")
        described = docstrings.of_struct(struct)
        tag_field = struct.__struct_config__.tag_field
        for name, field in schema["properties"].items():
            if name == tag_field:
                field["description"] = (
                    "The order's verb." if tag_field == "verb" else "Name and major version of the message."
                )
            else:
                schema["properties"][name] = _described(name, field, described.get(name, ""))
    return dict(sorted(schemas.items()))


def structs(messages: Iterable[type[msgspec.Struct]]) -> list[type[msgspec.Struct]]:
    """The messages and all structs inside of them, each once."""
    found: dict[type[msgspec.Struct], None] = {}
    for message in messages:
        for struct in _within(msgspec.inspect.type_info(message)):
            found[struct] = None
    return list(found)


def _within(info: msgspec.inspect.Type) -> Iterator[type[msgspec.Struct]]:
    if isinstance(info, msgspec.inspect.StructType):
        yield info.cls
        for field in info.fields:
            yield from _within(field.type)
    elif isinstance(info, msgspec.inspect.VarTupleType):
        yield from _within(info.item_type)
    elif isinstance(info, msgspec.inspect.UnionType):
        for either in info.types:
            yield from _within(either)


def _described(name: str, field: dict[str, Any], description: str) -> dict[str, Any]:
    unit = next((text for end, text in UNITS.items() if name.endswith(end)), "")
    more: dict[str, Any] = {"description": f"{description} In {unit}." if unit else description}
    if unit:
        more["x-unit"] = unit
    if field.get("type") == "integer":
        more["format"] = "int64"
    return {**field, **more}
