"""The upsets of a run, drawn from a seed, and the time without a valid state that docs/clock.md permits after each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOUR_S = 3_600.0
WINDOW_S = 2.0
SETTLE_S = 60.0
"""Nothing befalls anybody in the first minute, in which clocks settle."""
_HELD_S = 20.0
"""A clock that nobody hears is held over for so long (`sync.void_after_windows`)."""
_HEARD_AGAIN_S = 4 * WINDOW_S
"""The window in which a clock is heard again, the one that says so, and two later (docs/clock.md, "When it is
wrong")."""
TURNED_S = 3 * WINDOW_S
"""A rate that turns at once is seen after two or three windows, as the same section says."""
UNHEARD_S = 2 * WINDOW_S
"""A clock that was stepped is wrong until it is heard: the rest of a window, and until the next one is solved."""
_LEAST_SLOT_S = 30.0
_BESIDE = 0.25
"""The share of a host's upsets in which the leader of sync changes, too."""
_LOADS = (0.0, 0.0, 0.2, 0.4, 0.6, 0.8)
_PACES_HZ = {0.0: 3.125, 0.2: 6.25, 0.4: 12.5, 0.6: 25.0, 0.8: 25.0}
"""Coded pairs a second by load, as probes choose them (docs/clock.md, "Whom, how often, and at what cost")."""
_OUT_OF_READING = frozenset({"suspended", "rebooted"})


class Upset(msgspec.Struct, frozen=True, kw_only=True):
    """An upset, as it is drawn."""

    kind: str
    at_s: float
    lasts_s: float = 0.0
    host: int = -1
    """-1: of no host."""
    size: float = 0.0
    """ns of a step; ppb of a fan's step; s of a date that is set. Windows that a change of leaders takes; ns of noise
    that is not told of."""
    promised_s: float | None = 0.0
    """The longest time without a valid state of any clock that runs, by docs/clock.md; None: it promises nothing."""

    @property
    def ends_s(self) -> float:
        """Its end."""
        return self.at_s + self.lasts_s

    @property
    def halts(self) -> bool:
        """Whether no process of the host can read a clock meanwhile."""
        return self.kind in _OUT_OF_READING

    @property
    def is_of_leader(self) -> bool:
        """Whether it befalls the leader of sync."""
        return self.kind.startswith("leader")


class Load(NamedTuple):
    """The load of all links, from a time on."""

    from_s: float
    share: float

    @property
    def pace_hz(self) -> float:
        """The coded pairs a second of each stream."""
        return _PACES_HZ[self.share]


class Plan(NamedTuple):
    """The course of a run."""

    seconds: float
    upsets: tuple[Upset, ...]
    """By time."""
    loads: tuple[Load, ...]
    leap_at_s: float
    """The time at which a leap second is inserted."""


class _Kind(NamedTuple):
    """Upsets of a kind."""

    name: str
    in_72_h: int
    least_s: float = 0.0
    most_s: float = 0.0
    """Both of its length, whose logarithm is uniform."""
    promised_s: Callable[[float], float] = lambda _: 0.0
    """By its length."""


def _unheard(lasts_s: float) -> float:
    """A clock that runs on is held over until it is measured again; or it settles anew.

    Holdover begins with its last measurement, up to two windows before.
    """
    away_s = lasts_s + _HEARD_AGAIN_S
    return max(away_s - _HELD_S, 0.0) + (_HEARD_AGAIN_S if away_s > _HELD_S else 0.0)


_KINDS = (
    _Kind("suspended", 12, 3.0, 120.0, lambda _: _HEARD_AGAIN_S),
    _Kind("stepped", 12, promised_s=lambda _: _HEARD_AGAIN_S),
    _Kind("rebooted", 12, 8.0, 240.0, lambda _: _HEARD_AGAIN_S),
    _Kind("date set", 6, 20.0, 300.0),
    _Kind("cut off", 12, 3.0, 60.0, _unheard),
    _Kind("uplink lost", 24, 4.0, 600.0, _unheard),
    _Kind("fan", 24, promised_s=lambda _: TURNED_S),
    _Kind("leader goes on", 24),
    _Kind("leader knows nothing", 4, promised_s=lambda _: _HEARD_AGAIN_S),
    _Kind("leap second", 1),
)
LIES = "lies"
_LIES_S = (4 * HOUR_S, 8 * HOUR_S)


def draw(hours: float, hosts: int, seed: int) -> Plan:
    """The course of a run.

    Each upset has a part of the time to itself, in random order, so that what follows it has one cause. Only changes of
    the leader also come beside others.

    Raises:
        ValueError: there are too few hours for one upset of each kind.
    """
    random = np.random.default_rng((seed, 1))
    seconds = hours * HOUR_S
    kinds = [kind for kind in _KINDS for _ in range(max(1, round(kind.in_72_h * hours / 72)))]
    slot_s = (seconds - SETTLE_S) / len(kinds)
    if slot_s < _LEAST_SLOT_S:
        least = (SETTLE_S + _LEAST_SLOT_S * len(kinds)) / HOUR_S
        raise ValueError(f"{hours:g} hours have no room for {len(kinds)} upsets; at least {least:.2f} have")
    upsets: list[Upset] = []
    for place, number in enumerate(random.permutation(len(kinds)).tolist()):
        upsets += _drawn(kinds[number], SETTLE_S + place * slot_s, slot_s, hosts, random)
    lies_s = min(float(random.uniform(*_LIES_S)), seconds / 4)
    upsets.append(
        Upset(
            kind=LIES, at_s=float(random.uniform(SETTLE_S, seconds - lies_s)), lasts_s=lies_s,
            host=int(random.integers(hosts)), size=float(np.exp(random.uniform(np.log(200.0), np.log(2_000.0)))),
            promised_s=None,
        )
    )  # fmt: skip
    upsets.sort(key=lambda upset: upset.at_s)
    leap_at_s = next(upset.at_s for upset in upsets if upset.kind == "leap second")
    return Plan(seconds, tuple(upsets), tuple(_loads(seconds, random)), leap_at_s)


def _drawn(kind: _Kind, since_s: float, slot_s: float, hosts: int, random: np.random.Generator) -> Iterator[Upset]:
    """An upset of a kind in its part of the time; and the change of leaders beside it, if there is one."""
    at_s = since_s + float(random.uniform(0.0, slot_s / 8))
    lasts_s = 0.0
    if kind.most_s:
        lasts_s = min(float(np.exp(random.uniform(np.log(kind.least_s), np.log(kind.most_s)))), slot_s / 3)
    host = -1 if kind.name.startswith("lea") or kind.name == "uplink lost" else int(random.integers(hosts))
    size = _size(kind.name, random)
    yield Upset(kind=kind.name, at_s=at_s, lasts_s=lasts_s, host=host, size=size, promised_s=kind.promised_s(lasts_s))
    if host >= 0 and random.random() < _BESIDE:
        beside_s = at_s + float(random.uniform(0.0, lasts_s + 2 * WINDOW_S))
        yield Upset(
            kind="leader goes on", at_s=beside_s, size=_size("leader", random), promised_s=kind.promised_s(lasts_s)
        )


def _size(kind: str, random: np.random.Generator) -> float:
    """How large an upset is."""
    sign = float(random.choice((-1.0, 1.0)))
    if kind == "stepped":
        return sign * float(np.exp(random.uniform(np.log(5e4), np.log(5e9))))
    if kind == "fan":
        return float(random.uniform(-150.0, 150.0))
    if kind == "date set":
        return sign * float(np.exp(random.uniform(np.log(0.1), np.log(86_400.0))))
    return float(random.integers(4)) if kind.startswith("leader") else 0.0


def _loads(seconds: float, random: np.random.Generator) -> Iterator[Load]:
    """Loads that last for minutes to an hour, and in a short run for a tenth of it at most."""
    at_s = 0.0
    while at_s < seconds:
        yield Load(at_s, float(random.choice(_LOADS)))
        at_s += float(random.uniform(min(300.0, seconds / 20), min(HOUR_S, seconds / 10)))
