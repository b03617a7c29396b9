"""Oracles on stored logits and features: small networks that learn which predictions are right.

One member per fold, all trained at once by batched matrix products; member m never sees fold m, so its values there
are honest (`out_of_fold`), and the trust of a new sample is the mean over members.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from confide.core.door import check_choice, check_range
from confide.core.predictions import Predictions
from confide.core.progress import Progress
from confide.core.shapes import PerSample
from confide.trust.family import State
from confide.trust.folds import Folds, stratified_folds
from confide.trust.heads import HEADS, apply_head
from confide.trust.representation import INPUTS, representation

Objective = Callable[[Tensor, Tensor], Tensor]
"""(oracle output z, target per sample) -> one value per sample."""


@dataclass(frozen=True)
class Recipe:
    """How an oracle is trained; every field is an option of every trained oracle.

    Args:
        head: `signed_distance` to a hyperplane, or `linear`.
        inputs: what it sees: `logits` (facts and log-probabilities), `features`, or `all` of them.
        hidden: units of a hidden layer beside the inputs; 0 is a linear oracle, the better choice below some
            thousand errors.
        epochs: passes over the fitting data; nothing is selected by validation, the last values are kept.
        batch: samples per step.
        learning_rate: largest value of a one-cycle schedule; small steps keep the oracle near max-softmax.
        weight_decay: of the optimiser; larger keeps the oracle simpler.
        dropout: share of hidden units left out in each step.
        folds: members, each trained without its fold; their mean is the trust of a new sample.
        seed: of the folds, the start and the order of samples.
    """

    head: str = "signed_distance"
    inputs: str = "all"
    hidden: int = 0
    epochs: int = 30
    batch: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 0.1
    dropout: float = 0.2
    folds: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice(self.head, HEADS, "head")
        check_choice(self.inputs, INPUTS, "inputs")
        check_range(self.hidden, "hidden", 0)
        for name in ("epochs", "batch"):
            check_range(getattr(self, name), name, 1)
        check_range(self.learning_rate, "learning_rate", 0, low_open=True)
        check_range(self.weight_decay, "weight_decay", 0)
        check_range(self.dropout, "dropout", 0, 1, high_open=True)
        check_range(self.folds, "folds", 2)


def trained(**defaults: Any) -> Callable[[Callable[..., Oracle]], Callable[..., Oracle]]:
    """Decorator that gives a method the recipe's fields as options, with these defaults, and passes it a Recipe."""
    recipe = Recipe(**defaults)

    def decorate(method: Callable[..., Oracle]) -> Callable[..., Oracle]:
        own = [p for p in inspect.signature(method).parameters.values() if p.name != "recipe"]
        shared = [
            inspect.Parameter(
                f.name, inspect.Parameter.KEYWORD_ONLY, default=getattr(recipe, f.name), annotation=f.type
            )
            for f in fields(Recipe)
        ]

        @wraps(method)
        def with_recipe(predictions: Predictions, features: Tensor | None = None, **options: Any) -> Oracle:
            chosen = {f.name: options.pop(f.name, getattr(recipe, f.name)) for f in fields(Recipe)}
            return method(predictions, features, recipe=Recipe(**chosen), **options)

        with_recipe.__doc__ = with_shared_options(method)
        with_recipe.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        return with_recipe

    return decorate


def with_shared_options(method: Callable[..., Oracle]) -> str:
    """The method's docstring with the recipe's options after its own, so that help shows them all."""
    own, shared = inspect.getdoc(method) or "", (inspect.getdoc(Recipe) or "").partition("Args:\n")[2]
    return f"{own}\n{shared}" if "Args:\n" in own else f"{own}\n\nArgs:\n{shared}"


@dataclass(frozen=True, eq=False)
class Oracle:
    """Fitted members: rows are standardised, pass one hidden layer (beside the rows themselves) and the head."""

    weights: dict[str, Tensor]
    head: str
    inputs: str
    out_of_fold: Tensor | None = field(default=None, repr=False)
    energy: bool = True
    """Whether it looks at the energy too: fitted on probabilities it does not, and may be given either."""

    def __call__(self, predictions: Predictions, features: Tensor | None) -> PerSample:
        rows, _ = representation(predictions, features, self.inputs, self.energy)
        values = [forward(self.weights, block, self.head).mean(dim=0) for block in torch.split(rows, 8192)]
        return torch.cat(values) if values else rows.new_zeros(0)

    def state(self) -> State:
        return {"head": self.head, "inputs": self.inputs, "energy": self.energy}, self.weights


def restore(numbers: dict[str, Any], tensors: dict[str, Tensor]) -> Oracle:
    """The oracle of a saved state."""
    missing = {"mean", "deviation", "head_weight", "head_bias"} - tensors.keys()
    if missing:
        raise KeyError(f"no tensor {min(missing)}")
    return Oracle(tensors, numbers["head"], numbers["inputs"], energy=numbers.get("energy", True))


ORACLE_FACTS: dict[str, Any] = {
    "trained": True,
    "wants": "features if given",
    "scale": "logit",
    "threshold": 0.0,
    "learns_errors": True,
    "restore": restore,
}


