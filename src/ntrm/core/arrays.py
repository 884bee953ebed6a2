"""Names of array types that every layer uses; what an array means is said where it is used."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
BoolMask = NDArray[np.bool_]
