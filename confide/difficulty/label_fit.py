"""Does the label fit? Every sample judged by the Gaussians of all the others: posterior, suspicion, better label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor

from confide.core.distances import class_shares, distance_tables
from confide.core.gaussians import Gaussians, fit_gaussians

Float64 = NDArray[np.float64]
Labels = NDArray[np.int64]
CALIBRATION_ROWS = 20_000


@dataclass(frozen=True, eq=False)
class LabelFit:
    """Columns of length n. Posteriors are tempered so that they fit the labels as a whole."""

    self_confidence: Float64  # posterior of the label
    suspicion: Float64  # log odds of the best other class against the label; above 0 the other one fits better
    suggested: Labels  # class of largest posterior
    second: Labels  # runner-up
    top: Float64  # posterior of the suggested class
    runner_up: Float64
    distance: Float64  # MD to the suggested class's Gaussian
    wrong: NDArray[np.bool_]  # the label looks wrong by confident learning's rule
    temperature: float


def label_fit(
    values: Any, labels: Labels, *, rounds: int = 3, shrinkage: Any = "ledoit_wolf", member_log_probs: Any = None
) -> LabelFit:
    """Posterior of every class for every sample, leave-one-out, after dropping suspects from the fit.

    Args:
        rounds: fits; each but the last drops the samples whose label looks wrong from the next.
        shrinkage: as in `rmd`. Ledoit-Wolf by default: a posterior must hold up where samples barely outnumber columns.
        member_log_probs: out-of-fold log-probabilities `n c` of a model; averaged with the Gaussians' ones.
    """
    num_classes = int(labels.max()) + 1
    kept = np.ones(len(labels), dtype=bool)
    found: LabelFit | None = None
    for _ in range(rounds):
        rows = values if kept.all() else _Kept(values, kept)
        gaussians = fit_gaussians(rows, labels[kept], num_classes, shrinkage=shrinkage)
        found = _judge(gaussians, values, labels, kept, member_log_probs)
        kept = ~found.wrong
        # A class must not lose all its samples: without a Gaussian nothing could fit it.
        bare = np.bincount(labels[kept], minlength=num_classes) < 2
        kept |= bare[labels]
    assert found is not None
    return found


class _Kept:
    """The rows of a mask, as blocks of a fit see them."""

    def __init__(self, values: Any, kept: NDArray[np.bool_]) -> None:
        self.values, self.index = values, np.flatnonzero(kept)
        self.shape, self.dtype = (len(self.index), int(values.shape[1])), values.dtype

    def __getitem__(self, rows: Any) -> Any:
        chosen = self.index[rows]
        return self.values[torch.as_tensor(chosen) if isinstance(self.values, Tensor) else chosen]


def _judge(gaussians: Gaussians, values: Any, labels: Labels, kept: NDArray[np.bool_], model: Any) -> LabelFit:
    temperature = _temperature(gaussians, values, labels, kept)
    thresholds = _thresholds(gaussians, values, labels, kept, temperature, model)
    parts: list[tuple[NDArray[Any], ...]] = []

    def collect(start: int, log_posterior: Tensor, distance: Tensor) -> None:
        part = slice(start, start + len(log_posterior))
        parts.append(_columns(log_posterior, distance, labels[part], thresholds))

    _walk(gaussians, values, labels, kept, temperature, model, collect)
    own, suspicion, suggested, second, top, runner_up, distance, wrong = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    return LabelFit(own, suspicion, suggested, second, top, runner_up, distance, wrong, temperature)


def _columns(log_posterior: Tensor, distance: Tensor, labels: Labels, thresholds: Float64) -> tuple[NDArray[Any], ...]:
    own = torch.as_tensor(labels, device=log_posterior.device)[:, None]
    of_label = log_posterior.gather(1, own).squeeze(1)
    others = log_posterior.scatter(1, own, -torch.inf)
    top, place = log_posterior.topk(2, dim=1)
    # Confident learning: a class is a candidate where its posterior reaches its average among its own samples.
    enough = others.exp() >= torch.as_tensor(thresholds, device=others.device).to(others)
    best_other = others.max(dim=1).values
    wrong = enough.gather(1, others.argmax(dim=1, keepdim=True)).squeeze(1) & (best_other > of_label)
    chosen = distance.gather(1, place[:, :1]).squeeze(1)
    numbers = (of_label.exp(), best_other - of_label)
    ends = (top[:, 0].exp(), top[:, 1].exp(), chosen)
    return (
        *(c.cpu().numpy().astype(np.float64) for c in numbers),
        place[:, 0].cpu().numpy(),
        place[:, 1].cpu().numpy(),
        *(c.cpu().numpy().astype(np.float64) for c in ends),
        wrong.cpu().numpy(),
    )


def _walk(
    gaussians: Gaussians,
    values: Any,
    labels: Labels,
    kept: NDArray[np.bool_],
    temperature: float,
    model: Any,
    take: Callable[[int, Tensor, Tensor], None],
) -> None:
    """Log-posterior of every block: rows of the fit are left out of it, dropped rows were never in it."""
    prior = torch.log(torch.as_tensor(class_shares(gaussians)))
    plain = None if kept.all() else distance_tables(gaussians, values)
    for start, table, _ in distance_tables(gaussians, values, fitted_labels=labels):
        if plain is not None:
            dropped = torch.as_tensor(~kept[start : start + len(table)], device=table.device)
            table = torch.where(dropped[:, None], next(plain)[1], table)
        raw = prior.to(table) - table.to(torch.float64) / 2
        log_posterior = torch.log_softmax(raw / temperature, dim=1)
        if model is not None:
            said = torch.as_tensor(model[start : start + len(table)], device=table.device).to(log_posterior)
            log_posterior = torch.log_softmax((log_posterior + said) / 2, dim=1)
        # A posterior of exactly zero has no log odds; the floor is far below anything that matters.
        take(start, log_posterior.clamp_min(-1e4), table)


def _thresholds(
    gaussians: Gaussians, values: Any, labels: Labels, kept: NDArray[np.bool_], temperature: float, model: Any
) -> Float64:
    sums = np.zeros(gaussians.num_classes)

    def add(start: int, log_posterior: Tensor, _: Tensor) -> None:
        own = labels[start : start + len(log_posterior)]
        mine = log_posterior.cpu().numpy()[np.arange(len(own)), own]
        np.add.at(sums, own, np.exp(mine))

    _walk(gaussians, values, labels, kept, temperature, model, add)
    mean: Float64 = sums / np.maximum(np.bincount(labels, minlength=len(sums)), 1)
    return mean


def _temperature(gaussians: Gaussians, values: Any, labels: Labels, kept: NDArray[np.bool_]) -> float:
    """The temperature at which the left-out posteriors explain the labels best: Gaussians in many dimensions boast."""
    chosen = np.flatnonzero(kept)
    chosen = chosen[:: max(1, len(chosen) // CALIBRATION_ROWS)]
    mask = np.zeros(len(labels), dtype=bool)
    mask[chosen] = True
    tables: list[Tensor] = []
    for _, table, _ in distance_tables(gaussians, _Kept(values, mask), fitted_labels=labels[mask]):
        tables.append(-table.to(torch.float64).cpu() / 2)
    table = torch.cat(tables) + torch.log(torch.as_tensor(class_shares(gaussians)))
    own = torch.as_tensor(labels[mask])
    usable = torch.isfinite(table.gather(1, own[:, None]).squeeze(1))
    if not bool(usable.any()):
        return 1.0
    table, own = table[usable].clamp_min(-1e12), own[usable]

    def loss(log_temperature: float) -> float:
        return float(torch.nn.functional.cross_entropy(table / np.exp(log_temperature), own))

    return float(np.exp(minimize_scalar(loss, bounds=(-3.0, 7.0), method="bounded").x))
