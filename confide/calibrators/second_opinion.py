"""A second opinion: the logits of a network joined with what another model, mostly one on pre-trained features, thinks
of the same samples.

softmax(a z + sum_j b_j g_j), with g_j the log class posterior of opinion j, is the product of experts with weights; NLL
is convex in (a, b). The weights b are drawn towards 0, which is plain temperature scaling, as strongly as predicts best
on samples that were not fitted on, and stay 0 where the gain there is within its noise: a weak opinion does no harm. A
map of the top class's log odds follows where the opinion counts, drawn towards the identity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.calibrators.base import CALIBRATORS, Calibrator, FittedValues, Values, log_odds, with_log_odds
from confide.calibrators.evidence import Evidence, Reference
from confide.checks import InputError, check_choice
from confide.numerics.gaussians import class_shares
from confide.numerics.logistic import IDENTITY, Logistic, Odds, fit_linear_classifier, fit_logistic
from confide.numerics.minimise import box_newton
from confide.numerics.neighbours import nearest_neighbours
from confide.registry import Interval
from confide.types import Floats, Labels, Logits, PerSample

# Opinions from feature rows: class posteriors of a model that is fitted on training samples.

LOGISTIC_PENALTY = 1e-3


def fit_gaussian(reference: Reference, neighbours: int) -> dict[str, Tensor]:
    """The class Gaussians of a difficulty fit, as few numbers as posterior and relative distance need."""
    model = reference.gaussians
    projection, counts = model.projection, model.gaussians.counts
    # A direction in which no class lies elsewhere is chosen by rounding and says nothing of a class.
    telling = projection.inverse_total < 1 - 1e-9
    telling |= not telling.any()
    parts = {"origin": projection.origin, "matrix": projection.matrix[:, telling]}
    parts |= {"centres": projection.centres[:, telling], "inverse_total": projection.inverse_total[telling]}
    parts["shares"] = np.where(counts, class_shares(model.gaussians), 0.0)
    return {name: torch.as_tensor(np.ascontiguousarray(part), dtype=torch.float64) for name, part in parts.items()}


def gaussian_posterior(values: Values, features: Tensor) -> Logits:
    """log prior_k - d_k / 2, d_k the squared Mahalanobis distance to class k; what all classes share is left out."""
    rows = (features.double() - values["origin"]) @ values["matrix"]
    centres, shares = values["centres"], values["shares"]
    table = rows @ centres.T - centres.square().sum(dim=1) / 2 + shares.clamp_min(1e-300).log()
    # A class without training samples is as unlikely as the least likely of the others.
    least = table.masked_fill(shares == 0, torch.inf).amin(dim=1, keepdim=True)
    return torch.where(shares == 0, least, table)


def gaussian_difficulty(values: Values, features: Tensor) -> PerSample:
    """Distance to the likeliest class minus that to all data, as the difficulty `rmd` without labels."""
    rows = (features.double() - values["origin"]) @ values["matrix"]
    likeliest = gaussian_posterior(values, features).argmax(dim=1)
    own = (rows - values["centres"][likeliest]).square().sum(dim=1)
    return own - rows.square() @ values["inverse_total"]


def fit_class_regression(reference: Reference, neighbours: int) -> dict[str, Tensor]:
    """Logistic regression of the class on the training rows."""
    rows, labels = reference.labelled_rows
    floats = torch.as_tensor(rows, dtype=torch.float32)
    fitted = fit_linear_classifier(floats, torch.from_numpy(labels), reference.num_classes, LOGISTIC_PENALTY)
    return {"weight": fitted.weight, "bias": fitted.bias}


def regression_posterior(values: Values, features: Tensor) -> Logits:
    """x W + b."""
    return features.double() @ values["weight"] + values["bias"]


def fit_votes(reference: Reference, neighbours: int) -> dict[str, Tensor]:
    """The training rows themselves, with their labels."""
    rows, labels = reference.labelled_rows
    shares = np.bincount(labels, minlength=reference.num_classes) / len(labels)
    points = torch.as_tensor(rows, dtype=torch.float32)
    count = torch.tensor(min(neighbours, len(labels)))
    return {"rows": points, "labels": torch.from_numpy(labels), "shares": torch.from_numpy(shares), "neighbours": count}


def votes_posterior(values: Values, features: Tensor) -> Logits:
    """log of (votes of the nearest training samples + the class's share) / (votes + 1)."""
    count, shares = int(values["neighbours"]), values["shares"]
    _, nearest = nearest_neighbours(features.float().cpu().numpy(), values["rows"].float().cpu().numpy(), count)
    votes = torch.nn.functional.one_hot(values["labels"][torch.from_numpy(nearest).to(shares.device)], len(shares))
    return ((votes.sum(dim=1) + shares.clamp_min(0.5 / len(values["labels"]))) / (count + 1)).log()


OPINIONS = {
    "gaussian": (fit_gaussian, gaussian_posterior),
    "logistic": (fit_class_regression, regression_posterior),
    "knn": (fit_votes, votes_posterior),
}
"""Opinion from features -> its fit on training samples, and its log posterior up to a constant of the sample."""


def part_of(values: Values, name: str) -> dict[str, Tensor]:
    """The values under that name."""
    return {key.partition(".")[2]: value for key, value in values.items() if key.startswith(f"{name}.")}


def posteriors(values: Values, evidence: Evidence) -> list[Logits]:
    """Log posterior `n c` of every opinion: those from features in the order of `OPINIONS`, then other models'."""
    tables = [
        posterior(part, evidence.need_features)
        for word, (_, posterior) in OPINIONS.items()
        if (part := part_of(values, word))
    ]
    return [torch.log_softmax(table, dim=1) for table in (*tables, *evidence.opinions.values())]


def opinion_names(calibrator: Calibrator) -> tuple[str, ...]:
    """What the opinions of a fitted calibrator are called, in the order of its weights.

    Args:
        calibrator: a fitted `second_opinion`.

    Returns:
        Words of opinions from features, then the names of other models.

    Example:
        >>> import torch
        >>> labels = torch.arange(60) % 3
        >>> val = confide.Predictions(2.0 * torch.eye(3)[labels], labels, split="val")
        >>> calibrator = confide.calibrators.fit("second_opinion", val, opinions={"other": val})
        >>> confide.calibrators.opinion_names(calibrator)
        ('other',)
    """
    return (*(word for word in OPINIONS if part_of(calibrator.values, word)), *calibrator.opinions)


# The sum of logits and opinions with the best likelihood.

LARGEST_WEIGHT = 1e3
"""Of the network, in units of its logits' spread, and of an opinion: beyond it every answer is certain."""
SCALED_TO = -10.0
"""Mean log-probability of the least likely class that an opinion is scaled to."""
PENALTIES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, math.inf)
"""Of the squared weights of opinions; infinite is plain temperature scaling."""
CLEAR_GAIN = 2.0
"""Standard errors by which a held-out gain must exceed nothing."""
FOLDS = 5
FEWEST = 10 * FOLDS
"""Samples below which no fold could tell whether an opinion helps."""


