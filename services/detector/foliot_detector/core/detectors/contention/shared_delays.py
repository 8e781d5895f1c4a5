"""Which paths share a queue, by the delays of their last seconds: they rise and fall together, and as high.

Alike delays are not enough. Two links may fill up in one moment, as where a job begins. So it is held against what the
flows on these paths carry: a link with a queue is full, and carries no more than a link does.

- If all that rise together carry what one link carries, they share it.
- If they carry more, they are on several links. Which of them share one is told by how their delays vary once the
  queues stand, if that is clear: far more alike within each group than between two of them.
- If they carry less, others are on their links, of whom nothing is known. Then the same is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_LEAST_LATE = 8
"""Tenths of a second for which paths are late, at least: one word of each sender is of that time alone."""
_RISES = 0.6
"""Least correlation of delays that rise and fall together, over all that is known of the last seconds."""
_APART, _APART_SHARE = 2, 0.15
"""Tenths, and share of all, in which one of two paths is late and the other is not, at most; and by so many tenths one
may begin to be late before the other. Reports of two receivers end at different moments of a tenth, and a tenth may
have found a gap."""
_SINKS = 0.4
"""A path is not late while it has less than this of the queue that it has now."""
_NOW = 10
"""Tenths of a second that tell how long a queue is now."""
_DOUBT = 0.5
"""Two paths are clearly apart if they are so by twice as much."""
_WINDOWS = (20, 50)
"""Tenths over which paths may have risen and fallen together: one of these suffices. A path may have been in another
queue before."""
_NEAR = 0.7
"""Queues that differ by less than this factor may be one."""
_FULL, _FULLER = 0.7, 1.15
"""Shares of what a link carries that flows carry together which fill it."""
_RAMP = 2
"""Tenths until a queue stands, from which on it tells whose it is."""
_LEAST_STOOD = 20
"""Tenths for which queues must have stood to be told apart by how they vary."""
_VARIES, _CLEAR, _MARGIN = 0.7, 4.0, 3.0
"""Least correlation of queues that stand; how many standard errors that is; and by how many more than with others."""
_MOST = 64
"""Paths of several links that are looked at together: each is held against each."""


class Group(NamedTuple):
    """Paths that share a queue."""

    places: tuple[int, ...]
    """Rows of what was asked."""
    correlation: float
    """Of the path that is least like the others, that with the one that it is most like."""


def shared_delays(
    excess_ns: NDArray[np.float64], least_ns: float, rate_bps: NDArray[np.float64], line_bps: float
) -> list[Group]:
    """The groups of late paths of which each shares one queue, as far as that is clear.

    Parameters:
        excess_ns: what delays exceed the usual by, shape (paths, tenths), the earliest first; NaN: not known.
        least_ns: from which on a path is late.
        rate_bps: what the flow on each path gets, shape (paths,).
        line_bps: what a link carries.
    """
    delays = _Delays(excess_ns, least_ns)
    rise, may_share = delays.compare()
    found = []
    for places in _components(may_share):
        carried_bps = float(rate_bps[places].sum())
        if not _FULL * line_bps <= carried_bps <= _FULLER * line_bps:
            found += delays.parts(places, rate_bps, line_bps) if len(places) <= _MOST else []
        elif _components(rise[np.ix_(places, places)] > 0) == [[*range(len(places))]]:
            found.append(Group(tuple(places), _least_alike(rise, places)))
    return found


class _Delays:
    """Delays of several paths, and what any two of them have in common."""

    def __init__(self, excess_ns: NDArray[np.float64], least_ns: float) -> None:
        self._excess = excess_ns
        self._known = ~np.isnan(excess_ns)
        latest = np.where(self._known, excess_ns, 0.0)[:, -_NOW:]
        count = np.maximum(self._known[:, -_NOW:].sum(axis=1), 1)
        self._level = np.maximum(latest.sum(axis=1) / count, 1.0)
        with np.errstate(invalid="ignore"):
            self._late = excess_ns >= np.maximum(least_ns, _SINKS * self._level)[:, None]

    def compare(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """How alike each two rise and fall, and which may share a queue, shape (paths, paths).

        The first is the highest correlation over any of the windows in which they rise and fall together, 0: in none.
        Of two that are neither late together nor clearly apart, nothing is known.
        """
        paths = len(self._excess)
        rise, may_share = np.zeros((paths, paths)), np.ones((paths, paths), np.bool_)
        for window in _WINDOWS:
            late, known = self._late[:, -window:], self._known[:, -window:]
            high, low = late.astype(np.float64), (known & ~late).astype(np.float64)
            both, apart = high @ high.T, high @ low.T + low @ high.T
            lateness = np.where(late, self._excess[:, -window:], 0.0) @ high.T  # of each path, while the other is late
            nearness = np.minimum(lateness, lateness.T) / np.maximum(np.maximum(lateness, lateness.T), 1.0)
            begins = np.abs(np.subtract.outer(late.argmax(axis=1), late.argmax(axis=1)))
            allowed = _APART + _APART_SHARE * both
            correlation = _correlations(self._excess[:, -window:], known)
            together = (nearness >= _NEAR) & (both >= _LEAST_LATE) & (apart <= allowed) & (correlation >= _RISES)
            together &= begins <= _APART
            rise = np.maximum(rise, np.where(together, correlation, 0.0))
            may_share &= (apart * _DOUBT <= allowed) & (begins * _DOUBT <= _APART)
            may_share &= (nearness >= _NEAR * _DOUBT) | (both == 0)
        np.fill_diagonal(rise, 0.0)
        may_share |= rise > 0
        np.fill_diagonal(may_share, val=False)
        return rise, may_share

    def parts(self, places: list[int], rate_bps: NDArray[np.float64], line_bps: float) -> list[Group]:
        """The groups into which paths fall by how their queues vary; none: it is not clear."""
        stands = self._late[places].copy()
        for step in range(1, _RAMP + 1):
            before = np.zeros_like(stands)
            before[:, step:] = (self._late | ~self._known)[places][:, :-step]
            stands &= before
        correlation = _correlations(self._excess[places], stands)
        errors = _standard_errors(self._excess[places], stands)
        strength = np.arctanh(np.clip(correlation, -0.999, 0.999))
        count = stands.astype(np.float64) @ stands.T
        alike = (correlation >= _VARIES) & (strength >= _CLEAR * errors) & (count >= _LEAST_STOOD)
        np.fill_diagonal(alike, val=False)
        groups = _components(alike)
        found = [_told_apart(group, strength, errors) for group in groups]
        carried = [float(rate_bps[[places[each] for each in group]].sum()) for group in groups]
        least_bps = _FULL * line_bps if rate_bps[places].sum() > line_bps else 0.0
        is_whole = sum(map(len, groups)) == len(places)
        is_sound = is_whole and all(found) and all(least_bps <= each <= _FULLER * line_bps for each in carried)
        return [
            Group(tuple(places[each] for each in group), _least_alike(np.where(alike, correlation, 0.0), group))
            for group in groups
            if is_sound
        ]


def _least_alike(correlation: NDArray[np.float64], group: list[int]) -> float:
    """The correlation of the one of a group that is least like the others, with the one that it is most like."""
    return float(correlation[np.ix_(group, group)].max(axis=1).min())


def _told_apart(group: list[int], strength: NDArray[np.float64], errors: NDArray[np.float64]) -> bool:
    """Whether each of a group varies far more like the others of it than like anything else."""
    others = [each for each in range(len(strength)) if each not in group]
    for one in group:
        within = [each for each in group if each != one]
        weakest = min(within, key=lambda each: strength[one, each])
        for other in others:
            margin = _MARGIN * np.hypot(errors[one, weakest], errors[one, other])
            if not strength[one, weakest] - strength[one, other] >= margin:
                return False
    return True


def _components(joined: NDArray[np.bool_]) -> list[list[int]]:
    """The parts of a graph that hang together, of two places and more."""
    left, found = {*range(len(joined))}, []
    while left:
        part, new = set[int](), {min(left)}
        while new:
            part |= new
            new = {*np.flatnonzero(joined[sorted(new)].any(axis=0)).tolist()} - part
        left -= part
        if len(part) > 1:
            found.append(sorted(part))
    return found


def _correlations(values: NDArray[np.float64], chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Pearson's of each two rows, over what is chosen in both; 0: too little is."""
    mask = chosen.astype(np.float64)
    scale = np.nanmax(np.where(chosen, values, 0.0), initial=1.0)
    some = np.where(chosen, values, 0.0) / scale
    count, sums, squares = mask @ mask.T, some @ mask.T, (some * some) @ mask.T
    with np.errstate(invalid="ignore", divide="ignore"):
        covariance = some @ some.T / count - sums * sums.T / count**2
        variance = squares / count - (sums / count) ** 2
        found = covariance / np.sqrt(variance * variance.T)
    return np.where((count >= _LEAST_LATE) & np.isfinite(found), found, 0.0)


