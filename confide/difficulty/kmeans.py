"""Distance to the nearest k-means centre."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confide.core.centres import UnitRows, nearest_centre, unit
from confide.core.door import InputError, check_choice, check_range
from confide.core.rows import block_rows, blocks, cache_rows, check_block, matrix_product, working_block
from confide.difficulty.family import DIFFICULTY

Float64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Centres:
    """Fitted k-means centres; difficulty is the distance to the nearest, labels unused."""

    centres: Float64
    inertia: float
    distance: str
    notes: tuple[str, ...] = ()

    def values_of(self, values: Any, labels: NDArray[np.int64] | str | None) -> Float64:
        """Distance to the nearest centre."""
        if int(values.shape[1]) != self.centres.shape[1]:
            raise InputError(
                f"features must have the {self.centres.shape[1]} columns of the fit, got {values.shape[1]}"
            )
        return nearest_centre(values, self.centres, distance=self.distance)[0]


@DIFFICULTY.add(
    "kmeans",
    paper="Sorscher et al., 2022, arXiv:2206.14486",
    source="features",
    labels=False,
    corners=({"k": 1}, {"distance": "cosine"}, {"iterations": 1}),
)
def kmeans(
    values: Any,
    labels: NDArray[np.int64] | None = None,
    *,
    k: int | None = None,
    distance: str = "l2",
    iterations: int = 20,
    seed: int = 0,
) -> Centres:
    """Self-supervised prototypes, min_j ||x - c_j|| over k-means centres c_j.

    Args:
        k: number of centres; None takes the number of classes, or 10 without labels.
        distance: "l2", or "cosine" for 1 - cos, clustered on rows of length one.
        iterations: at most so many; it stops when no sample changes its centre.
        seed: of the first centres (k-means++ on a sample).
    """
    check_choice(distance, ("l2", "cosine"), "distance")
    check_range(iterations, "iterations", 1)
    k = (int(labels.max()) + 1 if labels is not None else 10) if k is None else k
    check_range(k, "k", 1)
    n = int(values.shape[0])
    if k > n:
        raise InputError(f"k must be at most the {n} samples there are, got {k}; ask for fewer centres")
    rows = UnitRows(values) if distance == "cosine" else values
    centres = _first_centres(rows, k, np.random.default_rng(seed))
    assigned: NDArray[np.int64] | None = None
    for _ in range(iterations):
        centres, now = _step(rows, centres)
        if assigned is not None and np.array_equal(now, assigned):
            break
        assigned = now
    final = centres.to(torch.float64).cpu().numpy()
    return Centres(final, _inertia(rows, final), distance)


def _inertia(values: Any, centres: Float64) -> float:
    """Sum of squared distances to the nearest centre."""
    return float((nearest_centre(values, centres)[0] ** 2).sum())


def _first_centres(values: Any, k: int, draw: np.random.Generator) -> torch.Tensor:
    """k-means++ on a sample of the rows: far rows are likelier to be the next centre."""
    n = int(values.shape[0])
    sample = np.sort(draw.choice(n, size=min(n, max(2048, 8 * k)), replace=False))
    rows = torch.nan_to_num(working_block(values[sample]), posinf=0.0, neginf=0.0)
    centred = rows - rows.mean(dim=0)
    squares = torch.linalg.vecdot(centred, centred)
    chosen = [int(draw.integers(len(rows)))]
    near = torch.full_like(squares, torch.inf)
    for _ in range(1, k):
        last = centred[chosen[-1]]
        near = torch.minimum(near, (squares - 2 * (centred @ last) + last @ last).clamp_min(0))
        running = near.to(torch.float64).cumsum(dim=0).cpu().numpy()
        chosen.append(min(int(np.searchsorted(running, draw.random() * running[-1], side="right")), len(rows) - 1))
    return rows[chosen].clone()


def _step(values: Any, centres: torch.Tensor) -> tuple[torch.Tensor, NDArray[np.int64]]:
    """One Lloyd step: assignment by a matrix product per block, means of the assigned rows."""
    k, dim = centres.shape
    sums = torch.zeros_like(centres)
    counts = torch.zeros(k, dtype=torch.int64, device=centres.device)
    half = centres.square().sum(dim=1) / 2
    assigned = np.empty(int(values.shape[0]), dtype=np.int64)
    across = centres.T.contiguous()
    for start, block in blocks(values, cache_rows(values, max(dim, k))):
        table = matrix_product(block, across)
        table -= half
        found = torch.from_numpy(table.numpy().argmax(axis=1)) if table.device.type == "cpu" else table.argmax(dim=1)
        sums.index_add_(0, found, block)
        counts += torch.bincount(found, minlength=k)
        assigned[start : start + len(block)] = found.cpu().numpy()
    if not bool(torch.isfinite(sums).all()):
        for start, block in blocks(values, block_rows(values, dim)):
            check_block(block, start, len(assigned))
    moved = (sums / counts.clamp_min(1)[:, None]).to(centres)
    empty = (counts == 0).nonzero().squeeze(1)
    if len(empty):
        moved[empty] = _worst_rows(values, moved[counts > 0], len(empty)).to(moved)
    return (unit(moved) if isinstance(values, UnitRows) else moved), assigned


def _worst_rows(values: Any, centres: torch.Tensor, count: int) -> torch.Tensor:
    """The rows farthest from every centre: where a centre that lost all its rows starts again."""
    distance, _ = nearest_centre(values, centres.cpu().numpy())
    worst = np.argsort(-distance, kind="stable")[:count]
    return working_block(values[torch.as_tensor(worst) if isinstance(values, torch.Tensor) else worst])
