"""What the rows come to: per verdict and per policy, and whether the goals are met. Pure."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from bench.contention.draw import CURED_S, LOOKALIKES, NOTHING
from bench.figures import least, median

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from bench.contention.rows import Row

_RIGHT = 0.95
_COLLISIONS, _OTHERS = 40, 60
_LOOKALIKE_VERDICTS = ("own-nic", "incast", "slow-receiver", "reduced-rate", NOTHING)
_MEDIAN_S, _P99_S = 2.0, 5.0
_MOST_MOVES = 2
"""For each collision."""
_CURED, _CURED_SILENT = 0.95, 0.8
_BEATEN = ("hash", "rehash", "best-of-two", "planned")
"""Policies than which Foliot is to be better. Spraying stands beside them: it needs other switches."""
_KEPT = 0.98
"""Of what it has alone: what the job keeps that matters most."""


class Of(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one expected verdict under one policy, those that count."""

    policy: str
    expected: str
    n: int
    right: int
    detected_p50_s: float | None
    """None: too many were missed, or nothing was to be found; likewise of the next."""
    detected_p99_s: float | None
    missed: int
    """Trials in which what was to be said was not, or not of the right place."""
    false_events: int
    false_moves: int


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What jobs got in the rows of one case under one policy, those that count: medians over the trials."""

    workload: str
    policy: str
    n: int
    slowest_share: float | None
    least_slowest_share: float | None
    end_share: float | None
    share_of_solo: float | None
    step_ms: float | None
    step_over_alone: float | None
    moves: float | None


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """One goal, and what there was."""

    number: int
    what: str
    n: int
    """Rows that it is about."""
    wanted: str
    was: float | None
    """None: too many were missed, or there is no such row."""
    met: bool | None
    """None: there is no such row."""
    worst: str = ""
    """Of the row that is farthest from it."""


class _Bound(NamedTuple):
    """What a figure has to be."""

    sign: str
    value: float

    def __str__(self) -> str:
        return f"{self.sign} {self.value:g}"

    def holds(self, was: float | None) -> bool:
        """Whether a figure is so; one that is endless is not."""
        if was is None:
            return False
        return {"<=": was <= self.value, ">=": was >= self.value, ">": was > self.value, "<": was < self.value}[
            self.sign
        ]


def counted(rows: Iterable[Row]) -> list[Row]:
    """The rows that count for goals."""
    return [row for row in rows if not row.left_out]


def left_out(rows: Iterable[Row]) -> dict[str, int]:
    """How many do not, by the reason."""
    return dict(Counter(row.left_out for row in rows if row.left_out))


def by_verdict(rows: Iterable[Row]) -> list[Of]:
    """The summary of each expected verdict."""
    groups = _groups(counted(rows), lambda row: (row.policy, row.expected))
    return [_of(some) for some in groups]


def by_policy(rows: Iterable[Row]) -> list[Share]:
    """The summary of each case and policy."""
    return [_share(some) for some in _groups(counted(rows), lambda row: (row.workload, row.policy))]


def goals(rows: Sequence[Row]) -> list[Goal]:
    """Every goal, also those of which there is no row."""
    ours = [row for row in counted(rows) if row.policy == "foliot"]
    heard = [row for row in ours if row.icmp]
    return [*_found(heard), *_cured(heard), *_beside_others(counted(rows)), *_hard(ours)]


def _found(rows: Sequence[Row]) -> list[Goal]:
    """Goal 1: what is there is said, and nothing else."""
    collisions = [row for row in rows if row.workload == "collision"]
    others = [row for row in rows if row.workload in LOOKALIKES]
    clean = [row for row in others if row.expected == NOTHING]
    times = [row for row in (*collisions, *others) if row.expected != NOTHING]
    delays = [row.detected_s for row in times]
    slowest = max(times, key=lambda row: _endless(row.detected_s), default=None)
    late = "" if slowest is None else _told(slowest, "detected_s")
    return [
        _goal(1, "collisions", collisions, len(collisions), _Bound(">=", _COLLISIONS)),
        _goal(1, "clean or lookalike", others, len(others), _Bound(">=", _OTHERS)),
        _right("collisions: verdict and link right", collisions),
        *(
            _right(f"{expected}: right", [row for row in others if row.expected == expected])
            for expected in _LOOKALIKE_VERDICTS
        ),
        _goal(1, "found: median, s", times, percentile(delays, 0.5), _Bound("<=", _MEDIAN_S)),
        _goal(1, "found: p99, s", times, percentile(delays, 0.99), _Bound("<=", _P99_S), worst=late),
        _goal(1, "alarms where nothing is to be said", clean, _alarms(clean), _Bound("<=", 0)),
        _goal(1, "moves where none can help", others, sum(row.moves for row in others), _Bound("<=", 0)),
    ]


def _cured(rows: Sequence[Row]) -> list[Goal]:
    """Goal 2: collisions are cured, by few moves, and stay so."""
    collisions = [row for row in rows if row.workload == "collision"]
    return [
        _goal(
            2,
            "collisions cured",
            collisions,
            _share_of(collisions, is_cured),
            _Bound(">=", _CURED),
            worst=_worst(collisions),
        )
    ]


def _beside_others(rows: Sequence[Row]) -> list[Goal]:
    """Goal 3: two all-to-all and two rings do better than by other policies, each in the same trials."""
    of = {
        policy: {row.seed: row for row in rows if row.workload == "jobs" and row.policy == policy and row.icmp}
        for policy in ("foliot", *_BEATEN)
    }
    ours, found = of.pop("foliot"), []
    for policy, theirs in of.items():
        pairs = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
        flows = _ratio((one.slowest_share, other.slowest_share) for one, other in pairs)
        steps = _ratio((one.step_over_alone, other.step_over_alone) for one, other in pairs)
        some = [one for one, _ in pairs]
        found += [
            _goal(3, f"slowest flow, over that of {policy}", some, flows, _Bound(">", 1)),
            _goal(3, f"step time, over that of {policy}", some, steps, _Bound("<", 1)),
        ]
    return found


def _hard(rows: Sequence[Row]) -> list[Goal]:
    """Goal 4: without routers that answer, with a job that matters more, with a link that is lost."""
    silent = [row for row in rows if row.workload == "collision" and not row.icmp]
    wrong = sum(row.named_link_right is False for row in rows if not row.icmp)
    first = [row for row in rows if row.workload == "priority"]
    kept = min((row.priority_share or 0.0 for row in first), default=None)
    lost = [row for row in rows if row.workload == "link-lost"]
    return [
        _goal(4, "silent routers: collisions cured", silent, _share_of(silent, is_cured), _Bound(">=", _CURED_SILENT)),
        _goal(4, "silent routers: wrong links named", [row for row in rows if not row.icmp], wrong, _Bound("<=", 0)),
        _goal(4, "the job that matters most, of alone: least", first, kept, _Bound(">=", _KEPT)),
        _goal(4, "a link lost meanwhile: all as promised", lost, _share_of(lost, _is_right), _Bound(">=", 1)),
    ]


def is_cured(row: Row) -> bool:
    """Whether a collision was cured in time, by few moves, and nothing was moved after."""
    few = row.moves <= _MOST_MOVES * max(row.collisions, 1)
    return row.cure_s is not None and row.cure_s <= CURED_S and few and row.moves_after == 0


def percentile(values: Iterable[float | None], share: float) -> float | None:
    """Of all values, of which None is endless; None: that is endless, or there is no value."""
    known = sorted(map(_endless, values))
    if not known:
        return None
    found = known[min(len(known) - 1, int(len(known) * share))]
    return None if math.isinf(found) else round(found, 3)


def _is_right(row: Row) -> bool:
    return row.right


def _right(what: str, rows: Sequence[Row]) -> Goal:
    wrong = next((_told(row, "verdict") for row in rows if not row.right), "")
    return _goal(1, what, rows, _share_of(rows, _is_right), _Bound(">=", _RIGHT), worst=wrong)


def _alarms(rows: Sequence[Row]) -> int:
    return sum(max(row.false_events, row.unexplained) for row in rows)


def _worst(rows: Sequence[Row]) -> str:
    """The collision that is farthest from being cured, in words."""
    if not rows:
        return ""
    worst = max(rows, key=lambda row: (not is_cured(row), _endless(row.cure_s), row.moves_after or 0, row.moves))
    return _told(worst, "cure_s", "end_share", "moves", "moves_after")


def _told(row: Row, *names: str) -> str:
    return f"{row.workload} seed {row.seed}: " + ", ".join(f"{name} {getattr(row, name)}" for name in names)


def _goal(number: int, what: str, rows: Sequence[Row], was: float | None, wanted: _Bound, *, worst: str = "") -> Goal:
    return Goal(
        number=number, what=what, n=len(rows), wanted=str(wanted), was=None if was is None else round(was, 3),
        met=wanted.holds(was) if rows else None, worst=worst,
    )  # fmt: skip


def _of(rows: Sequence[Row]) -> Of:
    first = rows[0]
    is_to_be_found = first.expected not in {NOTHING, ""}
    delays = [row.detected_s for row in rows] if is_to_be_found else []
    return Of(
        policy=first.policy, expected=first.expected, n=len(rows), right=sum(row.right for row in rows),
        detected_p50_s=percentile(delays, 0.5), detected_p99_s=percentile(delays, 0.99), missed=delays.count(None),
        false_events=sum(row.false_events for row in rows), false_moves=sum(row.false_moves for row in rows),
    )  # fmt: skip


def _share(rows: Sequence[Row]) -> Share:
    return Share(
        workload=rows[0].workload, policy=rows[0].policy, n=len(rows),
        slowest_share=median(row.slowest_share for row in rows),
        least_slowest_share=least(row.slowest_share for row in rows),
        end_share=median(row.end_share for row in rows), share_of_solo=median(row.share_of_solo for row in rows),
        step_ms=median(row.step_ms for row in rows), step_over_alone=median(row.step_over_alone for row in rows),
        moves=median(float(row.moves) for row in rows),
    )  # fmt: skip


def _groups(rows: Iterable[Row], key: Callable[[Row], Hashable]) -> list[list[Row]]:
    groups: dict[Hashable, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return list(groups.values())


def _share_of(rows: Sequence[Row], is_so: Callable[[Row], bool]) -> float | None:
    return sum(map(is_so, rows)) / len(rows) if rows else None


def _ratio(pairs: Iterable[tuple[float | None, float | None]]) -> float | None:
    return median(one / other for one, other in pairs if one is not None and other)


def _endless(value: float | None) -> float:
    return math.inf if value is None else value
