"""The figures of a run: by hour, by regime, by kind of upset, and against its goals."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from bench.clock_days.recoveries import MOMENTS
from bench.clock_days.upsets import HOUR_S, WINDOW_S
from bench.processes import rss_mb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bench.clock_days.judge import Judge, Judged
    from bench.clock_days.recoveries import Recovery

WINDOWS_PER_HOUR = round(HOUR_S / WINDOW_S)
_GROWN = 1.05
"""Memory that has grown by less from the first hours to the last does not grow: of hours, some have more upsets to tell
of."""
_FIRST_HOURS = 2


class Row(msgspec.Struct, kw_only=True):
    """An hour. Errors are of the values that hosts believe, against the reference, without their signs."""

    bench: str = "clock-days"
    hour: int
    windows: int
    values: int
    p50_ns: float | None
    p99_ns: float | None
    max_ns: float | None
    outside: int
    """Values outside of their statistical bound."""
    outside_hard: int
    off_ns: float | None
    """The greatest distance of the common time from TAI, or whatever it follows."""
    utc_ns: float | None
    """The greatest distance of UTC, made of it, from UTC."""
    jump_ns: float
    """The greatest change of the common time with new states."""
    load: float
    """Of all links, the mean."""
    rss_mb: float
    """Memory of the process at the hour's end."""
    cpu_s_per_window: float
    """Of model, chain and judgement."""
    chain_cpu_s_per_window: float
    """Of sync alone."""


class Regime(msgspec.Struct, kw_only=True):
    """The errors in a regime, over the whole run."""

    regime: str
    values: int
    p50_ns: float
    p99_ns: float
    max_ns: float


class KindOfUpset(msgspec.Struct, kw_only=True):
    """All upsets of a kind, against what docs/clock.md promises."""

    kind: str
    upsets: int
    promised_s: float | None
    """The most of any; null: nothing is promised."""
    own_s: float
    """The longest time without a valid state of the host that it befell, as the next."""
    others_s: float
    longer: int
    """Upsets after which some host was without a valid state for longer than promised."""
    wrong_s: float
    jump_ns: float


class Verdict(msgspec.Struct, kw_only=True):
    """A goal, and what was measured."""

    figure: str
    measured: float
    goal: float
    met: bool


class Errors:
    """All errors of a run. Its memory is taken at the start, so that growth is sync's."""

    def __init__(self, windows: int, hosts: int) -> None:
        self._errors_ns = np.full((windows, MOMENTS, hosts), np.nan, np.float32)
        self._regime = np.full((windows, hosts), -1, np.int8)
        self._names: list[str] = []

    def take(self, number: int, judged: Judged) -> None:
        """Takes a window's."""
        self._errors_ns[number] = judged.errors_ns
        for host, regime in enumerate(judged.regimes):
            if regime not in self._names:
                self._names.append(regime)
            self._regime[number, host] = self._names.index(regime)

    def between(self, first: int, last: int) -> NDArray[np.float32]:
        """Those of some windows, the last one not among them."""
        return _present(self._errors_ns[first:last])

    def regimes(self, windows: int) -> list[Regime]:
        """The errors of so many windows by regime."""
        found: list[Regime] = []
        for number, regime in sorted(enumerate(self._names), key=lambda each: each[1]):
            here = np.broadcast_to((self._regime == number)[:windows, None], self._errors_ns[:windows].shape)
            errors_ns = _present(self._errors_ns[:windows][here])
            if len(errors_ns):
                middle, high, most = percentiles(errors_ns)
                found.append(Regime(regime=regime, values=len(errors_ns), p50_ns=middle, p99_ns=high, max_ns=most))
        return found


