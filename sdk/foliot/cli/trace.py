"""``foliot trace``: one fault, from the kernel's link message to the confirmation on the wire, as a tree with times."""

from __future__ import annotations

import argparse  # noqa: TC003 - argparse's private type is part of the signature
import http.client
import os
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

import msgspec

from foliot.cli.paint import BOLD, DIM, RED, paint, wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_GATEWAY = "http://127.0.0.1:8470"
_TRACE_ID = re.compile(r"[0-9a-fA-F]{32}")
_TIMEOUT_S = 5.0
_QUIET_NS = 1_200_000_000
"""Services send their spans every 0.5 s; after two such intervals without any, none is under way."""
_LOOK_S = 0.25
_SHOWN = ("nic", "path", "clock", "node", "peer", "rail", "via", "verb", "state", "status", "reason")
"""Attributes worth a place on the line, in this order; ``--all`` shows the rest."""
_PREFIX = "foliot."
_SERVICE_COLOURS = (36, 33, 35, 32, 34, 96, 93, 95)


class TraceError(Exception):
    """Why there is no trace to show, in a sentence."""


class NotYetError(TraceError):
    """What was asked for is not there, but may be about to arrive."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of a span; the gateway's answer has more."""

    span_id: str
    parent_id: str
    name: str
    service: str
    instance: str = ""
    start_ns: int
    end_ns: int
    status: str = "unset"
    message: str = ""
    attributes: dict[str, Any] = {}


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway's answer."""

    summary: dict[str, Any]
    quiet_ns: int
    spans: tuple[Span, ...]


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    branches: str
    span: Span | None
    """None: a parent that has not arrived."""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "trace",
        help="show what happened in a fault, as a tree with times",
        description="Shows the trace of the fault that an event belongs to.",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("id", nargs="?", help="id of an event, or of a trace (32 hex digits)")
    what.add_argument("--last", action="store_true", help="the trace of the newest event")
    parser.add_argument(
        "--gateway",
        default=os.environ.get("FOLIOT_GATEWAY", _GATEWAY),
        help="address of the gateway (default: $FOLIOT_GATEWAY, else " + _GATEWAY + ")",
    )
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
        trace = settled(lambda: fetch(arguments.gateway, arguments.id, last=arguments.last), arguments.wait)
    except TraceError as error:
        sys.stderr.write(f"foliot trace: {error}\n")
        return 1
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
    """The trace, once no more spans arrive, or as it is after `wait_s`.

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


# -- asking ---------------------------------------------------------------------------------------------------------------


def fetch(gateway: str, asked: str | None, *, last: bool = False) -> Trace:
    """The trace of an event or trace id, or of the newest event, as it is now.

    Raises:
        NotYetError: it is not there, perhaps not yet.
        TraceError: there is nothing to wait for.
    """
    base = gateway.rstrip("/")
    if not base.startswith(("http://", "https://")):
        raise TraceError(f"the gateway's address begins with http:// or https://, got {gateway!r}")
    if last:
        recent = msgspec.json.decode(_get(base, "/api/v1/events?limit=1"), type=list[dict[str, Any]])
        if not recent:
            raise NotYetError(f"the gateway at {base} knows of no event yet")
        asked = str(recent[0]["id"])
    assert asked is not None
    if _TRACE_ID.fullmatch(asked):
        address = f"/api/v1/traces/{asked.lower()}"
    else:
        address = f"/api/v1/events/trace?event={urllib.parse.quote(asked, safe='')}"
    try:
        return msgspec.json.decode(_get(base, address), type=Trace)
    except msgspec.MsgspecError as error:
        raise TraceError(f"what answers at {base} is no gateway, or another version's: {error}") from error


def _get(base: str, address: str) -> bytes:
    # No proxy: the gateway is a neighbour, and a proxy's error would be taken for its answer.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(base + address, timeout=_TIMEOUT_S) as answer:
            body: bytes = answer.read()
            return body
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(base, error.code, error.read()) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        cause = getattr(error, "reason", error)
        reason = getattr(cause, "strerror", None) or cause
        raise TraceError(
            f"the gateway is not reachable at {base} ({str(reason).lower()}); "
            "is it running? --gateway or FOLIOT_GATEWAY says where it is"
        ) from None


def _refusal(base: str, status: int, body: bytes) -> TraceError:
    try:
        problem = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError:
        problem = {}
    detail = str(problem.get("detail") or f"{base} answered with HTTP status {status}")
    sentence = detail[0].lower() + detail[1:].rstrip(".")
    may_come = problem.get("reason") in {"no-such-event", "no-such-trace", "no-spans"}
    return NotYetError(sentence) if may_come else TraceError(sentence)


# -- showing --------------------------------------------------------------------------------------------------------------


def render(trace: Trace, *, colour: bool = False, everything: bool = False) -> Iterator[str]:
    """The lines of a trace: a headline, then one per span."""
    spans = sorted(trace.spans, key=_by_start)
    lines = list(_tree(spans))
    root = next((span for span in spans if not span.parent_id), spans[0])
    services = list(dict.fromkeys(span.service for span in spans))
    colours = {name: _SERVICE_COLOURS[index % len(_SERVICE_COLOURS)] for index, name in enumerate(services)}
    took_ns = max(span.end_ns for span in spans) - root.start_ns
    count = f"{len(spans)} span{'s' if len(spans) != 1 else ''}"
    headline = f"{root.name} · {_ms(took_ns)} ms · {count} · {', '.join(services)}"
    yield paint(headline, BOLD, colour)
    yield paint(f"trace {trace.summary.get('trace_id', '')}", DIM, colour)
    process_width = max(len("service"), *(len(_process(span)) for span in spans))
    name_width = max(len(line.branches) + len(_name(line.span)) for line in lines)
    yield paint(f"{'at ms':>11} {'took ms':>11}  {'service':<{process_width}}  span", DIM, colour)
    for line in lines:
        yield _row(line, root.start_ns, process_width, name_width, colours if colour else {}, everything=everything)


def _row(
    line: _Line, zero_ns: int, process_width: int, name_width: int, colours: dict[str, int], *, everything: bool
) -> str:
    named = line.branches + _name(line.span)
    span = line.span
    if span is None:
        return paint(f"{'':>11} {'':>11}  {'?':<{process_width}}  {named}", DIM, bool(colours))
    times = f"{_ms(span.start_ns - zero_ns):>11} {_ms(span.end_ns - span.start_ns):>11}"
    process = paint(f"{_process(span):<{process_width}}", colours.get(span.service, 0), bool(colours))
    tail = f"  {_attributes(span, everything=everything)}".rstrip()
    failed = f"  error: {span.message}".rstrip(": ") if span.status == "error" else ""
    text = f"{named:<{name_width}}{tail}" if tail else named
    return f"{times}  {process}  {text}{paint(failed, RED, bool(colours))}"


def _tree(spans: list[Span]) -> Iterator[_Line]:
    """Every span once, each under its parent, siblings by their start; whatever the parents say."""
    known = {span.span_id for span in spans}
    children: dict[str, list[Span]] = {}
    for span in spans:
        children.setdefault(span.parent_id, []).append(span)
    shown: set[str] = set()
    for span in spans:
        if not span.parent_id:
            yield from _below(span, children, shown, "")
        elif span.parent_id not in known and span.parent_id not in shown:
            shown.add(span.parent_id)
            yield _Line(branches="", span=None)
            orphans = children[span.parent_id]
            for orphan in orphans:
                yield from _below(orphan, children, shown, "", is_last=orphan is orphans[-1])
    for span in spans:  # what is left are loops, which no honest sender makes
        if span.span_id not in shown:
            yield from _below(span, children, shown, "")


def _below(
    top: Span, children: dict[str, list[Span]], shown: set[str], indent: str, *, is_last: bool | None = None
) -> Iterator[_Line]:
    """A span and all below it; `is_last` of its siblings, None: it has no branch to hang on."""
    stack = [(top, indent, is_last)]
    while stack:
        span, before, last = stack.pop()
        if span.span_id in shown:
            continue
        shown.add(span.span_id)
        branch = "" if last is None else "└─ " if last else "├─ "
        yield _Line(branches=before + branch, span=span)
        below = before + ("" if last is None else "   " if last else "│  ")
        nexts = children.get(span.span_id, [])
        stack.extend((each, below, each is nexts[-1]) for each in reversed(nexts))


def _attributes(span: Span, *, everything: bool) -> str:
    values = {key.removeprefix(_PREFIX): value for key, value in span.attributes.items()}
    keys = [key for key in _SHOWN if key in values]
    if everything:
        keys += sorted(values.keys() - set(keys))
    return " ".join(f"{key}={_text(values[key])}" for key in keys if values[key] not in ("", None))


def _text(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f'"{text}"' if " " in text else text


def _process(span: Span) -> str:
    """``node3/probe`` where the process says so, else the service."""
    return span.instance if span.instance.endswith(f"/{span.service}") else span.service


def _name(span: Span | None) -> str:
    return "a span that has not arrived" if span is None else span.name


def _ms(duration_ns: int) -> str:
    return f"{duration_ns / 1e6:.3f}"


def _by_start(span: Span) -> tuple[int, str]:
    return span.start_ns, span.span_id
