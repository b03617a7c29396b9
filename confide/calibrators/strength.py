"""How strong a pull on a linear map should be: the strength whose maps predict held-out samples best.

A pull of s / n on the mean of n losses is a normal prior with precision 2 s on every entry, whatever n is, so a
strength found on a part of the samples is right for all of them. The path starts at a strong pull, near the start of
the fit, and every fit begins where the one before ended, so a step of the path takes a few passes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from confide.calibrators.linear import Penalty, Precision, SoftmaxRows, Turns, fit_map

PATH = (1e4, 1e3, 1e2, 1e1, 1e0, 1e-1)
STRONGER = (1e5, 1e6)
"""Tried only where the first of the path is its best."""
RISE = 1e-4
FOLDS = 3
ROUGH = Precision(2e-5, idle=1)
"""Held-out losses of neighbours on the path differ by more than the last digits of a fit."""


def best_strength(
    rows: SoftmaxRows, start: Tensor, penalty: Callable[[float], Penalty], turns: Callable[[Penalty], Turns]
) -> float:
    """The strength s with the smallest cross-validated NLL; the path ends at the first rise.

    Args:
        penalty: of a pull s / n, given that number.
        turns: the preconditioner of a penalty.
    """
    fold = folds_of(rows.labels, rows.features)
    cuts = [((fold != k).nonzero()[:, 0], (fold == k).nonzero()[:, 0]) for k in range(FOLDS)]
    parts = [
        (rows.only(train, torch.float32), rows.only(held, torch.float32))
        for train, held in cuts
        if len(train) and len(held)
    ]

    def losses(path: tuple[float, ...], known: dict[float, float]) -> dict[float, float]:
        """Held-out NLL of the strengths, to the first rise."""
        maps, found = [start] * len(parts), dict(known)
        for strength in path:
            loss, turn = 0.0, turns(penalty(strength / rows.n))
            for k, (train, held) in enumerate(parts):
                seen = torch.bincount(train.labels, minlength=rows.num_classes) > 0
                maps[k] = fit_map(train, maps[k], penalty(strength / train.n), seen, turn, ROUGH)[0]
                loss += held.n * held.loss(maps[k])
            found[strength] = loss
            if loss > (1 + RISE) * min(found.values()):
                break
        return found

    found = losses(PATH, {})
    if min(found, key=found.__getitem__) == PATH[0]:
        found = losses(STRONGER, found)
    return vertex(found)


def vertex(losses: dict[float, float]) -> float:
    """The strength of the smallest loss, by the parabola in log s through it and its neighbours, to two digits."""
    strengths = sorted(losses)
    at = min(range(len(strengths)), key=lambda k: losses[strengths[k]])
    if at in (0, len(strengths) - 1):
        return strengths[at]
    left, middle, right = (losses[s] for s in strengths[at - 1 : at + 2])
    bend = left - 2 * middle + right
    shift = (left - right) / (2 * bend) if bend > 0 else 0.0
    return float(f"{strengths[at] * math.pow(10.0, shift):.2g}")


def folds_of(labels: Tensor, features: Tensor) -> Tensor:
    """Fold of every row: in turn along the label's own feature, label by label.

    Labels come in the order of their smallest feature, so neither the order of rows nor that of classes matters.
    """
    own = features.gather(1, labels[:, None])[:, 0]
    first = torch.full((features.shape[1],), math.inf, dtype=own.dtype).scatter_reduce(0, labels, own, "amin")
    order = torch.argsort(own, stable=True)
    order = order[torch.argsort(first[labels[order]], stable=True)]
    fold = torch.empty_like(labels)
    fold[order] = torch.arange(len(labels)) % FOLDS
    return fold
