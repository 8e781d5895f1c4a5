from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Rows: TypeAlias = NDArray[np.intp]
_Times: TypeAlias = NDArray[np.int64]
_References: TypeAlias = tuple[_Times, _Times, NDArray[np.float64], _Times]

def one_way_ns(
    row: _Rows, transmit_ns: _Times, receive_ns: _Times, sender: _References, receiver: _References
) -> tuple[_Rows, _Times]: ...
def digest(row: _Rows, delay_ns: _Times, rows: int) -> tuple[_Times, _Times, _Times]: ...
def count_by_bucket(
    rows: _Rows, row: _Rows, delay_ns: _Times, table_rows: int, begins_ns: _Times
) -> tuple[_Rows, NDArray[np.uint8], _Times]: ...
