from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

_Probes: TypeAlias = tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]
_Slopes: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]

def prune(probes: _Probes, back: bool, slopes: _Slopes, apart: float, layers: int) -> NDArray[np.bool_]: ...