@dataclass(frozen=True, eq=False)
class WeightedSum:
    """Tables `j n c`, the logits and the opinions, and the labels: NLL of softmax(sum_j x_j S_j) and its moments."""

    tables: Floats
    labels: NDArray[np.int64]
    counts: Floats
    """How much each sample counts."""

    def take(self, rows: NDArray[np.intp]) -> WeightedSum:
        return WeightedSum(self.tables[:, rows], self.labels[rows], self.counts[rows])

    def losses(self, weights: Floats) -> Floats:
        """NLL of every sample."""
        logits = np.tensordot(weights, self.tables, 1)
        lead = logits.max(axis=1)
        own = logits[np.arange(len(logits)), self.labels]
        return np.asarray(np.log(np.exp(logits - lead[:, None]).sum(axis=1)) + lead - own)

    def moments(self, weights: Floats) -> tuple[float, Floats, Floats]:
        """Mean NLL, its slope E[S_j] - S_jy and its curvature Cov[S_j, S_l], moments under the softmax."""
        tables, n, total_count = self.tables, len(self.labels), self.counts.sum()
        logits = np.tensordot(weights, tables, 1)
        logits -= logits.max(axis=1, keepdims=True)
        probs = np.exp(logits)
        total = probs.sum(axis=1, keepdims=True)
        probs /= total
        rows = np.arange(n)
        loss = float((np.log(total[:, 0]) - logits[rows, self.labels]) @ self.counts) / total_count
        means = np.einsum("nc,jnc->jn", probs, tables)
        slope = (means - tables[:, rows, self.labels]) @ self.counts / total_count
        weighted = (tables * (probs * self.counts[:, None])).reshape(len(tables), -1)
        squares = weighted @ tables.reshape(len(tables), -1).T
        return loss, slope, (squares - (means * self.counts) @ means.T) / total_count

    def fit(self, penalty: float, start: Floats) -> Floats:
        """Weights, none below 0, with the smallest NLL + penalty |opinions' weights|^2."""
        high = np.full(len(self.tables), LARGEST_WEIGHT)
        ridge = np.zeros(len(self.tables))
        if math.isinf(penalty):
            high[1:] = 0.0
        else:
            ridge[1:] = penalty

        def moments(weights: Floats) -> tuple[float, Floats, Floats]:
            loss, slope, curvature = self.moments(weights)
            penalised = slope + 2 * ridge * weights
            return loss + float(ridge @ weights**2), penalised, curvature + 2 * np.diag(ridge)

        return box_newton(moments, start, np.zeros_like(high), high)

    def odds(self, weights: Floats) -> Odds:
        """Log odds of every sample's top class, and whether it is right."""
        logits = np.tensordot(weights, self.tables, 1)
        top = logits.argmax(axis=1)
        values = log_odds(torch.from_numpy(logits), torch.from_numpy(top)).numpy()
        return Odds(values, top == self.labels, self.counts)


