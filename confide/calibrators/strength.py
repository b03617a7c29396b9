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

PATH = tuple(math.pow(10.0, k / 2) for k in range(10, -3, -1))
"""100,000 to 0.1, two a decade."""
RISE = 1e-4
FOLDS = 3
ROUGH = Precision(1e-5, idle=1)
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
    maps = [start] * len(parts)
    best, lowest = PATH[0], math.inf
    for strength in PATH:
        loss, turn = 0.0, turns(penalty(strength / rows.n))
        for k, (train, held) in enumerate(parts):
            pull = penalty(strength / train.n)
            seen = torch.bincount(train.labels, minlength=rows.num_classes) > 0
            maps[k] = fit_map(train, maps[k], pull, seen, turn, ROUGH)[0]
            loss += held.n * held.loss(maps[k].to(held.dtype))
        if loss > lowest * (1 + RISE):
            break
        if loss < lowest:
            best, lowest = strength, loss
    return best


def folds_of(labels: Tensor, features: Tensor) -> Tensor:
    """Fold of every row: in turn along the label's own feature, within labels, so the order of rows does not matter."""
    own = features.gather(1, labels[:, None])[:, 0]
    order = torch.argsort(own, stable=True)
    order = order[torch.argsort(labels[order], stable=True)]
    fold = torch.empty_like(labels)
    fold[order] = torch.arange(len(labels)) % FOLDS
    return fold
