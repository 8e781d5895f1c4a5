"""Reads traces of a training job's operations, as ByteDance's StragglerAnalysis publishes them.

A row is one operation of one rank of a tensor-parallel group: which, when, for how long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SUFFIXES = (".parquet", ".csv")
"""Of files that may be a trace."""
_COLUMNS = ("dp_rank", "stage", "step", "optype", "start_ts", "duration", "seq_id", "mc", "gmc")
_MOST_ROWS = 20_000_000
_CELLS, _FEW_CELLS = 16, 1_000_000
"""By how much a grid of all operations, replicas and steps may be larger than the rows that are there; and one that is
never too large."""
_MOST_S = 1e9
_MOST_RANK = 1_000_000


class TraceError(Exception):
    """A file that cannot be read or judged as a trace; the message says why."""


class StepOperation(NamedTuple):
    """An operation that every replica does once a step."""

    kind: str
    """As ``forward-compute`` or ``grads-reduce-scatter``."""
    number: int
    """Of those of its kind in a step, at its stage."""
    stage: int
    """Of the pipeline."""
    start_s: float
    """As replica 0 did it in the first step, like what follows."""
    end_s: float
    chunk: int
    """The part of its stage's model that it is about; -1: it is about no part."""
    model_chunk: int
    """The same, counted through the whole model."""


class Trace(NamedTuple):
    """The operations of the steps in which none is missing."""

    operations: tuple[StepOperation, ...]
    steps: NDArray[np.int64]
    """Their numbers."""
    start_s: NDArray[np.float64]
    """By operation, replica and step, as what follows."""
    duration_s: NDArray[np.float64]
    skipped: int
    """The number of steps in which something is missing or twice there."""


def read(file: Path) -> Trace:
    """Reads a trace.

    Raises:
        TraceError: it is none, or no step of it is whole.
    """
    columns = _columns(file)
    if not all(isinstance(each, str) for each in columns["optype"]):
        raise TraceError("optype is not a text everywhere")
    kinds, kind = np.unique(columns["optype"].astype(str), return_inverse=True)
    whole = {name: _integers(columns[name], name) for name in ("dp_rank", "stage", "step", "seq_id", "mc", "gmc")}
    start_s, duration_s = (_seconds(columns[name], name) for name in ("start_ts", "duration"))
    if duration_s.size and not 0 <= duration_s.min() <= duration_s.max() <= _MOST_S:
        raise TraceError(f"duration is not between 0 and {_MOST_S:,.0f} s")
    for name in ("dp_rank", "stage", "seq_id"):
        if whole[name].size and not 0 <= whole[name].min() <= whole[name].max() < _MOST_RANK:
            raise TraceError(f"{name} is not between 0 and {_MOST_RANK}")
    if not kinds.size:
        raise TraceError("it has no rows")
    key = np.column_stack([kind, whole["seq_id"], whole["stage"]])
    keys, first, operation = np.unique(key, axis=0, return_index=True, return_inverse=True)
    steps, step = np.unique(whole["step"], return_inverse=True)
    replicas, replica = np.unique(whole["dp_rank"], return_inverse=True)
    shape = (len(keys), len(replicas), len(steps))
    (starts_s, durations_s), is_whole = _grid(shape, (operation.reshape(-1), replica, step), (start_s, duration_s))
    operations = tuple(
        StepOperation(
            str(kinds[number]), int(sequence), int(stage), float(starts_s[row, 0, 0]),
            float(starts_s[row, 0, 0] + durations_s[row, 0, 0]), int(whole["mc"][at]), int(whole["gmc"][at]),
        )
        for row, ((number, sequence, stage), at) in enumerate(zip(keys, first, strict=True))
    )  # fmt: skip
    return Trace(operations, steps[is_whole], starts_s, durations_s, int((~is_whole).sum()))


def _grid(
    shape: tuple[int, int, int], at: tuple[NDArray[np.intp], ...], columns: tuple[NDArray[np.float64], ...]
) -> tuple[list[NDArray[np.float64]], NDArray[np.bool_]]:
    """Columns by operation, replica and step, and the steps that are whole, which alone are in them.

    Parameters:
        shape: how many operations, replicas and steps there are.
        at: of each row, its place among these.
        columns: a value for each row.
    """
    if np.prod(shape, dtype=np.float64) > _CELLS * len(at[0]) + _FEW_CELLS:
        raise TraceError("its ranks do not do the same operations in each step")
    place = np.ravel_multi_index(at, shape)
    seen = np.bincount(place, minlength=int(np.prod(shape))).reshape(shape)
    is_whole: NDArray[np.bool_] = (seen == 1).all(axis=(0, 1))
    if not is_whole.any():
        raise TraceError("no step has each operation of each replica once")
    found = []
    for column in columns:
        grid = np.zeros(shape)
        grid.flat[place] = column
        found.append(grid[..., is_whole])
    return found, is_whole


def _columns(file: Path) -> dict[str, NDArray[np.generic]]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - large, and for traces alone
        import pyarrow.csv  # noqa: PLC0415
        import pyarrow.parquet  # noqa: PLC0415
    except ImportError:
        raise TraceError("to read it takes pyarrow: pip install 'foliot[analyse]'") from None
    try:
        if file.suffix == ".csv":
            table = pyarrow.csv.read_csv(file)
        else:
            with pyarrow.parquet.ParquetFile(file) as opened:
                if opened.metadata.num_rows > _MOST_ROWS:
                    raise TraceError(f"it has more than {_MOST_ROWS:,} rows")
                table = opened.read()
        if missing := [name for name in _COLUMNS if name not in table.column_names]:
            raise TraceError(f"it has no column {missing[0]}")
        if table.num_rows > _MOST_ROWS:
            raise TraceError(f"it has more than {_MOST_ROWS:,} rows")
        return {name: table.column(name).to_numpy(zero_copy_only=False) for name in _COLUMNS}
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TraceError(f"it cannot be read: {str(error)[:200]}") from None


def _integers(column: NDArray[np.generic], name: str) -> NDArray[np.int64]:
    found = _numbers(column, name, "whole number")
    if (found != np.rint(found)).any() or (np.abs(found) > 2**53).any():
        raise TraceError(f"{name} is not a whole number everywhere")
    return found.astype(np.int64)


def _seconds(column: NDArray[np.generic], name: str) -> NDArray[np.float64]:
    if column.dtype.kind in "mM":
        raise TraceError(f"{name} is a date, and no number of seconds")
    return _numbers(column, name, "number")


def _numbers(column: NDArray[np.generic], name: str, what: str) -> NDArray[np.float64]:
    try:
        found = column.astype(np.float64)
    except (TypeError, ValueError):
        found = np.full(1, np.nan)
    if not np.isfinite(found).all():
        raise TraceError(f"{name} is not a {what} everywhere")
    return found