# The calibrator.

MAP_PENALTIES = (1.0, 10.0, 100.0, 1000.0, math.inf)
KEPT_PENALTIES = (1.0, 10.0, 100.0, 1000.0, math.inf)
CHOICES = ("free", "kept")


def apply_second_opinion(values: Values, logits: Logits, evidence: Evidence) -> Logits:
    """The weighted sum, then the map of the top class's odds; `kept`: the network's class, with odds of being right."""
    tables = [logits, *(g * s for g, s in zip(posteriors(values, evidence), values["scales"], strict=True))]
    weights = torch.cat([values["network"].reshape(1), values["weights"]])
    joined = sum(weight * table for weight, table in zip(weights, tables, strict=True))
    assert isinstance(joined, Tensor)
    regression = part_of(values, "kept")
    if regression:
        classes = logits.argmax(dim=1)
        signals = kept_signals(values, logits, classes, evidence)
        odds = ((signals - regression["mean"]) / regression["deviation"]) @ regression["weight"] + regression["bias"]
        return with_log_odds(joined, classes, odds)
    classes = joined.argmax(dim=1)
    slope, shift = values["map"]
    return with_log_odds(joined, classes, slope * log_odds(joined, classes) + shift)


def kept_signals(values: Values, logits: Logits, classes: Tensor, evidence: Evidence) -> Tensor:
    """What tells whether the network's class is right, `n j`: its own log odds and margin first, then the opinions."""
    probs = torch.softmax(logits * values["network_alone"], dim=1)
    top = probs.topk(min(2, probs.shape[1]), dim=1).values
    columns = [log_odds(logits * values["network_alone"], classes), top[:, 0] - top[:, -1]]
    for table in posteriors(values, evidence):
        own = table.gather(1, classes[:, None]).squeeze(1)
        columns += [own, table.amax(dim=1) - own]
    gaussian = part_of(values, "gaussian")
    if gaussian:
        columns.append(gaussian_difficulty(gaussian, evidence.need_features))
    return torch.stack(columns, dim=1)


def _words(opinion: str) -> list[str]:
    """The kinds of opinions that a text with commas names."""
    words = sorted({word.strip() for word in str(opinion).split(",")})
    for word in words:
        check_choice(word, OPINIONS, "opinion")
    return words


