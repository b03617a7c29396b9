"""Scores of the classifier's own outputs, without training: mcp, entropy, margin, energy, max_logit; and of several
members' logits: ensemble, mc_dropout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from confide.checks import InputError
from confide.metrics import aurc
from confide.predictions import Predictions
from confide.registry import Interval
from confide.trust.base import TRUST, ScorerState
from confide.types import FeatureRows, JsonObject, Options, PerSample

# Scores that need no fitting: a function of the predictions alone.


@dataclass(frozen=True)
class OutputScore:
    """A scorer that only applies a formula: `formula(predictions, **options) -> n`."""

    formula: Callable[..., PerSample]
    options: Options = field(default_factory=dict)

    def __call__(self, predictions: Predictions, features: Tensor | None) -> PerSample:
        return self.formula(predictions, **self.options)

    def state(self) -> ScorerState:
        return dict(self.options), {}


@dataclass(frozen=True)
class MembersScore(OutputScore):
    """One that looks at the members' logits too: `formula(predictions, members, **options) -> n`."""

    def __call__(self, predictions: Predictions, features: Tensor | None) -> PerSample:
        return self.formula(predictions, features, **self.options)


def output_score_facts(
    formula: Callable[..., PerSample],
    scale: str = "score",
    threshold: float | None = None,
    kind: type[OutputScore] = OutputScore,
) -> Options:
    """What the registry tells about a method without training."""

    def restore(numbers: JsonObject, tensors: dict[str, Tensor]) -> OutputScore:
        return kind(formula, numbers)

    wants = "members" if kind is MembersScore else "nothing"
    return {"trained": False, "wants": wants, "scale": scale, "threshold": threshold, "restore": restore}


def need_real_logits(predictions: Predictions, word: str) -> Tensor:
    """The logits, refused where they are only the logarithm of probabilities: a constant was lost."""
    if predictions.from_probabilities:
        raise InputError(
            f"'{word}' needs logits, but these predictions came from probabilities; use 'mcp' or 'entropy'"
        )
    return predictions.need_logits(f"'{word}'")


# Largest class probability.


def largest_probability(predictions: Predictions) -> PerSample:
    """max_k p_k of every sample in float64: float32 would tie all that round to 1."""
    return torch.from_numpy(predictions.facts.sureness())


@TRUST.add(
    "mcp",
    paper="Hendrycks & Gimpel, 2017, arXiv:1610.02136",
    **output_score_facts(largest_probability, scale="probability", threshold=0.5),
)
def mcp(predictions: Predictions | None = None, features: FeatureRows | None = None) -> OutputScore:
    """Maximum class probability, max_k p_k: the baseline every other predictor must beat.

    When: always first.
    When not: data from elsewhere are the fear: networks are sure there too.

    Args:
        predictions: not used: nothing is fitted.
        features: not used.

    Returns:
        The scorer, which `trust.fit` puts into a `Trust`.

    Example:
        >>> import torch
        >>> two = confide.Predictions(torch.tensor([[2.0, 0.0], [0.1, 0.0]]), torch.tensor([0, 1]))
        >>> [round(value, 3) for value in confide.trust.fit("mcp")(two).tolist()]
        [0.881, 0.525]
    """
    return OutputScore(largest_probability)


# Negative entropy of the predicted distribution.


def negative_entropy(predictions: Predictions) -> PerSample:
    """sum_k p_k log p_k of every sample, natural logarithm."""
    return -predictions.facts.need("entropy")


@TRUST.add("entropy", paper="Hendrycks & Gimpel, 2017, arXiv:1610.02136", **output_score_facts(negative_entropy))
def entropy(predictions: Predictions | None = None, features: FeatureRows | None = None) -> OutputScore:
    """Negative entropy, sum_k p_k log p_k: 0 where one class has all, -log c where all are equal.

    When: all classes' shares of the doubt matter.
    When not: top errors are ranked: max-softmax does as well.

    Args:
        predictions: not used: nothing is fitted.
        features: not used.

    Returns:
        The scorer, which `trust.fit` puts into a `Trust`.

    Example:
        >>> import torch
        >>> two = confide.Predictions(torch.tensor([[2.0, 0.0], [0.1, 0.0]]), torch.tensor([0, 1]))
        >>> [round(value, 3) for value in confide.trust.fit("entropy")(two).tolist()]
        [-0.365, -0.692]
    """
    return OutputScore(negative_entropy)


