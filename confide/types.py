"""Names of tensor and array shapes. Dimensions: n samples, c classes, d features, b bins."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Logits: TypeAlias = Tensor
"""n c, floating."""
Probs: TypeAlias = Tensor
"""n c, rows sum to one."""
Labels: TypeAlias = Tensor
"""n, integer class indices; n c where a method takes soft labels."""
PerSample: TypeAlias = Tensor
"""n, one value per sample."""
Scalar: TypeAlias = Tensor
"""A tensor without dimensions."""
FeatureRows: TypeAlias = Tensor
"""n d, floating."""

Floats: TypeAlias = NDArray[np.float64]
"""Numbers in double precision, of any shape."""
Floating: TypeAlias = NDArray[np.floating]
"""Numbers in the precision they came in."""
Flags: TypeAlias = NDArray[np.bool_]
"""n, true or false."""
Indices: TypeAlias = NDArray[np.intp]
"""Row numbers, bins, ranks: what other arrays are indexed by."""
ClassIndices: TypeAlias = NDArray[np.int64]
"""n, labels or predicted classes as an array."""