def _standard_errors(values: NDArray[np.float64], chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Of the inverse hyperbolic tangent of each two rows' correlation; neighbours in time count as they vary alike.

    Source: R. A. Fisher, On the "probable error" of a coefficient of correlation, Metron 1, 1921; M. S. Bartlett,
    Journal of the Royal Statistical Society 98, 1935, for values that follow each other.
    """
    mask = chosen.astype(np.float64)
    count = mask @ mask.T
    persistence = np.array([_persistence(*row) for row in zip(values, chosen, strict=True)])
    alike = np.multiply.outer(persistence, persistence)
    with np.errstate(divide="ignore"):
        found: NDArray[np.float64] = 1.0 / np.sqrt(np.maximum(count * (1 - alike) / (1 + alike) - 3, 0.0))
    return found


def _persistence(values: NDArray[np.float64], chosen: NDArray[np.bool_]) -> float:
    """The correlation of a row with itself one step later, from 0 on."""
    some = chosen[1:] & chosen[:-1]
    if np.count_nonzero(some) < _LEAST_LATE:
        return 0.0
    one, other = values[:-1][some], values[1:][some]
    spread = float(one.std() * other.std())
    return max(float(((one - one.mean()) * (other - other.mean())).mean()) / spread, 0.0) if spread else 0.0