@CALIBRATORS.add(
    "second_opinion",
    paper="Confide; a product of experts (Hinton, 2002) with the Gaussian posterior of Lee et al., 2018",
    title="a second opinion",
    corners=({"opinion": "logistic"}, {"opinion": "knn", "neighbours": 5}, {"classes": "kept"}),
    ranges={"neighbours": Interval(1)},
    choices={"classes": CHOICES},
    check=lambda options: _words(options["opinion"]),
    keeps_argmax=("classes", "kept"),
    yields="probabilities",
    parameters=(4, 0, 0),
    transform=apply_second_opinion,
    wants="opinions",
)
def second_opinion(
    logits: Logits,
    labels: Labels,
    weights: Floats | None = None,
    *,
    evidence: Evidence,
    opinion: str = "gaussian",
    classes: str = "free",
    neighbours: int = 50,
) -> FittedValues:
    """A second opinion, softmax(a z + b g) with g the log class posterior of another model, then a map of the top odds.

    When: features of a pre-trained network are at hand: the largest gain measured here in accuracy, NLL and AURC.
    When not: a second network on every sample is too dear, or corruption is what is feared: little is gained there.

    Args:
        logits: of held-out samples, `n c`; `calibrators.fit` checks them and puts its result into a `Calibrator`.
        labels: their classes, `n`.
        weights: how much each sample counts, of mean 1.
        evidence: what `calibrators.fit` makes of `features`, `fitted` and `opinions`.
        opinion: from features: `gaussian` (the class Gaussians of a fitted rmd), `logistic` regression, `knn` votes;
            several with commas.
        classes: `free`, or `kept` where the predicted class may not change: then the opinion moves its confidence.
        neighbours: training samples that vote in `knn`.

    Returns:
        The fitted values: the weights of `network` and opinions, and the `strength` from 0 (plain temperature) to 1.

    Raises:
        InputError: neither features with `fitted` nor `opinions`.

    Example:
        >>> import torch
        >>> i = torch.arange(300)
        >>> labels, generator = i % 3, torch.Generator().manual_seed(0)
        >>> draw = lambda: torch.randn(300, 3, generator=generator) + 2 * torch.eye(3)[labels]
        >>> val, other = (confide.Predictions(draw(), labels, split="val") for _ in range(2))
        >>> calibrator = confide.calibrators.fit("second_opinion", val, opinions={"other": other})
        >>> joined = calibrator(val, opinions={"other": other})
        >>> [round(float(p.facts.correct.double().mean()), 2) for p in (val, joined)]
        [0.84, 0.96]
    """
    values: dict[str, Tensor] = {}
    if evidence.reference is not None:
        for word in _words(opinion):
            fit = partial(OPINIONS[word][0], evidence.reference, neighbours)
            fitted = evidence.reference.once((word, neighbours), fit)
            values |= {f"{word}.{name}": value for name, value in fitted.items()}
    elif not evidence.opinions:
        raise InputError(
            "calibrator 'second_opinion' needs an opinion: features= and fitted= of the training split, or opinions="
        )
    tables = posteriors(values, evidence)
    scales = torch.stack([SCALED_TO / table.amin(dim=1).mean().clamp_max(-1e-6) for table in tables])
    counts = np.ones(len(labels)) if weights is None else weights
    sums = WeightedSum(
        np.stack([logits.double().numpy(), *((g * s).numpy() for g, s in zip(tables, scales, strict=True))]),
        labels.numpy(),
        counts,
    )
    spread = _spread(sums.tables[0])
    sums.tables[0] /= spread
    chosen = _chosen_weights(sums, evidence)
    values |= {
        "network": torch.tensor(chosen.weights[0] / spread, dtype=torch.float64),
        "weights": torch.from_numpy(chosen.weights[1:].copy()),
        "scales": scales,
        "map": torch.from_numpy(chosen.map.copy()),
        "strength": torch.tensor(1 / (1 + chosen.penalty), dtype=torch.float64),
    }
    notes = [chosen.note] if chosen.note else []
    if classes == "kept":
        values["network_alone"] = torch.tensor(chosen.alone / spread, dtype=torch.float64)
        regression, note = _kept_regression(values, logits.double(), labels, counts, evidence)
        values |= regression
        notes = [note] if note else []
    return FittedValues(values, tuple(notes))


def _spread(logits: Floats) -> float:
    """Typical distance of a logit from the largest of its row."""
    distance = logits.max(axis=1) - logits.mean(axis=1)
    return float(np.median(distance)) or float(distance.mean()) or 1.0


