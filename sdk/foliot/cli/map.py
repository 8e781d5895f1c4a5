"""``foliot map``: over which links paths go, and which of them share one."""

from __future__ import annotations

import argparse  # noqa: TC003 - argparse's private type is part of the signature
import sys
import urllib.parse
from typing import TYPE_CHECKING, Any

import msgspec

from foliot.cli import gateway
from foliot.cli.colours import wanted
from foliot.cli.gateway import GatewayError
from foliot.cli.map_table import PathMap, render

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PATHS = 10_000
"""The most that a gateway tells of in one answer."""
_TIMEOUT_S = 30.0
"""A gateway that has just started finds all routers first. It serves others meanwhile."""
_FILTERS = {
    "from": "only paths from this node or NIC",
    "to": "only paths to this node or NIC",
    "rail": "only paths of this rail",
    "path": "only this path",
    "link": "only paths that cross this link",
}
_NAMES = {"links": "link", "routers": "router"}
"""What tells entries of a list apart, where several answers may have the same one."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "map",
        help="show over which links paths go, and which of them share one",
        description="Shows the routers that paths have found, the links between them, and how many paths cross each. "
        "With --from, --to, --path or --link it shows each path, too.",
        epilog="Examples: foliot map · foliot map --from node0 --to node3 --rail rail0 · foliot map --json",
    )
    for name, about in _FILTERS.items():
        parser.add_argument(f"--{name}", dest=f"only_{name}", default="", metavar="NAME", help=about)
    parser.add_argument("--json", action="store_true", help="what the gateway answers, as one JSON object")
    gateway.add_option(parser)
    parser.set_defaults(func=_map)


def _map(arguments: argparse.Namespace) -> int:
    asked = {name: getattr(arguments, f"only_{name}") for name in _FILTERS}
    try:
        found = fetch(arguments.gateway, {name: value for name, value in asked.items() if value})
    except GatewayError as error:
        sys.stderr.write(f"foliot map: {error}\n")
        return 1
    if arguments.json:
        print(msgspec.json.encode(found).decode())
        return 0
    shown = msgspec.convert(found, PathMap)
    if not shown.paths:
        sys.stderr.write("foliot map: the gateway knows of no such path\n")
        return 1
    is_narrow = any(value for name, value in asked.items() if name != "rail")
    for line in render(shown, each_path=is_narrow, colour=wanted()):
        print(line)
    return 0


def fetch(at: str, asked: Mapping[str, str]) -> dict[str, Any]:
    """The map, of all answers that it takes.

    Parameters:
        at: address of the gateway.
        asked: what the paths must have, as the gateway has it in ``/api/v1/map``.

    Raises:
        GatewayError: there is no answer.
    """
    answers = list(_answers(gateway.base_of(at), asked))
    whole: dict[str, Any] = {"paths": [path for each in answers for path in each["paths"]]}
    for kind, name in _NAMES.items():
        whole[kind] = list({entry[name]: entry for each in answers for entry in each[kind]}.values())
    return whole


def _answers(base: str, asked: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    after: dict[str, str] = {}
    while True:
        query = urllib.parse.urlencode({**asked, **after, "limit": _PATHS})
        answer = gateway.get(base, f"/api/v1/map?{query}", _TIMEOUT_S)
        try:
            msgspec.json.decode(answer, type=PathMap)
        except msgspec.MsgspecError as error:
            raise GatewayError(gateway.not_understood(base, error)) from error
        found = msgspec.json.decode(answer, type=dict[str, Any])
        yield found
        if len(found["paths"]) < _PATHS:
            return
        after = {"after": found["paths"][-1]["path"]}