def forward(weights: dict[str, Tensor], rows: Tensor, head: str, keep: Tensor | None = None) -> Tensor:
    """z of every member, `m n`; `rows` is `n d` for all or `m n d`; `keep` is a dropout mask for the hidden layer."""
    standard = (rows - weights["mean"][:, None]) / weights["deviation"][:, None]
    if "hidden_weight" in weights:
        hidden = functional.relu(torch.baddbmm(weights["hidden_bias"][:, None], standard, weights["hidden_weight"]))
        hidden = hidden if keep is None else hidden * keep
        # The rows themselves reach the head too: much of trust is linear in the logit of the confidence.
        standard = torch.cat([standard, hidden], dim=2)
    return apply_head(head, standard, weights["head_weight"], weights["head_bias"])


def fit_oracle(
    predictions: Predictions, features: Tensor | None, target: Tensor, objective: Objective, recipe: Recipe
) -> Oracle:
    """Train one member per fold on all other folds; the last values of the schedule are kept, nothing is selected."""
    rows, widths = representation(predictions, features, recipe.inputs)
    folds = stratified_folds(predictions, recipe.folds, recipe.seed)
    weights = _start(rows, widths, folds, recipe)
    _train(weights, rows, target.to(torch.float32).cpu(), folds, objective, recipe)
    with torch.no_grad():
        fold = torch.from_numpy(folds)
        values = torch.cat([forward(weights, block, recipe.head) for block in torch.split(rows, 8192)], dim=1)
        honest = values.gather(0, fold[None]).squeeze(0)
    learned, energy = {k: v.detach() for k, v in weights.items()}, not predictions.from_probabilities
    return Oracle(learned, recipe.head, recipe.inputs, honest, energy)


def _start(rows: Tensor, widths: tuple[int, ...], folds: Folds, recipe: Recipe) -> dict[str, Tensor]:
    """Statistics of each member's own training rows, and seeded weights."""
    generator = torch.Generator().manual_seed(recipe.seed)
    parts = [rows[torch.from_numpy(folds != m)] for m in range(recipe.folds)]
    deviation = torch.stack([part.std(dim=0, correction=0) for part in parts])
    # A constant column carries nothing; divided by one it stays zero.
    deviation = torch.where(deviation > 1e-6, deviation, torch.ones(()))
    # A part of d columns has the variance of one: hundreds of features do not drown three facts, nor fit the noise.
    share = torch.cat([torch.full((w,), 1.0 if i == 0 else w**0.5) for i, w in enumerate(widths)])
    members, width = recipe.folds, rows.shape[1]
    weights = {"mean": torch.stack([part.mean(dim=0) for part in parts]), "deviation": deviation * share}
    if recipe.hidden:
        shape = (members, width, recipe.hidden)
        weights["hidden_weight"] = torch.randn(shape, generator=generator) * (2 / width) ** 0.5
        weights["hidden_bias"] = torch.zeros(members, recipe.hidden)
    total = width + recipe.hidden
    weights["head_weight"] = torch.randn(members, total, generator=generator) * 0.1 * total**-0.5
    if recipe.inputs != "features":
        # Column 0 is the logit of the confidence: the oracle starts as max-softmax and learns where that errs.
        weights["head_weight"][:, 0] = 1.0
    weights["head_bias"] = torch.ones(members)
    return weights


def _train(
    weights: dict[str, Tensor], rows: Tensor, target: Tensor, folds: Folds, objective: Objective, recipe: Recipe
) -> None:
    generator = torch.Generator().manual_seed(recipe.seed + 1)
    own = [torch.from_numpy(np.flatnonzero(folds != m)) for m in range(recipe.folds)]
    size = min(len(one) for one in own)
    batch = min(recipe.batch, size)
    steps = recipe.epochs * (size // batch)
    learned = [v.requires_grad_() for k, v in weights.items() if k not in ("mean", "deviation")]
    optimiser = torch.optim.AdamW(learned, lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, recipe.learning_rate, total_steps=steps + 1)
    with Progress("oracle", recipe.epochs) as progress, few_threads(recipe.folds * batch * rows.shape[1]):
        for _ in range(recipe.epochs):
            order = torch.stack([one[torch.randperm(len(one), generator=generator)[:size]] for one in own])
            for start in range(0, size - batch + 1, batch):
                chosen = order[:, start : start + batch]
                keep = _dropout_mask((*chosen.shape, recipe.hidden), recipe.dropout, generator)
                z = forward(weights, rows[chosen], recipe.head, keep)
                # A sum over members of means: each member's gradient is its own.
                loss = objective(z.reshape(-1), target[chosen].reshape(-1)).sum() / batch
                optimiser.zero_grad()
                torch.autograd.backward(loss)
                optimiser.step()
                schedule.step()
            progress.step(1, f"loss {float(loss.detach()) / recipe.folds:.4f}")


@contextmanager
def few_threads(elements: int) -> Iterator[None]:
    """One thread while steps are small: waking a second for them costs more than it brings."""
    before = torch.get_num_threads()
    if elements < 1 << 20:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _dropout_mask(shape: tuple[int, ...], dropout: float, generator: torch.Generator) -> Tensor | None:
    if not dropout or not shape[-1]:
        return None
    return (torch.rand(shape, generator=generator) >= dropout).to(torch.float32) / (1 - dropout)