@dataclass(frozen=True, eq=False)
class _Chosen:
    """Weights of network and opinions, that of the network without any, the penalty, and the map of the odds."""

    weights: Floats
    alone: float
    penalty: float
    map: Floats
    note: str = ""


def _chosen_weights(sums: WeightedSum, evidence: Evidence) -> _Chosen:
    """The penalty with the smallest held-out NLL, of equals the largest, and the map likewise."""
    start = np.append(1.0, np.zeros(len(sums.tables) - 1))
    alone = sums.fit(math.inf, start)
    folds = evidence.folds
    if folds is None or len(sums.labels) < FEWEST:
        note = f"{len(sums.labels)} samples are too few to tell whether the opinion helps, so it gets no weight"
        return _Chosen(alone, alone[0], math.inf, IDENTITY, note)
    used = np.flatnonzero(folds < FOLDS)
    losses = np.zeros((len(PENALTIES), len(sums.labels)))
    odds = [Odds.empty(sums.counts) for _ in PENALTIES]
    for fold in np.unique(folds[used]):
        train, held = sums.take(used[folds[used] != fold]), used[folds[used] == fold]
        inside, weights = sums.take(held), alone
        # From the strongest penalty to none: each fit starts where the last one ended.
        for k, penalty in reversed(list(enumerate(PENALTIES))):
            weights = train.fit(penalty, weights)
            losses[k, held] = inside.losses(weights)
            odds[k].put(held, inside.odds(weights))
    best = safest(losses[:, used], sums.counts[used])
    weights = sums.fit(PENALTIES[best], alone)
    if not weights[1:].any():
        note = "the opinion does not predict better than temperature scaling alone, so it gets no weight"
        return _Chosen(alone, alone[0], math.inf, IDENTITY, note)
    line = odds[best].take(used).chosen_map(folds[used], MAP_PENALTIES)
    return _Chosen(weights, alone[0], PENALTIES[best], line)


def safest(losses: Floats, counts: Floats) -> int:
    """The row with the smallest mean loss among those that beat the last one by more than noise; else the last."""
    share, n = counts / counts.sum(), len(counts)
    gains = losses[-1] - losses
    mean = gains @ share
    noise = np.sqrt(((gains - mean[:, None]) ** 2 @ share**2) * n / max(n - 1, 1))
    clear = mean > CLEAR_GAIN * noise
    return int(np.where(clear, losses @ share, math.inf).argmin()) if clear.any() else len(losses) - 1


def _kept_regression(
    values: Values, logits: Logits, labels: Labels, counts: Floats, evidence: Evidence
) -> tuple[dict[str, Tensor], str]:
    """Logistic regression of being right on the signals, with the opinions where that predicts better held out."""
    classes = logits.argmax(dim=1)
    signals = kept_signals(values, logits, classes, evidence).numpy()
    correct = (classes == labels).numpy()

    alone = np.append(1.0, np.zeros(signals.shape[1] - 1))
    penalty, folds = math.inf, evidence.folds
    if folds is not None and len(labels) >= FEWEST:
        used = np.flatnonzero(folds < FOLDS)
        losses = np.zeros((len(KEPT_PENALTIES), len(labels)))
        for fold in np.unique(folds[used]):
            held, train = used[folds[used] == fold], used[folds[used] != fold]
            for k, each in enumerate(KEPT_PENALTIES):
                odds = signals[held] @ alone
                if not math.isinf(each):
                    fitted = fit_logistic(signals[train], correct[train], each, counts[train])
                    parts, bias = fitted.contributions(signals[held])
                    odds = parts.sum(axis=1) + bias
                losses[k, held] = Odds(odds, correct[held], counts[held]).losses()
        penalty = KEPT_PENALTIES[safest(losses[:, used], counts[used])]
    strength = {"strength": torch.tensor(1 / penalty, dtype=torch.float64)}
    if math.isinf(penalty):
        # The odds of plain temperature scaling, the first signal.
        regression = Logistic(0 * alone, 0 * alone + 1, alone, 0.0)
        note = "the opinion does not tell better whether a prediction is right, so it gets no weight"
    else:
        regression, note = fit_logistic(signals, correct, penalty, counts), ""
    state = {f"kept.{name}": torch.from_numpy(value) for name, value in regression.state().items()}
    return {**state, **strength}, note