# Lead of the predicted class over the runner-up.


def probability_margin(predictions: Predictions) -> PerSample:
    """p_(1) - p_(2) of every sample."""
    return predictions.facts.need("margin")


@TRUST.add(
    "margin", paper="Scheffer et al., 2001, doi:10.1007/3-540-44816-0_31", **output_score_facts(probability_margin)
)
def margin(predictions: Predictions | None = None, features: FeatureRows | None = None) -> OutputScore:
    """Softmax margin, p_(1) - p_(2): largest probability minus the second largest.

    When: two classes compete for the top.
    When not: there are more than two contenders: entropy sees them.

    Args:
        predictions: not used: nothing is fitted.
        features: not used.

    Returns:
        The scorer, which `trust.fit` puts into a `Trust`.

    Example:
        >>> import torch
        >>> two = confide.Predictions(torch.tensor([[2.0, 0.0], [0.1, 0.0]]), torch.tensor([0, 1]))
        >>> [round(value, 3) for value in confide.trust.fit("margin")(two).tolist()]
        [0.762, 0.05]
    """
    return OutputScore(probability_margin)


# Free energy of the logits.


def negative_energy(predictions: Predictions, temperature: float = 1.0) -> PerSample:
    """T log sum_k exp(z_k / T) of every sample."""
    logits = need_real_logits(predictions, "energy")
    if temperature == 1.0:
        return predictions.facts.need("energy")
    # Half precision has no room for a logit of 700 over a temperature of 0.01.
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return temperature * torch.logsumexp(wide / temperature, dim=1)


@TRUST.add(
    "energy",
    paper="Liu et al., 2020, arXiv:2010.03759",
    corners=({"temperature": 0.01}, {"temperature": 100.0}),
    ranges={"temperature": Interval(0.0, low_open=True, high_open=True)},
    **output_score_facts(negative_energy),
)
def energy(
    predictions: Predictions | None = None, features: FeatureRows | None = None, *, temperature: float = 1.0
) -> OutputScore:
    """Energy confidence, T log sum_k exp(z_k / T); compare within one model only, and never from probabilities.

    When: data from elsewhere are to be found.
    When not: errors on known data are to be found: on CIFAR-10 max-softmax is ahead; never from probabilities.

    Args:
        predictions: not used: nothing is fitted.
        features: not used.
        temperature: near 0 it is the largest logit; large values weigh all classes. Default: the choice of the paper.

    Returns:
        The scorer, which `trust.fit` puts into a `Trust`.

    Example:
        >>> import torch
        >>> two = confide.Predictions(torch.tensor([[2.0, 0.0], [0.1, 0.0]]), torch.tensor([0, 1]))
        >>> [round(value, 3) for value in confide.trust.fit("energy")(two).tolist()]
        [2.127, 0.744]
    """
    return OutputScore(negative_energy, {"temperature": temperature})


# Largest logit.


def largest_logit(predictions: Predictions) -> PerSample:
    """max_k z_k of every sample."""
    need_real_logits(predictions, "max_logit")
    return predictions.facts.need("max_logit")


@TRUST.add("max_logit", paper="Hendrycks et al., 2022, arXiv:1911.11132", **output_score_facts(largest_logit))
def max_logit(predictions: Predictions | None = None, features: FeatureRows | None = None) -> OutputScore:
    """Largest logit, max_k z_k; compare within one model only, and never from probabilities.

    When: data from elsewhere are to be found, with many classes.
    When not: errors on known data are to be found, or there are only probabilities.

    Args:
        predictions: not used: nothing is fitted.
        features: not used.

    Returns:
        The scorer, which `trust.fit` puts into a `Trust`.

    Example:
        >>> import torch
        >>> two = confide.Predictions(torch.tensor([[2.0, 0.0], [0.1, 0.0]]), torch.tensor([0, 1]))
        >>> [round(value, 3) for value in confide.trust.fit("max_logit")(two).tolist()]
        [2.0, 0.1]
    """
    return OutputScore(largest_logit)


