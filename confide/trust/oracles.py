"""Oracles on stored logits and features: small networks that learn which predictions are right, one per trust loss.

One member per fold, all trained at once by batched matrix products; member m never sees fold m, so its values there
are honest (`out_of_fold`), and the trust of a new sample is the mean over members.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial, wraps
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from confide.block_sizes import FEATURE_ROWS
from confide.checks import SEEDS, InputError, check_choice, check_finite
from confide.losses.reweighting import class_balance_weights
from confide.numerics.blocks import one_thread
from confide.predictions import Predictions
from confide.progress import Progress
from confide.registry import Interval, Ranges
from confide.trust import losses
from confide.trust.base import TRUST, ScorerState
from confide.trust.cross_fitting import Folds, stratified_folds
from confide.types import FeatureRows, JsonObject, Options, PerSample

# What an oracle sees of a sample: facts of the softmax, log-probabilities and features, as one row.

ORACLE_INPUTS = ("all", "logits", "features")
LOWEST_LOG_PROBABILITY = -20.0


def logit_of_confidence(predictions: Predictions) -> Tensor:
    """log c - log(1 - c) of the largest probability c, both clipped at 1e-12 (float64)."""
    facts = predictions.facts
    confidence = facts.confidence.to(torch.float64)
    # What float32 rounds to 1 still differs in its distance from 1.
    doubt = 1 - confidence if facts.doubt is None else facts.doubt.to(torch.float64)
    return confidence.clamp_min(1e-12).log() - doubt.clamp_min(1e-12).log()


def energy_of(predictions: Predictions) -> Tensor:
    """log sum_k exp(z_k), for a predictor that was fitted on logits: probabilities have lost it."""
    if predictions.from_probabilities:
        raise InputError(
            "this trust predictor was fitted on logits and looks at their energy, but these predictions came from "
            "probabilities; pass logits, or fit it on probabilities"
        )
    return predictions.facts.need("energy")


def oracle_inputs(
    predictions: Predictions, features: Tensor | None, inputs: str = "all", energy: bool | None = None
) -> tuple[Tensor, tuple[int, ...]]:
    """Rows `n d` in float32 and the widths of their parts: facts, log-probabilities, features.

    Log-probabilities are used instead of logits because a constant added to a row of logits says nothing.

    Args:
        energy: whether it is among the facts; by default where there are logits, which alone have it.
    """
    energy = not predictions.from_probabilities if energy is None else energy
    check_choice(inputs, ORACLE_INPUTS, "inputs")
    parts: list[Tensor] = []
    if inputs in ("all", "logits"):
        logits = predictions.need_logits("a trained oracle")
        facts = predictions.facts
        log_probs = torch.log_softmax(logits.to(torch.float32), dim=1).clamp_min(LOWEST_LOG_PROBABILITY)
        summary = [logit_of_confidence(predictions), -facts.need("entropy"), facts.need("margin")]
        summary += [energy_of(predictions)] if energy else []
        parts += [torch.stack([fact.to(torch.float32) for fact in summary], dim=1), log_probs]
    if inputs == "features" and features is None:
        raise InputError("inputs='features' needs features of the samples; pass them as the second argument")
    if inputs != "logits" and features is not None:
        parts.append(features.to(torch.float32))
    rows = torch.cat([part.cpu() for part in parts], dim=1)
    # Doubles beyond 3e38 are infinite in float32.
    check_finite(rows, "an oracle's inputs in float32")
    return rows, tuple(part.shape[1] for part in parts)


# The last layer of an oracle: from hidden values to one number z per sample, trustworthy iff z > 0.


def signed_distance_head(hidden: Tensor, weight: Tensor, bias: Tensor, epsilon: float = 1e-7) -> Tensor:
    """Signed distance to a hyperplane, z = (w . x + b) / (|w| + 1e-7); the bias is divided too.

    `hidden` is `... n d`, `weight` is `... d`, `bias` is `...`: leading dimensions are members of an ensemble.
    """
    length: Tensor = torch.linalg.vector_norm(weight, dim=-1)
    return linear_head(hidden, weight, bias) / (length + epsilon)[..., None]


def linear_head(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Plain linear head, z = w . x + b."""
    return (hidden @ weight[..., None]).squeeze(-1) + bias[..., None]


HEADS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "signed_distance": signed_distance_head,
    "linear": linear_head,
}


