"""Names of tensor shapes. Dimensions: n samples, c classes, d features, b bins."""

from typing import TypeAlias

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
