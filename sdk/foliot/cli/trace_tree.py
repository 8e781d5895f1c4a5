"""A fault's trace as text: a headline, then a line per span, each below its parent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from foliot.cli.colours import BOLD, DIM, RED, paint
from foliot.text.events import told

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SHOWN = ("nic", "who", "path", "clock", "node", "peer", "rail", "via", "verb", "state", "status", "reason")
"""Attributes worth a place on the line, in this order; ``--all`` shows the rest."""
_PREFIX = "foliot."
SERVICE_COLOURS = (36, 33, 35, 32, 34, 96, 93, 95)
_NAMED = 2
"""Names in a line that tells several spans; more are counted."""
_QUIET_NS = 400_000_000
"""Spans with so long a pause between them are told apart: a fault and its end lie seconds apart."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The shown part of a span; the gateway's answer has more."""

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
    note: str = ""
    """A note for a person on how the trace was found. The gateway never sets it."""


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    branches: str
    spans: tuple[Span, ...]
    """One span, or several that differ only in whom they are about. None: the line is for a parent that has not
    arrived."""


def render(trace: Trace, *, colour: bool = False, everything: bool = False) -> Iterator[str]:
    """The lines of a trace: a headline, then one per span."""
    spans = sorted(trace.spans, key=lambda span: (span.start_ns, span.span_id))
    lines = list(_tree(spans, together=not everything))
    root = next((span for span in spans if not span.parent_id), spans[0])
    services = list(dict.fromkeys(span.service for span in spans))
    colours = {name: SERVICE_COLOURS[index % len(SERVICE_COLOURS)] for index, name in enumerate(services)}
    took_ns = max(span.end_ns for span in spans) - root.start_ns
    count = f"{len(spans)} span{'s' if len(spans) != 1 else ''}"
    headline = f"{_title(spans, root)} · {_ms(took_ns)} ms · {count} · {', '.join(services)}"
    yield paint(headline, BOLD, colour)
    yield paint(f"trace {trace.summary.get('trace_id', '')}", DIM, colour)
    process_width = max(len("service"), *(len(_process(span)) for span in spans))
    name_width = max(len(line.branches) + len(_name(line.spans)) for line in lines)
    yield paint(f"{'at ms':>11} {'took ms':>11}  {'service':<{process_width}}  span", DIM, colour)
    for line in lines:
        yield _row(line, root.start_ns, process_width, name_width, colours if colour else {}, everything=everything)


def _title(spans: list[Span], root: Span) -> str:
    """The fault in the words of its first event. Before that has come: the span that began it, and where."""
    judged = [span for span in spans if _PREFIX + "event_kind" in span.attributes]
    if not judged:
        who = _who([root], named=1)
        return f"{root.name}: {who}" if who else root.name
    kind, state = (str(judged[0].attributes.get(_PREFIX + name, "")) for name in ("event_kind", "state"))
    alike = [span for span in judged if _key(span) == _key(judged[0])]
    return told(kind, state, _who(alike, named=1))


def _row(
    line: _Line, zero_ns: int, process_width: int, name_width: int, colours: dict[str, int], *, everything: bool
) -> str:
    named = line.branches + _name(line.spans)
    if not line.spans:
        return paint(f"{'':>11} {'':>11}  {'?':<{process_width}}  {named}", DIM, bool(colours))
    span = line.spans[0]
    end_ns = max(each.end_ns for each in line.spans)
    times = f"{_ms(span.start_ns - zero_ns):>11} {_ms(end_ns - span.start_ns):>11}"
    process = paint(f"{_process(span):<{process_width}}", colours.get(span.service, 0), bool(colours))
    tail = f"  {_attributes(line.spans, everything=everything)}".rstrip()
    failed = f"  error: {span.message}".rstrip(": ") if span.status == "error" else ""
    text = f"{named:<{name_width}}{tail}" if tail else named
    return f"{times}  {process}  {text}{paint(failed, RED, bool(colours))}"


