"""The reference pages of the documentation site, made from the code: settings, commands, messages, HTTP, gRPC."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import ChainMap
from typing import TYPE_CHECKING, Any, Final

import msgspec

from foliot import cli
from foliot.node.shard import ShardSettings
from foliot.runtime.extensions import ExtensionSettings
from foliot.settings import BusSettings, ClockSettings, HealthSettings, NodeSettings, TelemetrySettings
from foliot_agent.settings import AgentSettings
from foliot_detector.settings import DetectorSettings
from foliot_gateway.http import api
from foliot_gateway.rpc.descriptors import FILES, PACKAGE
from foliot_gateway.settings import GatewaySettings
from foliot_gateway.state.store import Store
from foliot_gateway.subscription import Hub
from foliot_probe.settings import ProbeSettings
from foliot_remediator.settings import RemediatorSettings
from foliot_schemas import docstrings
from foliot_sync.settings import SyncSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

Schema = dict[str, Any]
"""A JSON Schema, or a part of an AsyncAPI or OpenAPI document."""

SECTIONS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "bus": BusSettings,
    "node": NodeSettings,
    "probe": ProbeSettings,
    "agent": AgentSettings,
    "sync": SyncSettings,
    "detector": DetectorSettings,
    "remediator": RemediatorSettings,
    "gateway": GatewaySettings,
    "shard": ShardSettings,
    "clock": ClockSettings,
    "telemetry": TelemetrySettings,
    "health": HealthSettings,
    "extensions": ExtensionSettings,
}
"""Sections of a settings file, in the order in which the page has them."""

_ABOUT_SETTINGS = (
    "One TOML file, named by `FOLIOT_CONFIG`, has the settings of all services of a host. "
    "A variable `FOLIOT_<SECTION>__<KEY>`, such as `FOLIOT_PROBE__IN_USE_HZ`, overrides a key. "
    "A key that is unknown, or a value that does not fit, stops the start."
)
_WIDTH = "100"
"""Columns of the commands' help."""
_METHODS = ("get", "post", "put", "delete")
_MESSAGE, _ENUM, _SERVICE, _MEMBER = 4, 5, 6, 2
"""Field numbers of descriptor.proto, of which the paths of comments are made; fields, values and methods have the
same."""


def settings() -> str:
    """Every section of the settings: key, type, default and docstring of each field."""
    parts = [
        "# Settings",
        _ABOUT_SETTINGS,
    ]
    for section, kind in SECTIONS.items():
        structs = _structs_below(kind)
        schemas = msgspec.json.schema_components([kind], ref_template="#{name}")[1]
        parts += [f"## [{section}]", _first(kind)]
        described = [docstrings.of_struct(each) for each in getattr(kind, "kinds", (kind,))]
        parts.append(_fields(schemas[kind.__name__], ChainMap(*described)))
        for name, below in structs.items():
            parts += [f"### {name}", _first(below), _fields(schemas[name], docstrings.of_struct(below))]
    return _page(parts)


def commands() -> str:
    """The help of `foliot` and of every subcommand."""
    columns, os.environ["COLUMNS"] = os.environ.get("COLUMNS"), _WIDTH
    try:
        parts = ["# Commands"]
        for parser, about in _parsers(cli.parser()):
            parts += [f"## {parser.prog}", about, f"```text\n{parser.format_help().rstrip()}\n```"]
    finally:
        if columns is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = columns
    return _page(parts)


def messages(document: Schema) -> str:
    """The contract of the bus.

    Parameters:
        document: `docs/asyncapi.json`.
    """
    parts = ["# Messages", document["info"]["description"], "The whole document is [asyncapi.json](../asyncapi.json)."]
    parts += ["## Subjects", "| subject | message | what it carries | who |", "|---|---|---|---|"]
    parts[-2:] = ["\n".join([*parts[-2:], *(_channel(document, name) for name in document["channels"])])]
    jetstream = document["x-jetstream"]
    streams = [
        f"| `{each['name']}` | {', '.join(f'`{subject}`' for subject in each['subjects'])} | {each['keep_days']} |"
        for each in jetstream["streams"]
    ]
    parts += [
        "## Streams",
        "\n".join(["| stream | subjects | days |", "|---|---|---|", *streams]),
        jetstream["consumers"],
    ]
    buckets = [_bucket(each) for each in jetstream["buckets"]]
    parts += ["## Buckets", "\n".join(["| bucket | key | message | kept in |", "|---|---|---|---|", *buckets])]
    parts.append("## Types")
    for name, schema in document["components"]["schemas"].items():
        parts += [f"### {name}", schema.get("description", ""), _fields(schema, {})]
    return _page(parts)


