"""``foliot drain``: says that ranks of training jobs are to leave a node, or may use it again."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import socket
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from nats.js.errors import NotFoundError

from foliot.bus.one_shot import OneShot
from foliot.bus.retry import BUS_ERRORS, in_words
from foliot.cli import settings_options
from foliot.settings import SettingsError
from foliot_schemas import Drain, WireError, decode, encode
from foliot_schemas.subjects import DRAINS, INVENTORY

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from foliot.settings import BusSettings


class DrainError(Exception):
    """What was asked for cannot be; the message says why."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "drain",
        help="have ranks of training jobs leave a node",
        description="Says that no rank of a training job is to run on a node. The remediator gives ranks that can be "
        "replaced to spares on other nodes, at the end of a step, as `remediator.replace` permits. The command writes "
        "that and does not wait for it: `foliot watch` shows what becomes of it. The node is drained until you undo it. "
        "Without a node, it lists the nodes that are drained.",
        epilog='Examples: foliot drain node3 --reason "its fan is loud" · foliot drain · foliot drain node3 --undo',
    )
    parser.add_argument("node", nargs="?", default="", metavar="NODE", help="the node (default: list drained nodes)")
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for those who see it")
    parser.add_argument("--undo", action="store_true", help="the node may be used again")
    parser.add_argument("--json", action="store_true", help="one JSON object per node")
    settings_options.add_bus(parser, role="scheduler")
    parser.set_defaults(func=_drain)


def _drain(arguments: argparse.Namespace) -> int:
    if not arguments.node and (arguments.undo or arguments.reason):
        _say("name the node")
        return 2
    try:
        settings = settings_options.bus_settings(arguments)
        if not arguments.node:
            _list(asyncio.run(present(settings)), as_json=arguments.json)
            return 0
        wish = Drain(node=arguments.node, at_ns=time.time_ns(), by=_who(), reason=arguments.reason, over=arguments.undo)
        wish, sentence = asyncio.run(write(settings, wish))
    except (SettingsError, DrainError) as error:
        _say(str(error))
        return 2
    except BUS_ERRORS as error:
        _say(f"the bus does not answer: {in_words(error)}")
        return 1
    sys.stdout.write(f"{_as_json(wish) if arguments.json else sentence}\n")
    return 0


async def present(settings: BusSettings) -> dict[str, Drain]:
    """The nodes that are drained.

    Raises:
        nats.errors.Error, OSError, TimeoutError: the bus did not answer.
    """
    async with OneShot(settings, role="scheduler") as bus:
        known = await bus.present(DRAINS)
    return {node: drain for node, drain in sorted(known.items()) if not drain.over}


async def write(settings: BusSettings, wish: Drain) -> tuple[Drain, str]:
    """Writes a wish, unless the node is as it asks for already; returns it as it stands, and what there is to say.

    Raises:
        DrainError: the fleet has no such node, or the wish cannot be written.
        nats.errors.Error, OSError, TimeoutError: the bus did not answer.
    """
    async with OneShot(settings, role="scheduler") as bus:
        known: Drain | None = await bus.get(DRAINS, wish.node)
        before = known if known is not None and not known.over else None
        if (against := objection(wish, await bus.present(INVENTORY), is_drained=before is not None)) is not None:
            raise DrainError(against)
        if before is None and wish.over:
            return wish, f"{wish.node} is not drained"
        # One that is told again keeps its time, which names it: it is the same wish, perhaps with another reason.
        if before is not None and not wish.over:
            wish = msgspec.structs.replace(wish, at_ns=before.at_ns)
        try:
            await bus.put(DRAINS, wish.node, wish)
        except NotFoundError:
            raise DrainError("the bus has no bucket drains yet: the central services make it") from None
    if wish.over:
        return wish, f"{wish.node} may be used again"
    return wish, f"{wish.node} is drained" + (" already" if before is not None else ": its ranks go where spares are")


def objection(wish: Drain, inventory: Mapping[str, object], *, is_drained: bool) -> str | None:
    """Why a wish is not written; None: it is.

    Parameters:
        inventory: the nodes of the fleet, by name.
        is_drained: whether the node is drained now; one that left the fleet can be undone.
    """
    try:
        decode(encode(wish), Drain)
    except WireError as error:
        return str(error)
    if wish.node not in inventory and not (wish.over and is_drained):
        return f"the fleet has no node {wish.node}"
    return None


def _list(drained: Mapping[str, Drain], *, as_json: bool) -> None:
    for drain in drained.values():
        sys.stdout.write(f"{_as_json(drain) if as_json else _line(drain)}\n")
    if not drained and not as_json:
        sys.stdout.write("no node is drained\n")


def _line(drain: Drain) -> str:
    since = datetime.fromtimestamp(drain.at_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return (
        f"{drain.node} is drained since {since}"
        + (f" by {drain.by}" if drain.by else "")
        + (f": {drain.reason}" if drain.reason else "")
    )


def _as_json(drain: Drain) -> str:
    return json.dumps(msgspec.to_builtins(drain))


def _who() -> str:
    """The person at this host, as far as it is known."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as containers have
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _say(sentence: str) -> None:
    sys.stderr.write(f"foliot drain: {sentence}\n")