# Largest logit over the norm of the centred logits: the norm, or plain confidence, that ranks held-out samples best.

NORMS = tuple(range(11))


@dataclass(frozen=True)
class LogitNorm:
    """Which p; 0 divides by nothing, None is the confidence."""

    p: int | None

    def __call__(self, predictions: Predictions, features: Tensor | None) -> PerSample:
        return predictions.facts.confidence if self.p is None else normalised_logit(predictions, self.p)

    def state(self) -> ScorerState:
        return {"p": self.p}, {}


def normalised_logit(predictions: Predictions, p: int) -> PerSample:
    """max_k (z_k - mean z) / |z - mean z|_p; p = 0 divides by nothing."""
    need_real_logits(predictions, "maxlogit_pnorm")
    logits = predictions.logits.double()
    centred = logits - logits.mean(dim=1, keepdim=True)
    top = centred.amax(dim=1)
    if p == 0:
        return top
    # Scaled by the largest first: tenth powers of large logits overflow.
    tiny = torch.finfo(torch.float64).tiny
    largest = centred.abs().amax(dim=1).clamp_min(tiny)
    norm = (centred / largest[:, None]).abs().pow(p).sum(dim=1).pow(1 / p).clamp_min(tiny)
    return top / largest / norm


def restore_logit_norm(numbers: JsonObject, tensors: dict[str, Tensor]) -> LogitNorm:
    """The scorer of a saved state."""
    return LogitNorm(None if numbers["p"] is None else int(numbers["p"]))


@TRUST.add(
    "maxlogit_pnorm",
    paper="Cattelan and Silva, 2024, arXiv:2305.15508",
    trained=True,
    wants="nothing",
    scale="score",
    threshold=None,
    restore=restore_logit_norm,
    learns_errors=True,
)
def maxlogit_pnorm(predictions: Predictions, features: FeatureRows | None = None) -> LogitNorm:
    """Largest logit over a norm, max_k (z_k - mean z) / |z - mean z|_p, p of 0 to 10 by the AURC of these samples.

    Falls back to the confidence where no p ranks better than that.

    When: a network ranks its errors badly by max-softmax.
    When not: max-softmax ranks well: it then falls back to it.

    Args:
        predictions: held-out ones, with logits.
        features: not used.

    Returns:
        The scorer, which `trust.fit` puts into a `Trust`.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions((1.0 + i % 4)[:, None] * torch.eye(3)[predicted], labels, split="val")
        >>> confide.trust.fit("maxlogit_pnorm", val)(val).shape
        torch.Size([60])
    """
    best, chosen = float(aurc(predictions)), None
    for p in NORMS:
        area = float(aurc(predictions, score=normalised_logit(predictions, p)))
        if area < best - 1e-12:
            best, chosen = area, p
    return LogitNorm(chosen)


# Scores over the logits of several members `s n c`: an ensemble, or passes with dropout.


def negative_entropy_of_probs(probs: Tensor, epsilon: float = 0.0) -> Tensor:
    """sum_k p_k log(p_k + epsilon) over the last dimension; 0 log 0 = 0."""
    return torch.xlogy(probs, probs + epsilon).sum(dim=-1)


# Disagreement between the members of an ensemble.

MEASURES = ("mutual_information", "predicted_class", "votes")


