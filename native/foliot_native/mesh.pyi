from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Ints: TypeAlias = NDArray[np.int64]
_Floats: TypeAlias = NDArray[np.float64]

def distances(
    ends: tuple[_Ints, _Ints], room: tuple[_Floats, _Floats], nodes: int, ground: int, rounds: int
) -> tuple[_Floats, bool]: ...
def conjugate(
    matrix: tuple[_Ints, _Ints, _Floats],
    pull: _Floats,
    near: _Floats,
    parts: tuple[_Ints, _Floats, _Floats],
    limits: tuple[int, int, float],
) -> _Floats: ...
