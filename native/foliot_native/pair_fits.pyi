from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Ints: TypeAlias = NDArray[np.int64]
_Floats: TypeAlias = NDArray[np.float64]
_Two: TypeAlias = tuple[_Floats, _Floats]

def stand(
    points: _Two, rows: _Ints, lines: tuple[_Floats, _Floats, _Floats], limit_ppb: float
) -> tuple[_Floats, _Floats, _Floats, _Floats, _Floats, _Floats]: ...
def turn(points: _Two, pair: _Ints, lines: _Two, excess_ns: _Floats) -> _Two: ...
def floors(windows: _Two, rows: _Ints, own: _Two, agreeing: int) -> _Two: ...