def agreement(predictions: Predictions, members: Tensor, measure: str = "predicted_class") -> PerSample:
    """How far the members agree, high = they agree."""
    probs = torch.softmax(members, dim=2)
    predicted = predictions.facts.prediction.to(members.device)
    if measure == "votes":
        return (members.argmax(dim=2) == predicted).to(probs.dtype).mean(dim=0)
    if measure == "predicted_class":
        return probs.mean(dim=0).gather(1, predicted[:, None]).squeeze(1)
    # -I = E[H(p)] negated against H(E[p]): 0 where all members say the same.
    return negative_entropy_of_probs(probs.mean(dim=0)) - negative_entropy_of_probs(probs).mean(dim=0)


@TRUST.add(
    "ensemble",
    paper="Lakshminarayanan et al., 2017, arXiv:1612.01474",
    corners=({"measure": "mutual_information"}, {"measure": "votes"}),
    choices={"measure": tuple(MEASURES)},
    **output_score_facts(agreement, kind=MembersScore),
)
def ensemble(
    predictions: Predictions | None = None, features: FeatureRows | None = None, *, measure: str = "predicted_class"
) -> MembersScore:
    """Ensemble agreement, mean_s p_s(predicted class); call it with the members' logits, s x n x c.

    When: several trained networks can be run.
    When not: one network is all there is, or the price counts.

    Args:
        predictions: not used: nothing is fitted.
        features: not used here; the members' logits are given in the call.
        measure: `predicted_class` is the members' mean probability of it, `votes` the share that predicts it,
            `mutual_information` the negative H(mean p) - mean H(p), which is disagreement alone.

    Returns:
        The scorer, which `trust.fit` puts into a `Trust`.

    Example:
        >>> import torch
        >>> two = confide.Predictions(torch.tensor([[2.0, 0.0], [0.1, 0.0]]), torch.tensor([0, 1]))
        >>> members = torch.stack([two.logits, two.logits + torch.tensor([0.0, 1.0])])
        >>> [round(value, 3) for value in confide.trust.fit("ensemble")(two, members).tolist()]
        [0.806, 0.407]
    """
    return MembersScore(agreement, {"measure": measure})


# Monte-Carlo dropout: entropy of the average over passes with dropout on.

AVERAGES = ("logits", "probs")


def averaged_negative_entropy(predictions: Predictions, members: Tensor, average: str = "logits") -> PerSample:
    """Negative entropy of softmax(mean logits), or of the mean of the passes' softmax."""
    if average == "logits":
        # 1e-9 inside the logarithm as in the released code of ConfidNet: it shows in the ninth digit only.
        return negative_entropy_of_probs(torch.softmax(members.mean(dim=0), dim=1), 1e-9)
    return negative_entropy_of_probs(torch.softmax(members, dim=2).mean(dim=0))


@TRUST.add(
    "mc_dropout",
    paper="Gal & Ghahramani, 2016, arXiv:1506.02142",
    corners=({"average": "probs"},),
    choices={"average": tuple(AVERAGES)},
    **output_score_facts(averaged_negative_entropy, kind=MembersScore),
)
def mc_dropout(
    predictions: Predictions | None = None, features: FeatureRows | None = None, *, average: str = "logits"
) -> MembersScore:
    """Monte-Carlo dropout, sum_k p_k log p_k of the average of s passes; call it with their logits, s x n x c.

    When: the network has dropout and may be run many times a sample.
    When not: one pass is all that can be paid.

    Args:
        predictions: not used: nothing is fitted.
        features: not used here; the members' logits are given in the call.
        average: of the `logits`, as ConfidNet does, or of the `probs`, the predictive distribution of the paper.

    Returns:
        The scorer, which `trust.fit` puts into a `Trust`.

    Example:
        >>> import torch
        >>> two = confide.Predictions(torch.tensor([[2.0, 0.0], [0.1, 0.0]]), torch.tensor([0, 1]))
        >>> members = torch.stack([two.logits, two.logits + torch.tensor([0.0, 1.0])])
        >>> [round(value, 3) for value in confide.trust.fit("mc_dropout")(two, members).tolist()]
        [-0.475, -0.674]
    """
    return MembersScore(averaged_negative_entropy, {"average": average})
