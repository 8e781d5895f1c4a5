from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Rows: TypeAlias = NDArray[np.intp]
_Times: TypeAlias = NDArray[np.int64]
_Floats: TypeAlias = NDArray[np.float64]
_Probes: TypeAlias = tuple[_Rows, _Times, _Times]
_References: TypeAlias = tuple[_Times, _Times, _Floats, _Times]
_Slopes: TypeAlias = tuple[_Floats, _Floats]

def one_way_ns(probes: _Probes, sender: _References, receiver: _References, within_ns: int) -> tuple[_Rows, _Times]: ...
def digest(row: _Rows, delay_ns: _Times, rows: int) -> tuple[_Times, _Times, _Times]: ...
def interval_columns(
    rows: _Rows,
    told: NDArray[np.bool_] | None,
    source: tuple[_Times, ...],
    destination: tuple[_Times, ...],
    shift_ns: int,
) -> tuple[bytes, ...]: ...
def count_by_bucket(
    rows: _Rows, row: _Rows, delay_ns: _Times, table_rows: int, begins_ns: _Times
) -> tuple[_Rows, NDArray[np.uint8], _Times]: ...
def least_gaps(row: _Rows, delay_ns: _Times, rows: int, left_out: int, gaps: int) -> tuple[_Floats, _Floats]: ...
def near_floor(forth: _Probes, back: _Probes, slopes: _Slopes, bent: float, share: float) -> tuple[_Times, _Times]: ...
