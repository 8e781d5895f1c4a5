"""The report of a replay: the error of each tool in each window, and their summaries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np

from bench.clock_replay.chain import Chain, said_ns
from bench.clock_replay.recording import BadRecordingError, windows
from bench.clock_replay.tools import ChronyModel, GuidedMinimumFilter, MinimumFilter
from bench.clock_sim import Tool as Variant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.clock_replay.recording import Recording, Window
    from bench.clock_replay.tools import Said
    from foliot_schemas.observation import StampKind

MINIMUM, CHRONY = "minimum filter", "chrony (model)"
MIDDLE, NOW = "middle", "now"


FOLIOT = Variant().name


class Tool(Protocol):
    """A tool that makes an offset of windows of stamps."""

    def window(self, window: Window) -> Said:
        """Its words after a window."""
        ...


class Row(msgspec.Struct, kw_only=True):
    """A tool in a window."""

    bench: str = "clock-replay"
    file: str
    tool: str
    window: int
    of: str
    """`middle`: of the window; `now`: the middle of the time for which the value is the newest one, over a window
    later."""
    error_ns: float | None
    """With its sign; null where nobody knows the truth, or the tool says nothing that anybody may believe."""
    bound_ns: float | None
    """Statistical; null where the tool states none, and of the middle: what is said promises nothing of the time
    before."""
    said: bool
    """Whether the tool said anything that somebody may believe."""


class Summary(msgspec.Struct, kw_only=True):
    """A tool in a recording."""

    file: str
    tool: str
    of: str
    truth: str | None
    """Where it comes from; null: nobody knows it."""
    windows: int
    silent: int
    """In which it said nothing that anybody may believe."""
    p50_ns: float | None
    """Of the error without its sign, as the next two."""
    p99_ns: float | None
    max_ns: float | None
    bias_ns: float | None
    deviation_ns: float | None
    median_bound_ns: float | None
    within_bound: float | None


def replay(
    recording: Recording, window_ns: int, kind: StampKind, settle: int, variants: Sequence[Variant] = (Variant(),)
) -> list[Row]:
    """All tools on a recording, from the window after those in which they may settle.

    Parameters:
        recording: the stamps.
        window_ns: length of a window.
        kind: of stamps.
        settle: windows before those that are judged.
        variants: of Foliot.

    Raises:
        BadRecordingError: there is no whole window, or none left to judge.
    """
    every = windows(recording, window_ns)
    if every[-1].number - every[0].number < settle:
        raise BadRecordingError(f"{recording.name} has no window after the {settle} in which tools may settle")
    origin_ns, truth = every[0].since_ns, recording.truth
    course = truth.at if truth is not None and len(truth.at_ns) > 1 else None
    minimum: Tool = MinimumFilter() if course is None else GuidedMinimumFilter(course)
    foliot = [(each, Chain(origin_ns, window_ns, kind, each.settings)) for each in variants]
    rows: list[Row] = []
    others: dict[str, Tool] = {MINIMUM: minimum, CHRONY: ChronyModel(origin_ns, course)}
    for window in every:
        said: dict[str, Said] = {}
        for variant, chain in foliot:
            with variant.in_force():
                said[variant.name] = chain.window(window)
        said |= {name: tool.window(window) for name, tool in others.items()}
        if window.number >= every[0].number + settle:
            for name, each in said.items():
                rows += _rows(recording, name, window, each, window_ns)
    return rows


def _rows(recording: Recording, tool: str, window: Window, said: Said, window_ns: int) -> list[Row]:
    middle_ns = (window.since_ns + window.until_ns) // 2
    moments = {MIDDLE: middle_ns, NOW: said_ns(window.until_ns, window_ns) + window_ns // 2}
    found: list[Row] = []
    for of, at_ns in moments.items():
        claim, error_ns = said.claim(at_ns), None
        if claim is not None and recording.truth is not None:
            error_ns = round(claim[0] - float(recording.truth.at(np.array([at_ns]))[0]), 1)
        bound_ns = None if claim is None or of == MIDDLE else claim[1]
        found.append(
            Row(
                file=recording.name,
                tool=tool,
                window=window.number,
                of=of,
                error_ns=error_ns,
                bound_ns=bound_ns,
                said=claim is not None,
            )
        )
    return found


def summaries(recording: Recording, rows: Sequence[Row]) -> list[Summary]:
    """The summaries of a recording's rows."""
    found: list[Summary] = []
    for tool, of in dict.fromkeys((row.tool, row.of) for row in rows):
        mine = [row for row in rows if (row.tool, row.of) == (tool, of)]
        found.append(_summary(recording, tool, of, mine))
    return found


def _summary(recording: Recording, tool: str, of: str, rows: Sequence[Row]) -> Summary:
    judged = [row for row in rows if row.error_ns is not None]
    error = np.array([row.error_ns for row in judged], np.float64)
    size = np.abs(error)
    bounded = [(abs(row.error_ns or 0.0), row.bound_ns) for row in judged if row.bound_ns is not None]
    bounds = [row.bound_ns for row in rows if row.bound_ns is not None]
    told = bool(judged)
    return Summary(
        file=recording.name, tool=tool, of=of, truth=None if recording.truth is None else recording.truth.origin,
        windows=len(rows), silent=sum(not row.said for row in rows),
        p50_ns=_shown(np.median(size)) if told else None, p99_ns=_shown(np.percentile(size, 99)) if told else None,
        max_ns=_shown(size.max()) if told else None, bias_ns=_shown(error.mean()) if told else None,
        deviation_ns=_shown(error.std()) if told else None,
        median_bound_ns=_shown(np.median(bounds)) if bounds else None,
        within_bound=float(np.mean([wrong <= bound for wrong, bound in bounded])) if bounded else None,
    )  # fmt: skip


def _shown(value: float | np.floating) -> float:
    return round(float(value), 1)
