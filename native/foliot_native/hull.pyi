import numpy as np
from numpy.typing import NDArray

def lower_layers(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    least: NDArray[np.float64],
    most: NDArray[np.float64],
    layers: int,
) -> NDArray[np.bool_]: ...
