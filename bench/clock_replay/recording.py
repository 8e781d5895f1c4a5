"""Recorded stamps of two clocks, a and b: both stamps of each probe, and the truth where it is known.

An npz file has the arrays `ab_tx`, `ab_rx`, `ba_tx` and `ba_rx`: whole nanoseconds, `tx` by the sender's clock and `rx`
by the receiver's. The truth is b's clock less a's: `offset_ns`, one value, or several with the times by a's clock that
they are of (`offset_at_ns`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Times = NDArray[np.int64]

ARRAYS = ("ab_tx", "ab_rx", "ba_tx", "ba_rx")
MOST_NS = 1 << 61
"""Times further from 0 leave no room for differences: 73 years."""


class BadRecordingError(Exception):
    """A recording that nobody can judge; the message says why."""


class Direction(NamedTuple):
    """Probes of one direction, by when they left."""

    transmit_ns: Times
    receive_ns: Times

    def among(self, chosen: NDArray[np.bool_]) -> Direction:
        """Some of them."""
        return Direction(self.transmit_ns[chosen], self.receive_ns[chosen])

    @property
    def delay_ns(self) -> Times:
        """Receive stamps less transmit stamps, each by its own clock."""
        return self.receive_ns - self.transmit_ns


class Truth(NamedTuple):
    """The true offset, b's clock less a's."""

    origin: str
    """`file`, `given`, or `one clock`: taken to be 0, as no probe of the recording speaks against it."""
    at_ns: Times
    """By a's clock."""
    offset_ns: NDArray[np.float64]
    """Beyond the ends and between these times by a straight line, or the one value."""

    def at(self, at_ns: NDArray[np.int64]) -> NDArray[np.float64]:
        """The offset at times by a's clock."""
        first_ns = self.at_ns[0]
        run_ns, told_ns = (each.astype(np.float64) for each in (at_ns - first_ns, self.at_ns - first_ns))
        found: NDArray[np.float64] = np.interp(run_ns, told_ns, self.offset_ns)
        return found


class Recording(NamedTuple):
    """The stamps of one file, or of a simulation."""

    name: str
    forth: Direction
    """From a to b."""
    back: Direction
    truth: Truth | None
    """None: nobody knows it."""


def constant(origin: str, offset_ns: float) -> Truth:
    """A truth that stays as it is."""
    return Truth(origin, np.zeros(1, np.int64), np.array([offset_ns], np.float64))


def read(file: Path, offset_ns: float | None = None) -> Recording:
    """The recording in a file.

    Parameters:
        offset_ns: the truth, where the file has none.

    Raises:
        BadRecordingError: there is none that can be judged.
    """
    try:
        with np.load(file, allow_pickle=False) as found:
            arrays = {name: np.asarray(found[name]) for name in found.files}
    except Exception as why:  # noqa: BLE001 - of a damaged file, zip, zlib and numpy's headers raise what they like
        raise BadRecordingError(f"{file} is no npz file of plain arrays: {why}") from None
    return recorded(file.name, arrays, offset_ns)


def recorded(name: str, arrays: dict[str, NDArray[np.generic]], offset_ns: float | None = None) -> Recording:
    """The recording that these arrays make, its probes sorted by when they left.

    Raises:
        BadRecordingError: they make none that can be judged.
    """
    if missing := [key for key in ARRAYS if key not in arrays]:
        raise BadRecordingError(f"{name} lacks {', '.join(missing)}: a recording has both stamps of both directions")
    forth, back = (_direction(name, arrays, *ARRAYS[start : start + 2]) for start in (0, 2))
    return Recording(name, forth, back, _truth(name, arrays, forth, back, offset_ns))


def _direction(name: str, arrays: dict[str, NDArray[np.generic]], transmit: str, receive: str) -> Direction:
    stamps = [_times(name, arrays, key) for key in (transmit, receive)]
    if len(stamps[0]) != len(stamps[1]):
        raise BadRecordingError(
            f"{name} has {len(stamps[0])} stamps in {transmit}, but {len(stamps[1])} in {receive}: each probe has both"
        )
    if not len(stamps[0]):
        raise BadRecordingError(f"{name} has no probe in {transmit}: one direction alone says nothing of an offset")
    order = np.argsort(stamps[0], kind="stable")
    return Direction(stamps[0][order], stamps[1][order])


def _times(name: str, arrays: dict[str, NDArray[np.generic]], key: str) -> Times:
    found = arrays[key]
    if found.ndim != 1:
        raise BadRecordingError(f"{key} of {name} has {found.ndim} dimensions, not one")
    if found.dtype.kind not in "iu":
        # A float holds the nanoseconds of an epoch to 256 of them.
        raise BadRecordingError(f"{key} of {name} is of {found.dtype}, not of whole nanoseconds")
    if len(found) and not -MOST_NS <= int(found.min()) <= int(found.max()) <= MOST_NS:
        raise BadRecordingError(f"{key} of {name} has times of more than 73 years")
    return found.astype(np.int64)


def _truth(
    name: str, arrays: dict[str, NDArray[np.generic]], forth: Direction, back: Direction, offset_ns: float | None
) -> Truth | None:
    if "offset_ns" in arrays:
        return _told(name, arrays)
    if offset_ns is not None:
        return constant("given", offset_ns)
    # A probe that came before it left shows that there are two clocks.
    return constant("one clock", 0.0) if min(forth.delay_ns.min(), back.delay_ns.min()) >= 0 else None


def _told(name: str, arrays: dict[str, NDArray[np.generic]]) -> Truth:
    offset = np.atleast_1d(arrays["offset_ns"])
    if offset.ndim != 1 or offset.dtype.kind not in "iuf" or not len(offset) or not np.isfinite(offset).all():
        raise BadRecordingError(f"offset_ns of {name} is no row of numbers")
    if len(offset) == 1:
        return constant("file", float(offset[0]))
    at_ns = _times(name, arrays, "offset_at_ns") if "offset_at_ns" in arrays else np.zeros(0, np.int64)
    if len(at_ns) != len(offset) or (np.diff(at_ns) <= 0).any():
        raise BadRecordingError(f"offset_at_ns of {name} does not rise with {len(offset)} values as offset_ns has")
    return Truth("file", at_ns, offset.astype(np.float64))


class Window(NamedTuple):
    """The probes of a window by a's clock."""

    number: int
    since_ns: int
    until_ns: int
    forth: Direction
    back: Direction


def windows(recording: Recording, window_ns: int) -> list[Window]:
    """The whole windows from the first probe on in which any probe was under way, in their order.

    Raises:
        BadRecordingError: there is none.
    """
    forth, back = recording.forth, recording.back
    first_ns = min(int(forth.transmit_ns[0]), int(back.receive_ns.min()))
    last_ns = max(int(forth.transmit_ns[-1]), int(back.receive_ns.max()))
    whole = (last_ns - first_ns) // window_ns
    if not whole:
        raise BadRecordingError(f"{recording.name} is shorter than a window of {window_ns / 1e9:g} s")
    number = [(forth.transmit_ns - first_ns) // window_ns, (back.receive_ns - first_ns) // window_ns]
    return [
        Window(
            each, first_ns + each * window_ns, first_ns + (each + 1) * window_ns,
            forth.among(number[0] == each), back.among(number[1] == each),
        )
        for each in np.unique(np.concatenate(number)).tolist()
        if each < whole
    ]  # fmt: skip
