"""The parts of the contract that others build on, as plain data, and the changes that break them.

``python -m foliot_schemas.compatibility FILE`` brings that file up to date, unless the contract has been broken since
it was written. Old readers meet new messages and new readers meet old ones, so the check covers both.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from foliot_schemas import event_kinds, notice, orders, subjects
from foliot_schemas.collective import CollectiveRow, ProgressRow
from foliot_schemas.fit import FIT_LATER, FitRow
from foliot_schemas.flow import FLOW_LATER, FlowRow
from foliot_schemas.hops import HopRow
from foliot_schemas.observation import DELAY_LATER, DelayCount, DelayRow, StampRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Contract = Mapping[str, Any]

_BETWEEN_AGENTS = (notice.Notice, notice.NoticeSeen, notice.Echo)
_LATER = {"delay.v1": DELAY_LATER, "fits.v1": FIT_LATER, "flow.v1": FLOW_LATER}
_COLUMNS = {
    "stamps.v1": StampRow,
    "delay.v1": DelayRow,
    "delay.v1 histogram": DelayCount,
    "fits.v1": FitRow,
    "flow.v1": FlowRow,
    "hops.v1": HopRow,
    "collective.v1": CollectiveRow,
    "collective.v1 progress": ProgressRow,
}
_LEFT_OUT = {
    "title",
    "description",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "pattern",
    "propertyNames",
}
"""Keywords for words and bounds. These refuse only values that no honest sender sends."""


def contract() -> dict[str, Any]:
    """The contract as the code has it now.

    It has messages by tag, orders by verb, structs, columns, channels, streams by subject, and buckets.
    """
    on_channels = (channel.message for channel in subjects.CHANNELS)
    in_buckets = (bucket.message for bucket in subjects.BUCKETS)
    messages: list[type[msgspec.Struct]] = [
        *dict.fromkeys([*on_channels, *in_buckets]),
        *_BETWEEN_AGENTS,
        *orders.BUILT_IN,
    ]
    _, schemas = msgspec.json.schema_components(messages, ref_template="{name}")
    promised = {
        "messages": {_tag(message): message.__name__ for message in messages if message not in orders.BUILT_IN},
        "orders": {orders.verb_of(order): order.__name__ for order in orders.BUILT_IN},
        "structs": {name: _bare(schema) for name, schema in schemas.items()},
        "columns": {tag: {name: rows[name].str for name in rows.names or ()} for tag, rows in _COLUMNS.items()},
        "channels": {
            channel.name: {"tokens": list(channel.tokens), "message": _tag(channel.message), "stream": channel.stream}
            for channel in subjects.CHANNELS
        },
        "streams": {subject: stream.name for stream in subjects.STREAMS for subject in stream.subjects},
        "buckets": {bucket.name: {"key": bucket.key, "message": _tag(bucket.message)} for bucket in subjects.BUCKETS},
        "event_kinds": {
            kind.name: {
                "concerns": kind.concerns,
                "publisher": kind.publisher,
                "states": {state.name: {"is_relief": state.is_relief} for state in kind.states},
            }
            for kind in event_kinds.BUILT_IN
        },
    }
    plain: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode(promised)
    )  # as it is read from a file: lists, no tuples
    return plain


def breaks(before: Contract, after: Contract) -> list[str]:
    """The losses of a reader of the earlier contract under the later one, a sentence each; empty: none."""
    found = [*_struct_breaks(before["structs"], after["structs"])]
    found += _kind_breaks(before.get("event_kinds", {}), after["event_kinds"])
    for part in ("messages", "orders", "columns", "channels", "streams", "buckets"):
        for name, was in before.get(part, {}).items():
            now = after[part].get(name)
            if part == "columns" and now is not None:  # those that older senders leave out may be added
                now = {
                    column: kind for column, kind in now.items() if column in was or column not in _LATER.get(name, ())
                }
            if now is None:
                found.append(f"{part}: {name} is gone")
            elif now != was:
                found.append(f"{part}: {name} was {_text(was)}, is {_text(now)}")
    return found


def _kind_breaks(before: Contract, after: Contract) -> Iterator[str]:
    """The breaks among kinds of event.

    A reader ignores kinds and states that it does not know, but none may go or change its meaning.
    """
    for name, was in before.items():
        now = after.get(name)
        if now is None:
            yield f"events: the kind {name} is gone"
            continue
        for key in ("concerns", "publisher"):
            if now[key] != was[key]:
                yield f"events: {key} of the kind {name} was {was[key]}, is {now[key]}"
        for state, meant in was["states"].items():
            if now["states"].get(state) != meant:
                means = _text(now["states"][state]) if state in now["states"] else "gone"
                yield f"events: the state {state} of the kind {name} was {_text(meant)}, is {means}"


def _struct_breaks(before: Contract, after: Contract) -> Iterator[str]:
    for name, was in before.items():
        if name not in after:
            yield f"{name} is gone"
            continue
        now = after[name]
        for field, schema in was["properties"].items():
            if field not in now["properties"]:
                yield f"{name}.{field} is gone"
            else:
                yield from _field_breaks(f"{name}.{field}", schema, now["properties"][field])
        needed_before, needed = set(was.get("required", [])), set(now.get("required", []))
        for field in sorted(needed & was["properties"].keys() - needed_before):
            yield f"{name}.{field} had a default and has none"
        for field in sorted(needed - was["properties"].keys()):
            yield f"{name}.{field} is new and has no default, so messages of before could not be read"


def _field_breaks(name: str, was: Contract, now: Contract) -> Iterator[str]:
    if "default" in was and "default" in now and was["default"] != now["default"]:
        yield f"{name} had the default {_text(was['default'])}, has {_text(now['default'])}"
    type_was, type_now = ({key: part for key, part in each.items() if key != "default"} for each in (was, now))
    if type_was.keys() == type_now.keys() == {"enum"}:
        lost = set(type_was["enum"]) - set(type_now["enum"])
        if lost:
            yield f"{name} may no longer be {', '.join(sorted(lost))}"
    elif type_was.keys() == {"enum"} and type_now == {"type": "string"}:
        return  # a list of words that is opened: like one with more words, which readers have to accept
    elif type_was != type_now:
        yield f"{name} was {_text(type_was)}, is {_text(type_now)}"


def _bare(schema: Any) -> Any:
    """A schema without its descriptions and titles."""
    if isinstance(schema, dict):
        named = (
            {"properties": {name: _bare(field) for name, field in schema["properties"].items()}}
            if "properties" in schema
            else {}
        )
        return {key: _bare(part) for key, part in schema.items() if key not in _LEFT_OUT} | named
    return [_bare(part) for part in schema] if isinstance(schema, list) else schema


def _tag(message: type[msgspec.Struct]) -> str:
    return str(message.__struct_config__.tag)


def _text(part: Any) -> str:
    return msgspec.json.encode(part).decode()


def main(path: Path) -> int:
    """Brings the file up to date; 1, and what is broken, if that would hide a break."""
    present = contract()
    broken = breaks(msgspec.json.decode(path.read_bytes()), present) if path.exists() else []
    if broken:
        sys.stderr.write(
            "\n".join(["The contract would break:", *broken, "A change like this needs a new version of the message."])
            + "\n"
        )
        return 1
    path.write_bytes(msgspec.json.format(msgspec.json.encode(present, order="sorted")) + b"\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