def apply_head(head: str, hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The head of that word."""
    check_choice(head, HEADS, "head")
    return HEADS[head](hidden, weight, bias)


# Oracles on stored logits and features: small networks that learn which predictions are right.
#
# One member per fold, all trained at once by batched matrix products; member m never sees fold m, so its values there
# are honest (`out_of_fold`), and the trust of a new sample is the mean over members.

OracleObjective = Callable[[Tensor, Tensor], Tensor]
"""(oracle output z, target per sample) -> one value per sample."""


@dataclass(frozen=True)
class OracleRecipe:
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


RECIPE_RANGES: Ranges = {
    "hidden": Interval(0),
    "epochs": Interval(1),
    "batch": Interval(1),
    "learning_rate": Interval(0.0, low_open=True, high_open=True),
    "weight_decay": Interval(0.0, high_open=True),
    "dropout": Interval(0.0, 1.0, high_open=True),
    "folds": Interval(2),
    "seed": (-SEEDS, SEEDS),
}
RECIPE_CHOICES: dict[str, tuple[Any, ...]] = {"head": tuple(HEADS), "inputs": ORACLE_INPUTS}


def oracle_options(
    loss: Callable[..., Tensor], *names: str, head: str = "linear"
) -> Callable[[Callable[..., OracleScorer]], Callable[..., OracleScorer]]:
    """Decorator that gives a method these options of a loss and the recipe's fields; it gets an objective and a recipe.

    Args:
        names: of the loss's options, which keep their defaults.
        head: default of the recipe's.
    """
    recipe = OracleRecipe(head=head)

    def decorate(method: Callable[..., OracleScorer]) -> Callable[..., OracleScorer]:
        own = [p for p in inspect.signature(method).parameters.values() if p.name not in ("recipe", "objective")]
        own += [inspect.signature(loss).parameters[name] for name in names]
        shared = [
            inspect.Parameter(
                f.name, inspect.Parameter.KEYWORD_ONLY, default=getattr(recipe, f.name), annotation=f.type
            )
            for f in fields(OracleRecipe)
        ]

        @wraps(method)
        def with_recipe(predictions: Predictions, features: Tensor | None = None, **options: Any) -> OracleScorer:
            objective = partial(loss, **{name: options.pop(name) for name in names if name in options})
            chosen = {f.name: options.pop(f.name) for f in fields(OracleRecipe) if f.name in options}
            return method(predictions, features, objective=objective, recipe=replace(recipe, **chosen), **options)

        with_recipe.__doc__ = doc_with_recipe(method)
        with_recipe.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        return with_recipe

    return decorate


def doc_with_recipe(method: Callable[..., OracleScorer]) -> str:
    """The method's docstring with the recipe's options after its own, so that help shows them all."""
    own, returns, rest = (inspect.getdoc(method) or "").partition("\n\nReturns:")
    shared = (inspect.getdoc(OracleRecipe) or "").partition("Args:\n")[2]
    return f"{own}\n{shared}{returns}{rest}"


@dataclass(frozen=True, eq=False)
class OracleScorer:
    """Fitted members: rows are standardised, pass one hidden layer (beside the rows themselves) and the head."""

    weights: dict[str, Tensor]
    head: str
    inputs: str
    out_of_fold: Tensor | None = field(default=None, repr=False)
    energy: bool = True
    """Whether it looks at the energy too: fitted on probabilities it does not, and may be given either."""

    def __call__(self, predictions: Predictions, features: Tensor | None) -> PerSample:
        rows, _ = oracle_inputs(predictions, features, self.inputs, self.energy)
        values = [
            oracle_forward(self.weights, block, self.head).mean(dim=0) for block in torch.split(rows, FEATURE_ROWS)
        ]
        return torch.cat(values) if values else rows.new_zeros(0)

    def state(self) -> ScorerState:
        return {"head": self.head, "inputs": self.inputs, "energy": self.energy}, self.weights


def restore_oracle(numbers: JsonObject, tensors: dict[str, Tensor]) -> OracleScorer:
    """The oracle of a saved state."""
    missing = {"mean", "deviation", "head_weight", "head_bias"} - tensors.keys()
    if missing:
        raise KeyError(f"no tensor {min(missing)}")
    return OracleScorer(tensors, numbers["head"], numbers["inputs"], energy=numbers.get("energy", True))


def oracle_facts(
    loss: str,
    *names: str,
    ranges: Ranges | None = None,
    choices: Mapping[str, tuple[Any, ...]] | None = None,
) -> Options:
    """What is said of every trained oracle; limits of its options are those of the recipe, of the loss, and its own."""
    spec = losses.TRUST_LOSSES.get(loss).spec
    return {
        "trained": True,
        "wants": "features if given",
        "scale": "logit",
        "threshold": 0.0,
        "learns_errors": True,
        "restore": restore_oracle,
        "ranges": {**RECIPE_RANGES, **{n: spec.ranges[n] for n in names if n in spec.ranges}, **(ranges or {})},
        "choices": {**RECIPE_CHOICES, **{n: spec.choices[n] for n in names if n in spec.choices}, **(choices or {})},
    }


def oracle_forward(weights: dict[str, Tensor], rows: Tensor, head: str, keep: Tensor | None = None) -> Tensor:
    """z of every member, `m n`; `rows` is `n d` for all or `m n d`; `keep` is a dropout mask for the hidden layer."""
    standard = (rows - weights["mean"][:, None]) / weights["deviation"][:, None]
    if "hidden_weight" in weights:
        hidden = functional.relu(torch.baddbmm(weights["hidden_bias"][:, None], standard, weights["hidden_weight"]))
        hidden = hidden if keep is None else hidden * keep
        # The rows themselves reach the head too: much of trust is linear in the logit of the confidence.
        standard = torch.cat([standard, hidden], dim=2)
    return apply_head(head, standard, weights["head_weight"], weights["head_bias"])


def fit_oracle(
    predictions: Predictions, features: Tensor | None, target: Tensor, objective: OracleObjective, recipe: OracleRecipe
) -> OracleScorer:
    """Train one member per fold on all other folds; the last values of the schedule are kept, nothing is selected."""
    rows, widths = oracle_inputs(predictions, features, recipe.inputs)
    folds = stratified_folds(predictions, recipe.folds, recipe.seed)
    weights = _start(rows, widths, folds, recipe)
    _train(weights, rows, target.to(torch.float32).cpu(), folds, objective, recipe)
    with torch.no_grad():
        values = torch.cat(
            [oracle_forward(weights, block, recipe.head) for block in torch.split(rows, FEATURE_ROWS)], dim=1
        )
        honest = values.gather(0, torch.from_numpy(folds)[None]).squeeze(0)
    learned, energy = {k: v.detach() for k, v in weights.items()}, not predictions.from_probabilities
    return OracleScorer(learned, recipe.head, recipe.inputs, honest, energy)


def _start(rows: Tensor, widths: tuple[int, ...], folds: Folds, recipe: OracleRecipe) -> dict[str, Tensor]:
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
    weights: dict[str, Tensor],
    rows: Tensor,
    target: Tensor,
    folds: Folds,
    objective: OracleObjective,
    recipe: OracleRecipe,
) -> None:
    generator = torch.Generator().manual_seed(recipe.seed + 1)
    outside = [torch.from_numpy(np.flatnonzero(folds != m)) for m in range(recipe.folds)]
    size = min(map(len, outside))
    batch = min(recipe.batch, size)
    steps = recipe.epochs * (size // batch)
    learned = [v.requires_grad_() for k, v in weights.items() if k not in ("mean", "deviation")]
    optimiser = torch.optim.AdamW(learned, lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, recipe.learning_rate, total_steps=steps + 1)
    small = recipe.folds * batch * rows.shape[1] < 1 << 20
    with Progress("oracle", recipe.epochs) as progress, one_thread(when=small):
        for _ in range(recipe.epochs):
            order = torch.stack([own[torch.randperm(len(own), generator=generator)[:size]] for own in outside])
            for start in range(0, size - batch + 1, batch):
                chosen = order[:, start : start + batch]
                keep = _dropout_mask((*chosen.shape, recipe.hidden), recipe.dropout, generator)
                z = oracle_forward(weights, rows[chosen], recipe.head, keep)
                # A sum over members of means: each member's gradient is its own.
                loss = objective(z.reshape(-1), target[chosen].reshape(-1)).sum() / batch
                optimiser.zero_grad()
                torch.autograd.backward(loss)
                optimiser.step()
                schedule.step()
            progress.step(1, f"loss {float(loss.detach()) / recipe.folds:.4f}")


def _dropout_mask(shape: tuple[int, ...], dropout: float, generator: torch.Generator) -> Tensor | None:
    if not dropout or not shape[-1]:
        return None
    return (torch.rand(shape, generator=generator) >= dropout).to(torch.float32) / (1 - dropout)


@TRUST.add(
    "steep_slope",
    paper="Luo et al., 2021, arXiv:2110.00054",
    corners=({"hidden": 16}, {"head": "linear"}, {"inputs": "logits"}, {"alpha_pos": 6.0, "alpha_neg": 10.0}),
    **oracle_facts("steep_slope", "alpha_pos", "alpha_neg"),
)
@oracle_options(losses.steep_slope, "alpha_pos", "alpha_neg", head="signed_distance")
def steep_slope(
    predictions: Predictions, features: FeatureRows | None = None, *, recipe: OracleRecipe, objective: OracleObjective
) -> OracleScorer:
    """Oracle with the steep slope loss: exp(-a_pos z/(1+|z|)) if right, exp(a_neg z/(1+|z|)) if wrong.

    Trustworthy iff z > 0.

    When: a decision at its own line z > 0 is wanted, tuned on validation data.
    When not: a threshold of one's own will do: max-softmax catches as many errors.

    Differs from eq. 8: its printed exponents have both signs reversed (see the errata).

    Args:
        predictions: held-out ones, right and wrong.
        features: rows `n d` of the same samples; left out, the oracle looks at the outputs alone.
        alpha_pos: how steeply right predictions are pushed to z > 0. Default: the paper's choice for ViT.
        alpha_neg: how steeply wrong ones are pushed to z < 0; larger catches more errors and doubts more right ones.

    Returns:
        The scorer, which `trust.fit` puts into a `Trust`, with out-of-fold values on these samples.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions((1.0 + i % 4)[:, None] * torch.eye(3)[predicted], labels, split="val")
        >>> noise = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        >>> rows = torch.eye(3)[labels] + 0.1 * noise
        >>> trust = confide.trust.fit("steep_slope", val, rows, epochs=3)
        >>> trust(val, rows).shape
        torch.Size([60])
        >>> trust.threshold
        0.0
    """
    return fit_oracle(predictions, features, predictions.facts.correct, objective, recipe)


@TRUST.add(
    "tcp",
    paper="Corbiere et al., 2019, arXiv:1910.04851",
    corners=({"hidden": 16}, {"target": "ratio"}, {"inputs": "logits"}),
    **oracle_facts("tcp", choices={"target": ("probability", "ratio")}),
)
@oracle_options(losses.tcp)
def tcp(
    predictions: Predictions,
    features: FeatureRows | None = None,
    *,
    recipe: OracleRecipe,
    objective: OracleObjective,
    target: str = "probability",
) -> OracleScorer:
    """Oracle of the true class probability, (sigmoid(z) - p_y)^2.

    When: some thousand held-out predictions and features: the probability of the true class.
    When not: few held-out samples are wrong.

    Args:
        predictions: held-out ones, right and wrong.
        features: rows `n d` of the same samples; left out, the oracle looks at the outputs alone.
        target: `probability` learns p_y; `ratio` learns p_y / max p, which is 1 for every right prediction.

    Returns:
        The scorer, which `trust.fit` puts into a `Trust`, with out-of-fold values on these samples.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions((1.0 + i % 4)[:, None] * torch.eye(3)[predicted], labels, split="val")
        >>> noise = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        >>> rows = torch.eye(3)[labels] + 0.1 * noise
        >>> trust = confide.trust.fit("tcp", val, rows, epochs=3)
        >>> trust(val, rows).shape
        torch.Size([60])
        >>> trust.threshold
        0.0
    """
    facts = predictions.facts
    p_true: Tensor = facts.need("p_true")
    targets = p_true / facts.confidence if target == "ratio" else p_true
    return fit_oracle(predictions, features, targets, objective, recipe)


@TRUST.add(
    "binary_cross_entropy",
    paper="Luo et al., 2021, arXiv:2110.00054, eq. 4",
    corners=({"hidden": 16}, {"inputs": "logits"}, {"weight_neg": 3.0}, {"form": "released"}),
    **oracle_facts("binary_cross_entropy", "weight_pos", "weight_neg", "form"),
)
@oracle_options(losses.binary_cross_entropy, "weight_pos", "weight_neg", "form")
def binary_cross_entropy(
    predictions: Predictions, features: FeatureRows | None = None, *, recipe: OracleRecipe, objective: OracleObjective
) -> OracleScorer:
    """Oracle with binary cross-entropy, -o log sigmoid(z) - (1 - o) log sigmoid(-z), one term per sample.

    When: some thousand held-out predictions and features: a probability of being right.
    When not: few held-out samples are wrong: an oracle cannot learn from them.

    Differs from the released code: one term a sample; `form="released"` repeats its broadcasting error (see the
    errata).

    Args:
        predictions: held-out ones, right and wrong.
        features: rows `n d` of the same samples; left out, the oracle looks at the outputs alone.
        weight_pos: factor of right predictions.
        weight_neg: factor of wrong predictions.
        form: `released` reproduces the broadcasting error of the paper's code (see the errata): it trusts everything.

    Returns:
        The scorer, which `trust.fit` puts into a `Trust`, with out-of-fold values on these samples.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions((1.0 + i % 4)[:, None] * torch.eye(3)[predicted], labels, split="val")
        >>> noise = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        >>> rows = torch.eye(3)[labels] + 0.1 * noise
        >>> trust = confide.trust.fit("binary_cross_entropy", val, rows, epochs=3)
        >>> trust(val, rows).shape
        torch.Size([60])
        >>> trust.threshold
        0.0
    """
    return fit_oracle(predictions, features, predictions.facts.correct, objective, recipe)


@TRUST.add(
    "binary_focal",
    paper="Luo et al., 2021, arXiv:2110.00054, eq. 5",
    corners=({"hidden": 16}, {"gamma": 0.0}, {"gamma": 5.0}, {"form": "released"}),
    **oracle_facts("binary_focal", "gamma", "form"),
)
@oracle_options(losses.binary_focal, "gamma", "form")
def binary_focal(
    predictions: Predictions, features: FeatureRows | None = None, *, recipe: OracleRecipe, objective: OracleObjective
) -> OracleScorer:
    """Oracle with the binary focal loss, -(1 - p_o)^gamma log p_o of the true outcome o, one term per sample.

    When: as binary_cross_entropy, with mostly easy samples.
    When not: a probability is wanted, or few held-out samples are wrong.

    Differs from the released code: one term a sample; `form="released"` repeats its broadcasting error (see the
    errata).

    Args:
        predictions: held-out ones, right and wrong.
        features: rows `n d` of the same samples; left out, the oracle looks at the outputs alone.
        gamma: how fast sure samples fade; 0 is binary cross-entropy. Default: the choice of the paper.
        form: `released` reproduces the broadcasting error of the paper's code (see the errata): it trusts everything.

    Returns:
        The scorer, which `trust.fit` puts into a `Trust`, with out-of-fold values on these samples.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions((1.0 + i % 4)[:, None] * torch.eye(3)[predicted], labels, split="val")
        >>> noise = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        >>> rows = torch.eye(3)[labels] + 0.1 * noise
        >>> trust = confide.trust.fit("binary_focal", val, rows, epochs=3)
        >>> trust(val, rows).shape
        torch.Size([60])
        >>> trust.threshold
        0.0
    """
    return fit_oracle(predictions, features, predictions.facts.correct, objective, recipe)


# An oracle trained with binary cross-entropy weighted by the effective number of right and wrong samples.


@TRUST.add(
    "class_balanced",
    paper="Cui et al., 2019, arXiv:1901.05555",
    corners=({"hidden": 16}, {"beta": 0.0}, {"beta": 0.9999}),
    **oracle_facts("binary_cross_entropy", ranges={"beta": Interval(0.0, 1.0, high_open=True)}),
)
@oracle_options(losses.binary_cross_entropy)
def class_balanced(
    predictions: Predictions,
    features: FeatureRows | None = None,
    *,
    recipe: OracleRecipe,
    objective: OracleObjective,
    beta: float = 0.999,
) -> OracleScorer:
    """Oracle with class-balanced binary cross-entropy, w_o = (1 - beta) / (1 - beta^n_o) for o in {wrong, right}.

    When: an oracle decides at z > 0 and right samples outnumber wrong ones.
    When not: a probability is wanted.

    Args:
        predictions: held-out ones, right and wrong.
        features: rows `n d` of the same samples; left out, the oracle looks at the outputs alone.
        beta: 0 weighs all samples alike; towards 1 the weights are inverse frequencies.

    Returns:
        The scorer, which `trust.fit` puts into a `Trust`, with out-of-fold values on these samples.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions((1.0 + i % 4)[:, None] * torch.eye(3)[predicted], labels, split="val")
        >>> noise = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        >>> rows = torch.eye(3)[labels] + 0.1 * noise
        >>> trust = confide.trust.fit("class_balanced", val, rows, epochs=3)
        >>> trust(val, rows).shape
        torch.Size([60])
        >>> trust.threshold
        0.0
    """
    correct = predictions.facts.correct.cpu()
    weights = class_balance_weights(torch.bincount(correct.to(torch.int64), minlength=2), beta).to(torch.float32)

    def weighted(z: Tensor, right: Tensor) -> Tensor:
        return weights[right.to(torch.int64)] * objective(z, right)

    return fit_oracle(predictions, features, correct, weighted, recipe)
