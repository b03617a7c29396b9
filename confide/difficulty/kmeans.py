"""Distance to the nearest k-means centre."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confide.core.centres import UnitRows, distances_to, nearest_centre, unit
from confide.core.door import InputError, check_choice, check_range
from confide.core.rows import block_rows, blocks, cache_rows, check_block, matrix_product, working_block
from confide.difficulty.family import DIFFICULTY
from confide.difficulty.saving import Arrays, State, need_arrays, need_shape

Float64 = NDArray[np.float64]
LATE_ROWS = 4096


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
                f"features must have the {self.centres.shape[1]} columns of the fit, got {values.shape[1]}; "
                "use the same extractor"
            )
        return nearest_centre(values, self.centres, distance=self.distance)[0]

    def state(self) -> State:
        return {"inertia": self.inertia, "distance": self.distance}, {"centres": self.centres}


def restore(numbers: Mapping[str, Any], arrays: Arrays, notes: tuple[str, ...]) -> Centres:
    """The model of a saved state, checked."""
    need_arrays(arrays, {"centres": "float64"})
    need_shape(arrays, "centres", (None, None))
    check_choice(numbers["distance"], ("l2", "cosine"), "distance")
    return Centres(arrays["centres"], float(numbers["inertia"]), numbers["distance"], notes)


@DIFFICULTY.add(
    "kmeans",
    paper="Sorscher et al., 2022, arXiv:2206.14486",
    source="features",
    labels=False,
    restore=restore,
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
    state = _State.of(_first_centres(rows, k, np.random.default_rng(seed)), n)
    for _ in range(iterations):
        if not state.step(rows):
            break
    final = np.ascontiguousarray(state.centres.to(torch.float64).cpu().numpy())
    inertia = float((distances_to(rows, final, state.assigned) ** 2).sum())
    return Centres(final, inertia, distance)


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


@dataclass(eq=False)
class _State:
    """Centres, and what they are the means of: only rows that change their centre are added up again."""

    centres: torch.Tensor
    sums: torch.Tensor  # float64, so that taking away what was added leaves nothing behind
    counts: torch.Tensor
    assigned: NDArray[np.int64]  # -1 before the first step

    @classmethod
    def of(cls, centres: torch.Tensor, n: int) -> _State:
        counts = torch.zeros(len(centres), dtype=torch.int64, device=centres.device)
        return cls(centres, torch.zeros_like(centres, dtype=torch.float64), counts, np.full(n, -1))

    def step(self, values: Any) -> bool:
        """One Lloyd step: assignment by a matrix product per block, means of the assigned rows. Did any row move?"""
        k, dim = self.centres.shape
        half = self.centres.square().sum(dim=1) / 2
        across = self.centres.T.contiguous()
        late, moved = _Late(), 0
        for start, block in blocks(values, cache_rows(values, max(dim, k))):
            table = matrix_product(block, across)
            table -= half
            # numpy's argmax is the faster one on a CPU.
            found = table.numpy().argmax(axis=1) if table.device.type == "cpu" else table.argmax(dim=1).cpu().numpy()
            before = self.assigned[start : start + len(block)]
            changed = np.flatnonzero(found != before)
            moved += len(changed)
            if 8 * len(changed) >= len(block):
                self._move(
                    block if len(changed) == len(block) else _taken(block, changed), before[changed], found[changed]
                )
            else:
                late.add(changed + start, before[changed], found[changed])
            before[changed] = found[changed]
            if late.count > LATE_ROWS:
                self._move(*late.take(values))
        if late.count:
            self._move(*late.take(values))
        if not bool(torch.isfinite(self.sums).all()):
            for start, block in blocks(values, block_rows(values, dim)):
                check_block(block, start, len(self.assigned))
        if moved:
            self._renew(values)
        return moved > 0

    def _move(self, rows: torch.Tensor, old: NDArray[np.int64], new: NDArray[np.int64]) -> None:
        """Take rows from their old centres, where they had one, and give them to the new."""
        part = rows.new_zeros(self.centres.shape)
        for sign, places in ((1, new), (-1, old)):
            if places[0] >= 0:
                where = torch.as_tensor(places, device=rows.device)
                part.index_add_(0, where, rows, alpha=sign)
                self.counts += sign * torch.bincount(where, minlength=len(self.counts))
        self.sums += part

    def _renew(self, values: Any) -> None:
        means = (self.sums / self.counts.clamp_min(1)[:, None]).to(self.centres)
        empty = (self.counts == 0).nonzero().squeeze(1)
        if len(empty):
            means[empty] = _worst_rows(values, means[self.counts > 0], len(empty)).to(means)
        self.centres = unit(means) if isinstance(values, UnitRows) else means


class _Late:
    """Rows that moved in blocks where few did: handled together, since each small operation has its price."""

    def __init__(self) -> None:
        self.parts: list[tuple[NDArray[Any], ...]] = []
        self.count = 0

    def add(self, *part: NDArray[Any]) -> None:
        """Places of the rows, their old and their new centres."""
        if len(part[0]):
            self.parts.append(part)
            self.count += len(part[0])

    def take(self, values: Any) -> tuple[torch.Tensor, NDArray[np.int64], NDArray[np.int64]]:
        """The rows with their old and new centres; forgets them."""
        places, old, new = (np.concatenate(column) for column in zip(*self.parts, strict=True))
        self.parts, self.count = [], 0
        return _taken(values, places), old, new


def _taken(values: Any, places: NDArray[Any]) -> torch.Tensor:
    """Chosen rows of an array, a tensor or shards."""
    return working_block(
        values[torch.as_tensor(places, device=values.device) if isinstance(values, torch.Tensor) else places]
    )


def _worst_rows(values: Any, centres: torch.Tensor, count: int) -> torch.Tensor:
    """The rows farthest from every centre: where a centre that lost all its rows starts again."""
    distance, _ = nearest_centre(values, centres.cpu().numpy())
    worst = np.argsort(-distance, kind="stable")[:count]
    return _taken(values, worst)