def http() -> str:
    """The requests that the gateway answers, by its OpenAPI document."""
    store = Store(GatewaySettings(), time.time_ns)
    app = api.make(store, Hub(store))
    document: Schema = app.openapi_schema.to_schema()
    said = {
        (path, method.lower()): handler.fn.__doc__ or ""
        for route in app.routes
        for handler in getattr(route, "route_handlers", ())
        for path in handler.paths
        for method in handler.http_methods
    }
    parts = ["# HTTP", "The gateway serves this document itself, as OpenAPI at `/schema/openapi.json`."]
    for path, operations in document["paths"].items():
        for method in [each for each in _METHODS if each in operations]:
            plain = path.replace("{trace_id}", "{trace_id:str}")
            parts += [f"## {method.upper()} {path}", docstrings.markdown(said.get((plain, method), ""))]
            parts += _operation(operations[method])
    described = _structs_of("foliot_gateway.state") | _structs_of("foliot_schemas")
    parts.append("## Types")
    for name, schema in document.get("components", {}).get("schemas", {}).items():
        kind = described.get(name)
        parts += [f"### {name}", *([_first(kind)] if kind else [])]
        parts.append(_fields(schema, docstrings.of_struct(kind) if kind else {}))
    return _page(parts)


def grpc() -> str:
    """The services, messages and enumerations of `foliot.v1`, by the descriptors that the gateway serves."""
    parts = [
        "# gRPC",
        "The gateway describes this interface itself, by reflection. [HTTP and gRPC](../api.md) says how to use it.",
    ]
    parts += [part for file in FILES for part in _services(file)]
    parts.append("## Types")
    parts += [part for file in FILES for part in _types(file)]
    return _page(parts)


def write(folder: Path, asyncapi: Path) -> None:
    """Writes all pages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    document = json.loads(asyncapi.read_text())
    pages: dict[str, Callable[[], str]] = {
        "settings": settings, "commands": commands, "messages": lambda: messages(document), "http": http, "grpc": grpc,
    }  # fmt: skip
    for name, page in pages.items():
        (folder / f"{name}.md").write_text(page())


def _page(parts: list[str]) -> str:
    """The parts one below the other; a list in one of them needs an empty line before it."""
    return "\n\n".join(part.replace("\n- ", "\n\n- ") for part in parts if part) + "\n"


def _first(kind: type) -> str:
    """The docstring of a struct; empty where Python made it up from the fields."""
    text = kind.__doc__ or ""
    return "" if text.startswith(f"{kind.__name__}(") else docstrings.markdown(text)


def _fields(schema: Schema, said: Mapping[str, str]) -> str:
    """The table of an object's fields; what else a schema is, in a line."""
    if "properties" not in schema:
        return f"Type: {_type(schema)}."
    required = schema.get("required", [])
    rows = ["| name | type | default | meaning |", "|---|---|---|---|"]
    for name, field in schema["properties"].items():
        default = "required" if name in required else _value(field["default"]) if "default" in field else ""
        rows.append(
            f"| `{name}` | {_type(field)} | {default} | {_cell(said.get(name) or field.get('description', ''))} |"
        )
    return "\n".join(rows)


def _type(schema: Schema) -> str:
    """A type in words, from its JSON Schema."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2].removeprefix("#")
        return f"[{name}](#{name.lower()})"
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(_type(each) for each in choices)
    if values := schema.get("enum") or [schema[key] for key in ("const",) if key in schema]:
        return ", ".join(_value(each) for each in values)
    return _plain_type(schema)


def _plain_type(schema: Schema) -> str:
    match schema.get("type", "any"):
        case "array":
            return f"list of {_type(schema['items'])}" if schema.get("items") else "list"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"table of {_type(schema['additionalProperties'])}"
        case [*kinds]:
            return " or ".join(kinds)
        case kind:
            return str(kind)


def _value(value: object) -> str:
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n\n", "<br>").replace("\n", "<br>")


def _parsers(parser: argparse.ArgumentParser, about: str = "") -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """A parser and those of its subcommands, depth first, each with what its parent says of it."""
    yield parser, "" if parser.description or not about else f"{about[0].upper()}{about[1:]}."
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way to its subcommands
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            said = {each.dest: each.help or "" for each in action._choices_actions}  # noqa: SLF001 - as above
            for name, below in action.choices.items():
                yield from _parsers(below, said.get(name, ""))


def _channel(document: Schema, name: str) -> str:
    channel = document["channels"][name]
    links = ", ".join(f"[{each}](#{each.lower()})" for each in channel.get("messages", {}))
    who = [
        operation["summary"] for operation in document["operations"].values()
        if operation["channel"]["$ref"].rpartition("/")[2] == name
    ]  # fmt: skip
    return f"| `{channel['address']}` | {links} | {_cell(channel.get('summary', ''))} | {_cell('; '.join(who))} |"


def _bucket(bucket: Schema) -> str:
    message = bucket["message"]["$ref"].rpartition("/")[2]
    return f"| `{bucket['bucket']}` | {bucket['key']} | [{message}](#{message.lower()}) | {bucket['storage']} |"


def _operation(operation: Schema) -> list[str]:
    parts = []
    if parameters := operation.get("parameters"):
        rows = ["| parameter | in | type | default | meaning |", "|---|---|---|---|---|"]
        for each in parameters:
            schema = each["schema"]
            default = "required" if each.get("required") else _value(schema["default"]) if "default" in schema else ""
            meaning = _cell(each.get("description", ""))
            rows.append(f"| `{each['name']}` | {each['in']} | {_type(schema)} | {default} | {meaning} |")
        parts.append("\n".join(rows))
    rows = ["| status | type of media | body |", "|---|---|---|"]
    for status, answer in operation["responses"].items():
        for media, content in (answer.get("content") or {"": {}}).items():
            schema = content.get("schema", {})
            body = answer["description"] if int(status) >= 400 else _type(schema)  # errors, RFC 9110
            rows.append(f"| {status} | {media} | {_cell(body)} |")
    return [*parts, "\n".join(rows)]


def _comments(file: Any) -> dict[tuple[int, ...], str]:
    """The comments of a file's source, by the path of the thing that each is about (SourceCodeInfo)."""
    return {tuple(each.path): docstrings.markdown(each.leading_comments) for each in file.source_code_info.location}


