"""Factors of d x d matrices in float64, where the rows were: a host can take longer for one than a GPU for all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import linalg
from torch import Tensor

Float64 = NDArray[np.float64]
HOST = "cpu"


def cholesky(matrix: Float64, device: str = HOST) -> Float64 | None:
    """Lower factor L of L L', or None where the matrix is not positive definite."""
    if device == HOST:
        try:
            return np.asarray(linalg.cholesky(matrix, lower=True))
        except linalg.LinAlgError:
            return None
    factor, failed = torch.linalg.cholesky_ex(_put(matrix, device))
    return None if int(failed) else _take(factor)


def solve_lower(factor: Float64, columns: Float64, *, transposed: bool = False, device: str = HOST) -> Float64:
    """L^-1 columns, or L'^-1 columns."""
    if device == HOST:
        return np.asarray(linalg.solve_triangular(factor, columns, lower=True, trans="T" if transposed else "N"))
    left = _put(factor, device)
    return _take(torch.linalg.solve_triangular(left.T if transposed else left, _put(columns, device), upper=transposed))


def eigh(matrix: Float64, device: str = HOST) -> tuple[Float64, Float64]:
    """Eigenvalues, rising, and eigenvectors of a symmetric matrix."""
    if device == HOST:
        values, vectors = linalg.eigh(matrix)
        return values, vectors
    found = torch.linalg.eigh(_put(matrix, device))
    return _take(found.eigenvalues), _take(found.eigenvectors)


def _put(matrix: Any, device: str) -> Tensor:
    return torch.as_tensor(np.ascontiguousarray(matrix), dtype=torch.float64, device=device)


def _take(tensor: Tensor) -> Float64:
    taken: Float64 = tensor.cpu().numpy()
    return taken
