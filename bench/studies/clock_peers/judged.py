"""Compares each tool's statements with the truth: all hosts have one clock, and the injected errors are exact."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from bench.studies.clock_peers.chrony import Estimate
    from bench.studies.clock_peers.ours import Told
    from bench.studies.clock_peers.ptp import Offset
    from foliot_lab.faults.skewed_clock import Skew
    from foliot_schemas import ClockState

WINDOW_S = 2.0
"""Foliot's window, used for all tools. Statements within one window rest on much the same packets, so only windows
count as independent."""
_AGES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Ages of the newest state, as shares of its time."""
_PROMISING = frozenset({"synchronised", "holdover"})


class Span(NamedTuple):
    """The judged time, by the two clocks of this machine."""

    begin_s: float
    """CLOCK_REALTIME."""
    end_s: float
    begin_raw_ns: int
    """CLOCK_MONOTONIC_RAW."""
    end_raw_ns: int


class Judged(NamedTuple):
    """A tool's statements within a span. All columns but `windows` have one length; those of bounds may be empty."""

    windows: int
    """Windows with any statement."""
    silent: int
    """Windows in which some host had no statement that it may believe."""
    error_ns: NDArray[np.float64]
    bound_ns: NDArray[np.float64]
    hard_bound_ns: NDArray[np.float64]
    nearest: tuple[float, ...] = ()
    """For each window, the worst value's error as a share of its bound. Empty if there is no bound."""


def windows(span: Span) -> int:
    """The number of independent windows in a span."""
    return round((span.end_s - span.begin_s) / WINDOW_S)


def offsets(said: Mapping[str, Sequence[Estimate | Offset]], span: Span) -> Judged:
    """Judges a tool that measures its offset to the server, by host."""
    number, nothing = windows(span), np.empty(0)
    heard = np.zeros((len(said), max(number, 1)), dtype=bool)
    errors: list[float] = []
    for row, host in enumerate(said):
        for each in said[host]:
            if span.begin_s <= each.at_s < span.end_s:
                heard[row, min(int((each.at_s - span.begin_s) / WINDOW_S), number - 1)] = True
                errors.append(each.error_ns)
    return Judged(int(heard.any(axis=0).sum()), int((~heard.all(axis=0)).sum()), np.array(errors), nothing, nothing)


def foliot(told: Sequence[Told], skews: Mapping[str, Skew], reference: str, span: Span) -> Judged:
    """Judges the value that each host uses now, from the arrival of a window's states to that of the next."""
    by_window: dict[int, dict[str, ClockState]] = {}
    came_ns: dict[int, int] = {}
    for raw_ns, state in told:
        by_window.setdefault(state.window, {})[state.clock] = state
        came_ns[state.window] = max(raw_ns, came_ns.get(state.window, 0))
    rows: list[tuple[float, float, float]] = []
    judged, silent, nearest = 0, 0, []
    for window, after in itertools.pairwise(sorted(by_window)):
        begin_ns, end_ns = came_ns[window], came_ns[after]
        if begin_ns < span.begin_raw_ns or end_ns > span.end_raw_ns:
            continue
        moments = [begin_ns + round(age * (end_ns - begin_ns)) for age in _AGES]
        found = [_claims(by_window[window], skews, reference, raw_ns) for raw_ns in moments]
        judged += any(found)
        silent += any(len(claims) < len(skews) - 1 for claims in found)
        said = [*itertools.chain.from_iterable(found)]
        rows += said
        if said:
            nearest.append(max(abs(error_ns) / bound_ns for error_ns, bound_ns, _ in said))
    columns = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    error_ns, bound_ns, hard_bound_ns = columns
    return Judged(judged, silent, error_ns, bound_ns, hard_bound_ns, tuple(nearest))


def _claims(
    states: Mapping[str, ClockState], skews: Mapping[str, Skew], reference: str, raw_ns: int
) -> list[tuple[float, float, float]]:
    """For every host at a moment: its time less the reference's, and the sums of their stated greatest errors."""
    own = _read(states.get(reference), skews[reference], raw_ns)
    others = [_read(states.get(host), skews[host], raw_ns) for host in skews if host != reference]
    if own is None:
        return []
    return [
        (float(each[0] - own[0]), float(each[1] + own[1]), float(each[2] + own[2]))
        for each in others
        if each is not None
    ]


def _read(state: ClockState | None, skew: Skew, raw_ns: int) -> tuple[int, int, int] | None:
    local_ns = raw_ns + skew.offset_ns(raw_ns)
    if state is None or state.status not in _PROMISING or local_ns > state.void_after_ns:
        return None
    return state.reference_ns(local_ns), state.bound_at_ns(local_ns), state.hard_bound_at_ns(local_ns)
