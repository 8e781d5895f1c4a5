"""Fits of one shard of sync for the leader: the pairs of clocks of one window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from foliot_schemas.bounds import (
    FAR_NS,
    MOST_PATHS,
    MOST_PPB,
    Bound,
    Count,
    LeapSecond,
    Name,
    Rate,
    TaiOffset,
    Time,
)
from foliot_schemas.columns import pack, rows_once, unpack
from foliot_schemas.observation import Columns  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from numpy.typing import NDArray

FitRow = np.dtype(
    [
        ("initiator", "<u2"),
        ("responder", "<u2"),
        ("at_ns", "<i8"),
        ("base_ns", "<i8"),
        ("offset_ns", "<f8"),
        ("variance", "<f8"),
        ("slope_ppb", "<f8"),
        ("slope_variance", "<f8"),
        ("lower_ns", "<f8"),
        ("upper_ns", "<f8"),
        ("noise_ns", "<f8"),
        ("torn", "u1"),
        ("excess_ns", "<f8"),
    ]
)
"""One pair of clocks: the lead of the responder's over the initiator's, at local time `at_ns` of the initiator.

`initiator` and `responder` index the batch's clocks. `offset_ns` is the best estimate, with `variance` (ns²). The truth
lies between `lower_ns` and `upper_ns` whatever the asymmetry. All three are relative to `base_ns`.

`slope_ppb` is how much faster the responder runs, with `slope_variance` (ppb²). `noise_ns` is the noise of the stamps.
`torn` is 1 if no straight line separates the two clouds of points, because a clock was stepped. The rest of the row is
then worth nothing. `excess_ns` is by how much half a round trip took longer than at its best, on whichever way between
the two it took least longer: what a slow host makes of it."""

FIT_LATER = frozenset({"excess_ns"})
"""Columns that shards of before do not have."""

LONGEST_NS = 3_600_000_000_000
"""The longest time that a batch may have waited in a shard."""
_LIMITS = {
    "offset_ns": (-FAR_NS, FAR_NS), "variance": (1e-9, 1e37), "slope_ppb": (-MOST_PPB, MOST_PPB),
    "slope_variance": (1e-12, 1e18), "noise_ns": (0, 1e9),
    "excess_ns": (0, FAR_NS)
}  # fmt: skip
"""Limits far beyond real clocks. Arithmetic with values inside them never leaves the range of floats."""


class HeardNode(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node's statement about its own clock, from its latest batch of stamps."""

    node: Name
    """The node."""
    until_ns: Time
    """Its local time at the end of the window."""
    since_ns: Annotated[int, msgspec.Meta(ge=0, le=LONGEST_NS)]
    """The age of that batch at the shard, at most an hour."""
    epoch_ns: Time
    """Its CLOCK_REALTIME minus local time."""
    utc_error_ns: Bound = -1
    """The greatest error of that CLOCK_REALTIME against UTC; -1: no service disciplines it."""
    tai_offset_s: TaiOffset = 0
    """How far UTC is behind TAI, as the node's kernel has it; 0: it does not know."""
    leap_s: LeapSecond | None = None
    """The leap second that the node's kernel announces for the end of the UTC day: 1 is inserted, -1 is deleted, 0:
    there is none; no value: it does not know."""
    leap_utc_ns: Time = 0
    """UTC at which that leap second begins: midnight if one is inserted, a second before midnight if one is deleted."""
    monotonic_ns: Time = 0
    """Its CLOCK_MONOTONIC minus local time at `until_ns`, if its TCP stamps packets by it alone; 0: not known."""
    monotonic_ppb: Rate = 0.0
    """By how much CLOCK_MONOTONIC runs faster than local time."""


class FitBatch(msgspec.Struct, frozen=True, kw_only=True, dict=True, tag="fits.v1"):
    """The fits of a window, or of a part of it, from a shard of sync to the leader, which solves the whole mesh."""

    shard: Name
    """The role of the shard: `sync`, or `sync-` and the first of its nodes."""
    term: Count
    """Revision of the lease that its holder had. Of two terms, the later counts."""
    window: Count
    """Number of the window, counted by that holder."""
    part: Annotated[int, msgspec.Meta(ge=0, le=(1 << 16) - 1)]
    """Which part of the window this is, from 0."""
    parts: Annotated[int, msgspec.Meta(ge=1, le=1 << 16)]
    """The number of parts."""
    clocks: Annotated[tuple[Name, ...], msgspec.Meta(max_length=MOST_PATHS)]
    """The clocks that the columns `initiator` and `responder` index, from 0."""
    heard: Annotated[tuple[HeardNode, ...], msgspec.Meta(max_length=MOST_PATHS)]
    """The nodes whose stamps these are."""
    columns: Columns
    """One pair a row: see x-columns."""

    @classmethod
    def of(cls, rows: NDArray[Any], **header: Any) -> FitBatch:
        """A batch of these rows, of dtype `FitRow`."""
        return cls(columns=pack(rows), **header)

    def rows(self) -> NDArray[Any]:
        """The rows, of dtype `FitRow`.

        Raises:
            ValueError: the columns do not fit together, or hold what no fit can be.
        """
        return rows_once(self, lambda: _checked(self.columns, len(self.clocks)))

    def check(self) -> None:
        """Refuses a batch that contradicts itself.

        Raises:
            ValueError: as `rows`, or it is a part that there is not.
        """
        if self.part >= self.parts:
            raise ValueError(f"part {self.part} of {self.parts}, counted from 0")
        self.rows()


def sound(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """A mask of the rows, of dtype `FitRow`, that hold values which a fit can have."""
    fits = rows["lower_ns"] <= rows["upper_ns"]
    for name in ("lower_ns", "upper_ns"):
        fits &= (np.abs(rows[name]) <= FAR_NS) | np.isinf(rows[name])
    for name, (least, most) in _LIMITS.items():
        fits &= (rows[name] >= least) & (rows[name] <= most)
    near = [np.abs(rows[name].astype(np.float64)) < FAR_NS for name in ("at_ns", "base_ns")]
    named = (rows["initiator"] != rows["responder"]) & near[0] & near[1]
    return np.asarray(named & (fits | (rows["torn"] != 0)))


def _checked(columns: dict[str, bytes], clocks: int) -> NDArray[Any]:
    rows = unpack(columns, FitRow, FIT_LATER)
    if len(rows) and int(np.maximum(rows["initiator"], rows["responder"]).max()) >= clocks:
        raise ValueError("a row names a clock that the batch does not have")
    if not sound(rows).all():
        raise ValueError("a row holds what no fit of two clocks can be")
    return rows