def _tree(spans: list[Span], *, together: bool) -> Iterator[_Line]:
    """Every span once, each under its parent, siblings by their start; whatever the parents say."""
    known = {span.span_id for span in spans}
    children: dict[str, list[Span]] = {}
    for span in spans:
        children.setdefault(span.parent_id, []).append(span)
    shown: set[str] = set()
    rows = {parent: _rows(siblings, children, together=together) for parent, siblings in children.items()}
    for span in spans:
        if not span.parent_id:
            yield from _below((span,), rows, shown, "")
        elif span.parent_id not in known and span.parent_id not in shown:
            shown.add(span.parent_id)
            yield _Line(branches="", spans=())
            orphans = rows[span.parent_id]
            for orphan in orphans:
                yield from _below(orphan, rows, shown, "", is_last=orphan is orphans[-1])
    for span in spans:  # what is left are loops, which no honest sender makes
        if span.span_id not in shown:
            yield from _below((span,), rows, shown, "")


def _rows(siblings: list[Span], children: dict[str, list[Span]], *, together: bool) -> list[tuple[Span, ...]]:
    """Siblings as rows. Those without children that differ only in whom they are about share a row."""
    rows: list[list[Span]] = []
    alike: dict[tuple[str, ...], list[Span]] = {}
    for span in siblings:
        row = alike.get(_key(span)) if together and span.span_id not in children else None
        if row is not None and span.start_ns - row[-1].end_ns <= _QUIET_NS:
            row.append(span)
            continue
        rows.append([span])
        if span.span_id not in children:
            alike[_key(span)] = rows[-1]
    return [tuple(row) for row in rows]


def _key(span: Span) -> tuple[str, ...]:
    """The values that spans in one row have in common."""
    said = (str(span.attributes.get(_PREFIX + name)) for name in _SHOWN if name != "who")
    return (span.name, _process(span), span.status, span.message, *said)


def _below(
    top: tuple[Span, ...], rows: dict[str, list[tuple[Span, ...]]], shown: set[str], indent: str,
    *, is_last: bool | None = None,
) -> Iterator[_Line]:  # fmt: skip
    """A row and all below it. `is_last`: whether it is the last of its siblings; None: it has no branch to hang on."""
    stack = [(top, indent, is_last)]
    while stack:
        spans, before, last = stack.pop()
        if spans[0].span_id in shown:
            continue
        shown.update(span.span_id for span in spans)
        branch = "" if last is None else "└─ " if last else "├─ "
        yield _Line(branches=before + branch, spans=spans)
        below = before + ("" if last is None else "   " if last else "│  ")
        nexts = rows.get(spans[0].span_id, [])
        stack.extend((each, below, each is nexts[-1]) for each in reversed(nexts))


def _attributes(spans: tuple[Span, ...], *, everything: bool) -> str:
    values = {key.removeprefix(_PREFIX): value for key, value in spans[0].attributes.items()}
    if len(spans) > 1 and "who" in values:
        values["who"] = _who(spans, named=_NAMED)
    keys = [key for key in _SHOWN if key in values]
    if everything:
        keys += sorted(values.keys() - set(keys))
    return " ".join(f"{key}={_text(values[key])}" for key in keys if values[key] not in ("", None))


def _who(spans: Iterable[Span], named: int) -> str:
    """The names that spans are about, each once; of many only the first."""
    attributes = [span.attributes for span in spans]
    about = [each.get(_PREFIX + "who") or each.get(_PREFIX + "nic") for each in attributes]
    names = list(dict.fromkeys(str(name) for name in about if name))
    more = f" and {len(names) - named} more" if len(names) > named else ""
    return ", ".join(names[:named]) + more


def _text(value: Any) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f'"{text}"' if " " in text else text


def _process(span: Span) -> str:
    """``node3/probe`` where the process says so, else the service."""
    return span.instance if span.instance.endswith(f"/{span.service}") else span.service


def _name(spans: tuple[Span, ...]) -> str:
    if not spans:
        return "a span that has not arrived"
    return spans[0].name + (f", {len(spans)} times" if len(spans) > 1 else "")


def _ms(duration_ns: int) -> str:
    return f"{duration_ns / 1e6:.3f}"
