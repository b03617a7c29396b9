"""Names of tensor and array shapes, and of the two mappings that may hold anything.

Dimensions: n samples, c classes, d features, b bins.
"""

from typing import Any, TypeAlias

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

Words: TypeAlias = NDArray[np.str_]
"""n, names of classes, groups or samples."""
Columns: TypeAlias = dict[str, NDArray[Any]]
"""Arrays by name: the columns of a table, the arrays of a file."""
AnyArray: TypeAlias = Any
"""Values as people have them: a tensor, an array, a list, a column of a data frame."""

Options: TypeAlias = dict[str, Any]
"""Keyword arguments of a method, a loader or a library: the signature they are for names and checks them."""
JsonObject: TypeAlias = dict[str, Any]
"""An object of a JSON file, a request or a printed summary: just read, or about to be written."""
