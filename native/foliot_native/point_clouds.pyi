from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Ints: TypeAlias = NDArray[np.int64]
_Floats: TypeAlias = NDArray[np.float64]
_Columns: TypeAlias = Sequence[tuple[bytes, ...]]
_Limits: TypeAlias = tuple[_Ints, _Ints]

def extents(
    columns: _Columns, starts: _Ints, limits: _Limits, pair: _Ints, pairs: int
) -> tuple[_Ints, _Ints, _Ints]: ...
def fill(
    columns: _Columns, starts: _Ints, limits: _Limits, places: tuple[_Ints, _Ints, _Ints], shape: tuple[int, int]
) -> tuple[_Floats, _Floats]: ...