def _services(file: Any) -> Iterator[str]:
    said = _comments(file)
    for number, service in enumerate(file.service):
        rows = ["| method | asks | answers | meaning |", "|---|---|---|---|"]
        for place, method in enumerate(service.method):
            answer = f"{'stream of ' if method.server_streaming else ''}{_message_link(method.output_type)}"
            meaning = _cell(said.get((_SERVICE, number, _MEMBER, place), ""))
            rows.append(f"| `{method.name}` | {_message_link(method.input_type)} | {answer} | {meaning} |")
        yield from (f"## {service.name}", said.get((_SERVICE, number), ""), "\n".join(rows))


def _types(file: Any) -> Iterator[str]:
    said = _comments(file)
    for number, message in enumerate(file.message_type):
        yield from (f"### {message.name}", said.get((_MESSAGE, number), ""))
        if message.field:
            maps = {each.name: each for each in message.nested_type if each.options.map_entry}
            rows = ["| name | number | type | meaning |", "|---|---|---|---|"]
            for place, field in enumerate(message.field):
                meaning = _cell(said.get((_MESSAGE, number, _MEMBER, place), ""))
                rows.append(f"| `{field.name}` | {field.number} | {_field_type(field, maps)} | {meaning} |")
            yield "\n".join(rows)
    for number, enum in enumerate(file.enum_type):
        rows = ["| name | number | meaning |", "|---|---|---|"]
        for place, value in enumerate(enum.value):
            rows.append(f"| `{value.name}` | {value.number} | {_cell(said.get((_ENUM, number, _MEMBER, place), ''))} |")
        yield from (f"### {enum.name}", said.get((_ENUM, number), ""), "\n".join(rows))


def _field_type(field: Any, maps: Mapping[str, Any]) -> str:
    name = field.type_name.rpartition(".")[2]
    if name in maps:
        key, value = maps[name].field
        return f"map of {_field_type(key, {})} to {_field_type(value, {})}"
    plain = _message_link(field.type_name) if name else field.Type.Name(field.type).removeprefix("TYPE_").lower()
    return f"list of {plain}" if field.label == field.LABEL_REPEATED else plain


def _message_link(type_name: str) -> str:
    """A link to a type of the same page; the name alone of another package's."""
    package, _, name = type_name.lstrip(".").rpartition(".")
    return f"[{name}](#{name.lower()})" if package == PACKAGE else f"`{type_name.lstrip('.')}`"


def _structs_below(kind: type[msgspec.Struct]) -> dict[str, type[msgspec.Struct]]:
    """The structs that a struct's fields have, by name."""
    known = _structs_of(kind.__module__.partition(".")[0])
    names = msgspec.json.schema_components([kind], ref_template="#{name}")[1].keys()
    return {name: known[name] for name in names if name != kind.__name__}


def _structs_of(package: str) -> dict[str, type[msgspec.Struct]]:
    """The structs of a package's loaded modules, by name. What a struct's fields name is loaded with it."""
    modules = [module for name, module in sys.modules.items() if f"{name}.".startswith(f"{package}.")]
    return {
        name: each
        for module in modules
        for name, each in vars(module).items()
        if isinstance(each, type) and issubclass(each, msgspec.Struct) and each.__module__ == module.__name__
    }
