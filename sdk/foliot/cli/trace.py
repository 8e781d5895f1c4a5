"""``foliot trace``: one fault, from the kernel's link message to the confirmation on the wire, as a tree with times."""

from __future__ import annotations

import argparse  # noqa: TC003 - argparse's private type is part of the signature
import re
import shlex
import sys
import time
import urllib.parse
from typing import TYPE_CHECKING, Any

import msgspec

from foliot.cli import gateway
from foliot.cli.colours import wanted
from foliot.cli.gateway import GatewayError
from foliot.cli.trace_tree import Trace, render
from foliot.runtime.extensions import extend
from foliot.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

_TRACE_ID = re.compile(r"[0-9a-fA-F]{32}")
_QUIET_NS = 1_200_000_000
"""Services send their spans every 0.5 s; after two such intervals without any, none is under way."""
_LOOK_S = 0.25
_EVENTS = 10_000
"""The newest events that are searched for one about a name: all that a gateway gives."""


class TraceError(Exception):
    """No trace can be shown; the message says why."""


class NotYetError(TraceError):
    """The trace asked for is not there yet, and may be about to arrive."""


class _NoEventError(NotYetError):
    """There is no event of this id."""


_MAY_COME = {"no-such-event": _NoEventError, "no-such-trace": NotYetError, "no-spans": NotYetError}
"""What is not there yet, by the gateway's word for it."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "trace",
        help="show what happened in a fault, as a tree with times",
        description="Shows the trace of the fault that an event belongs to.",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "id", nargs="?",
        help="id of an event, or of a trace (32 hex digits); or a NIC, path, node or clock: the newest fault about it, "
        "else the newest about a path that begins or ends there",
    )  # fmt: skip
    what.add_argument("--last", action="store_true", help="the trace of the newest event")
    gateway.add_option(parser)
    parser.add_argument(
        "--wait",
        type=float,
        default=3.0,
        metavar="SECONDS",
        help="how long to wait until no more spans arrive (default: %(default)s)",
    )
    parser.add_argument("--all", action="store_true", help="show all attributes of each span")
    parser.set_defaults(func=_trace)


def _trace(arguments: argparse.Namespace) -> int:
    try:
        extend("cli")
        trace = settled(lambda: fetch(arguments.gateway, arguments.id, last=arguments.last), arguments.wait)
    except (SettingsError, TraceError, GatewayError) as error:
        sys.stderr.write(f"foliot trace: {error}\n")
        return 1
    if trace.note:
        sys.stderr.write(f"foliot trace: {trace.note}\n")
    colour = wanted()
    for line in render(trace, colour=colour, everything=arguments.all):
        print(line)
    return 0


def settled(
    look: Callable[[], Trace],
    wait_s: float,
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Trace:
    """The trace once no more spans arrive, or as it is after `wait_s`.

    Raises:
        TraceError: there is none, also after `wait_s`.
    """
    deadline_s = now_s() + wait_s
    while True:
        late = now_s() >= deadline_s
        try:
            trace = look()
            if late or trace.quiet_ns >= _QUIET_NS:
                return trace
        except NotYetError:
            if late:
                raise
        sleep(_LOOK_S)


# -- asking ------------------------------------------------------------------------------------------------------------


def fetch(at: str, asked: str | None, *, last: bool = False) -> Trace:
    """The trace of an event or trace id, of the newest event about a name, or of the newest event, as it is now.

    Parameters:
        at: address of the gateway.

    Raises:
        NotYetError: it is not there, perhaps not yet.
        TraceError, GatewayError: there is nothing to wait for.
    """
    base = gateway.base_of(at)
    if last:
        recent = msgspec.json.decode(_get(base, "/api/v1/events?limit=1"), type=list[dict[str, Any]])
        if not recent:
            raise NotYetError(f"the gateway at {base} knows of no event yet")
        asked = str(recent[0]["id"])
    assert asked is not None
    if _TRACE_ID.fullmatch(asked):
        return _decoded(base, f"/api/v1/traces/{asked.lower()}")
    try:
        return _of_event(base, asked)
    except _NoEventError as error:
        event, note = _newest_about(base, asked)
        if not event:
            raise NotYetError(f"{error}, and none about a NIC, path, node or clock of this name; see --last") from None
        return msgspec.structs.replace(_of_event(base, event), note=note)


def _of_event(base: str, event: str) -> Trace:
    return _decoded(base, f"/api/v1/events/trace?event={urllib.parse.quote(event, safe='')}")


def _decoded(base: str, address: str) -> Trace:
    try:
        return msgspec.json.decode(_get(base, address), type=Trace)
    except msgspec.MsgspecError as error:
        raise TraceError(gateway.not_understood(base, error)) from error


def _newest_about(base: str, name: str) -> tuple[str, str]:
    """Finds the newest event of a fault of this very NIC, path, node or clock; else one of a path that touches it.

    A path that fell silent has two ends, and mostly only one is to blame.

    Returns:
        The event's id, and a note on the choice for a person; both empty: there is none.
    """
    events = msgspec.json.decode(_get(base, f"/api/v1/events?limit={_EVENTS}"), type=list[dict[str, Any]])
    about = [event for event in events if event.get("fault") and name in _names(str(event["who"]))]
    own = next((event for event in about if _is_own(str(event["who"]), name)), None)
    if own is None:
        if not about:
            return "", ""
        event, path = about[0]["id"], about[0]["who"]
        return str(event), f"no event is about {name} itself; this fault is of {path}, which begins or ends there"
    newest = about[0]
    if newest["fault"] == own["fault"] or _is_own(str(newest["who"]), name):
        return str(own["id"]), ""
    other = f"foliot trace {shlex.quote(str(newest['id']))}"
    return str(own["id"]), f"newer than this fault is one of {newest['who']}, which begins or ends there: {other}"


def _is_own(who: str, name: str) -> bool:
    """Whether an event is about the name itself, and not about a path that begins or ends there."""
    return who == name or ">" not in who


def _names(who: str) -> set[str]:
    """All names that the subject of an event is known by: a path has two NICs, and a NIC or process has a node."""
    nics = who.partition("#")[0].split(">")
    nodes = (nic.partition("/")[0] if "/" in nic else nic.rpartition(".")[0] for nic in nics)
    return {who, *nics, *nodes} - {""}


def _get(base: str, address: str) -> bytes:
    try:
        return gateway.get(base, address)
    except GatewayError as error:
        if (kind := _MAY_COME.get(error.reason)) is not None:
            raise kind(str(error)) from None
        raise
