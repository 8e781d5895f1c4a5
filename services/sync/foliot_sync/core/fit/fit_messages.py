"""Converts a shard's fits of a window to messages for the leader, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from foliot_schemas import FitBatch, FitRow
from foliot_schemas.fit import LONGEST_NS, sound
from foliot_sync.core.fit.pair_estimate import PairEstimates
from foliot_sync.core.fit.shard_fit import Fits

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROWS = 2_048
"""Rows in a message, which may have a megabyte, and nodes.

They are 0.2 MB of columns, and the names of twice as many clocks at most.
"""
_WHOLE = ("initiator", "responder", "at_ns", "base_ns")
_LONG = np.dtype([(name, "<i8" if name in _WHOLE else FitRow[name]) for name in FitRow.names or ()])
"""As `FitRow`, with room to count the clocks of all messages."""


def batches(fits: Fits, shard: str, term: int, window: int) -> list[FitBatch]:
    """The messages, at least one."""
    rows, made = _rows(fits), []
    clocks = np.array(fits.clocks, dtype=object)
    parts = max(-(-max(len(rows), len(fits.heard)) // _ROWS), 1)
    for part in range(parts):
        chosen = slice(part * _ROWS, (part + 1) * _ROWS)
        # A message numbers only its own clocks.
        used, ends = np.unique(
            np.concatenate((rows["initiator"][chosen], rows["responder"][chosen])), return_inverse=True
        )
        own = rows[chosen].astype(FitRow)
        own["initiator"], own["responder"] = np.split(ends, 2)
        heard = tuple(replace(node, since_ns=min(node.since_ns, LONGEST_NS)) for node in fits.heard[chosen])
        made.append(
            FitBatch.of(
                own,
                shard=shard,
                term=term,
                window=window,
                part=part,
                parts=parts,
                clocks=tuple(clocks[used].tolist()),
                heard=heard,
            )
        )
    return made


def read(batch: FitBatch, waited_ns: int) -> Fits:
    """The fits of a message that has waited for so long."""
    rows = batch.rows()
    columns: dict[str, Any] = {
        name: rows[name].astype(np.int64 if name in _WHOLE else np.float64) for name in PairEstimates._fields
    }
    pairs = PairEstimates(**columns | {"torn": rows["torn"] != 0}) if len(rows) else None
    heard = tuple(replace(node, since_ns=node.since_ns + waited_ns) for node in batch.heard)
    return Fits(batch.clocks, pairs, heard)


def _rows(fits: Fits) -> NDArray[Any]:
    """The pairs that are sound, their clocks numbered as in `fits`."""
    if fits.pairs is None:
        return np.empty(0, _LONG)
    rows = np.empty(len(fits.pairs.initiator), _LONG)
    for name, column in fits.pairs._asdict().items():
        rows[name] = column
    return rows[sound(rows)]