class Hour:
    """An hour that runs."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._values, self._outside = judge.values, dict(judge.outside)
        self._off_ns: list[float] = []
        self._utc_ns: list[float] = []
        self._jump_ns = 0.0
        self._load = 0.0
        self.windows = 0
        self.cpu_s = self.chain_s = 0.0

    def take(self, judged: Judged, load: float) -> None:
        """Takes a window."""
        self.windows += 1
        self._load += load
        self._jump_ns = max(self._jump_ns, judged.jump_ns)
        self._off_ns.append(abs(judged.off_ns))
        self._utc_ns.append(abs(judged.utc_ns))

    def row(self, number: int, errors_ns: NDArray[np.float32]) -> Row:
        """The hour's row."""
        middle, high, most = percentiles(errors_ns) if len(errors_ns) else (None, None, None)
        outside = {kind: self._judge.outside[kind] - self._outside.get(kind, 0) for kind in ("statistical", "hard")}
        return Row(
            hour=number, windows=self.windows, values=self._judge.values - self._values,
            p50_ns=middle, p99_ns=high, max_ns=most, outside=outside["statistical"], outside_hard=outside["hard"],
            off_ns=_most(self._off_ns), utc_ns=_most(self._utc_ns), jump_ns=self._jump_ns,
            load=round(self._load / self.windows, 3), rss_mb=round(rss_mb(os.getpid()), 1),
            cpu_s_per_window=round(self.cpu_s / self.windows, 5),
            chain_cpu_s_per_window=round(self.chain_s / self.windows, 5),
        )  # fmt: skip


def kinds(recoveries: Sequence[Recovery]) -> list[KindOfUpset]:
    """The upsets by kind."""
    found: list[KindOfUpset] = []
    for kind in sorted({each.kind for each in recoveries}):
        mine = [each for each in recoveries if each.kind == kind]
        found.append(
            KindOfUpset(
                kind=kind,
                upsets=len(mine),
                promised_s=max((each.promised_s for each in mine if each.promised_s is not None), default=None),
                own_s=max(each.own_s for each in mine),
                others_s=max(each.others_s for each in mine),
                longer=sum(is_longer(each) for each in mine),
                wrong_s=max(each.wrong_s for each in mine),
                jump_ns=max(each.jump_ns for each in mine),
            )
        )
    return found


def is_longer(recovery: Recovery) -> bool:
    """Whether a host was without a valid state for longer than promised."""
    if recovery.promised_s is None:
        return False
    alone = recovery.host and not recovery.beside
    others_s = 0.0 if alone else recovery.promised_s
    return recovery.own_s > recovery.promised_s or recovery.others_s > others_s


def verdicts(judge: Judge, rows: Sequence[Row]) -> list[Verdict]:
    """The run against its goals."""
    upsets = judge.recoveries.found
    memory = [row.rss_mb for row in rows]
    first = memory[min(_FIRST_HOURS, len(memory)) - 1]
    last = float(np.median(memory[-max(1, len(memory) // 4) :]))
    return [
        _no_more(
            "values outside of their hard bound, where docs/clock.md permits none", judge.not_permitted["hard"], 0
        ),
        _no_more(
            "values outside of their statistical bound, where it permits none", judge.not_permitted["statistical"], 0
        ),
        _no_more(
            "upsets after which a host had no valid state for longer than it permits", sum(map(is_longer, upsets)), 0
        ),
        _no_more("windows in which UTC was further off than said", judge.utc_outside, 0),
        _no_more("memory in the last hours over that of the second", round(last / first, 3), _GROWN),
    ]


def percentiles(errors_ns: NDArray[np.float32]) -> tuple[float, float, float]:
    """The median, the 99th percentile and the greatest."""
    middle, high, most = np.percentile(errors_ns, (50, 99, 100)).tolist()
    return round(middle, 1), round(high, 1), round(most, 1)


def _no_more(figure: str, measured: float, goal: float) -> Verdict:
    return Verdict(figure=figure, measured=measured, goal=goal, met=measured <= goal)


def _present(errors_ns: NDArray[np.float32]) -> NDArray[np.float32]:
    return errors_ns[np.isfinite(errors_ns)]


def _most(values: Sequence[float]) -> float | None:
    known = [value for value in values if np.isfinite(value)]
    return max(known) if known else None
