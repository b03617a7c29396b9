"""Trust predictors side by side on one split: ranking, decisions at their own line, and paired tests against one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from confide.checks import InputError
from confide.evaluation.compare import compare, holm_corrected, mcnemar
from confide.evaluation.evaluate import ModelStage, evaluate, measurements, metric_requests
from confide.metrics import explain, table_words, tnr, tpr
from confide.metrics.intervals import THEORY
from confide.metrics.view import View, metric_samples
from confide.predictions import Predictions
from confide.records import Scores
from confide.results import LEVEL, About, ComparedRow, Comparison, Curve, Evaluation, Measurement, Z
from confide.types import Floats

if TYPE_CHECKING:
    from confide.difficulty.weights import Agreement

DECIDING = ("auroc", "aurc")
"""A predictor is better than another when it is so by one of these and not worse by the other."""


@dataclass(frozen=True, eq=False)
class TrustValues:
    """Values of one predictor on the split, high = safe, and its own line where it has one.

    `order` ranks the samples where the values cannot: the sigmoid of every logit above 37 is 1.
    """

    values: Floats
    threshold: float | None = None
    order: Floats | None = None

    @classmethod
    def of(cls, values: torch.Tensor, threshold: float | None, scale: str) -> TrustValues:
        """Logits and ratios come to [0, 1]: one sample on top of another has a ratio of 1e12."""
        wide = values.detach().to(torch.float64).cpu()
        if scale == "logit":
            bounded, line = torch.sigmoid(wide), None if threshold is None else 1 / (1 + math.exp(-threshold))
        elif scale == "ratio":
            bounded, line = wide / (1 + wide), None if threshold is None else threshold / (1 + threshold)
        else:
            return cls(wide.numpy(), threshold)
        distinct = len(torch.unique(bounded)) == len(torch.unique(wide))
        return cls(bounded.numpy(), line, None if distinct else wide.numpy())

    @property
    def ranking(self) -> Floats:
        """What ranks the samples."""
        return self.values if self.order is None else self.order


def trust_score(predictor: str) -> str:
    """The name of a predictor's score in an evaluation; max-softmax is the model's own confidence."""
    return "msp" if predictor == "mcp" else f"trust:{predictor}"


def compare_trust(
    predictions: Predictions,
    scores: Mapping[str, TrustValues],
    *,
    baseline: str = "mcp",
    intervals: bool = True,
    seed: int = 0,
    about: About | None = None,
) -> Evaluation:
    """Every metric of every predictor with intervals, and paired tests of each against the baseline.

    Args:
        predictions: of the test split.
        scores: values by name; the baseline must be among them.
        baseline: the name that all others are tested against; `mcp` is the maximum softmax probability.
        intervals: False gives the values alone: no intervals and no tests.
        seed: of the resamples.
        about: what the report says of it.

    Returns:
        An Evaluation; `about.verdict` says in one sentence which predictors beat the baseline.

    Raises:
        InputError: the baseline is not among the scores.

    Example:
        >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1, 1])
        >>> from confide.evaluation import TrustValues
        >>> scores = {"mcp": TrustValues.of(p.facts.confidence, 0.5, "score")}
        >>> scores["margin"] = TrustValues.of(p.facts.margin, None, "score")
        >>> evaluation = confide.evaluation.compare_trust(p, scores, intervals=False)
        >>> round(evaluation.value("auroc", score="trust:margin"), 3)
        0.833
    """
    if baseline not in scores:
        raise InputError(f"the baseline '{baseline}' must be among the predictors, got {', '.join(scores)}")
    predictions.need_unweighted("a comparison of trust predictors")
    names = {name: trust_score(name) for name in scores}
    ranking = {names[name]: score.ranking for name, score in scores.items()}
    evaluation = evaluate(
        predictions, [*table_words("trust"), "accuracy"], intervals, score=ranking, seed=seed, about=about
    )
    values = {names[name]: score.values for name, score in scores.items()}
    apart, _ = metric_requests(separation_words(), predictions, values)
    tag = ModelStage("model", "raw", predictions.split)
    separation = measurements(View(metric_samples(predictions)), apart, tag, seed, THEORY if intervals else None)
    decisions = [
        replace(rate(predictions, threshold=score.threshold, score=score.values), score=names[name])
        for name, score in scores.items()
        if score.threshold is not None
        for rate in (tpr, tnr)
    ]
    if intervals:
        decisions = [score.with_interval() for score in decisions]
    comparisons = paired_tests(predictions, scores, baseline, seed) if intervals else ()
    return replace(
        evaluation,
        measurements=(*evaluation.measurements, *separation, *decisions),
        curves=(*evaluation.curves, *outcome_histograms(predictions, scores, names)),
        comparisons=comparisons,
        about=replace(evaluation.about, verdict=trust_verdict(comparisons, baseline) if intervals else None),
    )


def separation_words() -> list[str]:
    """The metrics of how far the scores of right and wrong predictions lie apart."""
    return [word for word, info in explain(table_words("decisions")).items() if info.kind == "separation"]


def paired_tests(
    predictions: Predictions, scores: Mapping[str, TrustValues], baseline: str, seed: int
) -> tuple[Comparison, ...]:
    """Ranking and separability by resamples, decisions by the exact McNemar test; Holm-corrected over predictors."""
    others = [name for name in scores if name != baseline]
    if not others:
        return ()
    ranked = {name: predictions.replace(trust=torch.from_numpy(c.ranking)) for name, c in scores.items()}
    pairs = [(baseline, name) for name in others]
    comparisons = list(compare(ranked, metrics=table_words("trust"), score="trust", pairs=pairs, seed=seed))
    # Separability is of the values themselves, not of what ranks best.
    valued = {name: predictions.replace(trust=torch.from_numpy(c.values)) for name, c in scores.items()}
    comparisons += compare(valued, metrics=separation_words(), score="trust", pairs=pairs, seed=seed)
    correct = predictions.facts.correct.cpu().numpy()
    for name in others:
        comparisons += decision_tests(correct, scores[baseline], scores[name], (baseline, name))
    rows = {name: ComparedRow("model", "raw", trust_score(name)) for name in scores}
    return tuple(holm_corrected([replace(c, a=rows[str(c.a)], b=rows[str(c.b)]) for c in comparisons]))


def decision_tests(
    correct: NDArray[np.bool_], a: TrustValues, b: TrustValues, names: tuple[str, str]
) -> list[Comparison]:
    """TPR and TNR at each predictor's own line: differences, and the exact McNemar test of the discordant samples."""

    if a.threshold is None or b.threshold is None:
        return []
    accepts = [side.values >= side.threshold for side in (a, b)]  # type: ignore[operator]
    tests = []
    for metric, rows, accepted in (("tpr", correct, True), ("tnr", ~correct, False)):
        n = int(rows.sum())
        if not n:
            continue
        first, second = ((accept == accepted)[rows] for accept in accepts)
        gained, lost = int((second & ~first).sum()), int((first & ~second).sum())
        p_value = mcnemar(gained, lost) or 1.0
        difference = (gained - lost) / n
        spread = Z * math.sqrt(max((gained + lost) / n - difference**2, 0) / n)
        sides = ComparedRow.of(names[0]), ComparedRow.of(names[1])
        tests.append(Comparison(metric, *sides, difference, difference - spread, difference + spread, p_value, p_value))
    return tests


def outcome_histograms(
    predictions: Predictions, scores: Mapping[str, TrustValues], names: Mapping[str, str], bins: int = 20
) -> list[Curve]:
    """Right and wrong, trusted and not (TP, FP, TN, FN) by value, with an edge on the predictor's own line."""
    correct = predictions.facts.correct.cpu().numpy()
    wrong = ~correct
    curves = []
    for name, score in scores.items():
        if score.threshold is None:
            continue
        line = score.threshold
        low, high = float(min(score.values.min(), line)), float(max(score.values.max(), line))
        below = max(1, round(bins * (line - low) / max(high - low, 1e-300)))
        sides = np.linspace(low, line, below + 1), np.linspace(line, high, max(2, bins - below + 1))
        edges = np.unique(np.concatenate(sides))
        if len(edges) == 1:  # every value lies on the line
            edges = np.array([low, np.nextafter(low, np.inf)])
        trusted = score.values >= line
        groups = {"tp": correct & trusted, "fp": wrong & trusted, "tn": wrong & ~trusted, "fn": correct & ~trusted}
        counts = {key: np.histogram(score.values[rows], bins=edges)[0] for key, rows in groups.items()}
        columns = {"low": edges[:-1], "high": edges[1:], **counts}
        curves.append(Curve.of("trust_outcomes", columns, split=predictions.split, score=names[name]))
    return curves


def trust_verdict(comparisons: Sequence[Comparison], baseline: str = "mcp") -> str:
    """One plain sentence: which predictors beat the baseline, or that none does."""
    plain = "max-softmax" if baseline == "mcp" else f"'{baseline}'"
    better, worse = [], []
    for row in dict.fromkeys(c.b for c in comparisons):
        judged = [c.better for c in comparisons if c.b == row and c.metric in DECIDING]
        name = str(row.score).removeprefix("trust:")
        if "b" in judged and "a" not in judged:
            better.append(name)
        elif "a" in judged and "b" not in judged:
            worse.append(name)
    if not comparisons:
        return f"Nothing was compared with {plain}."
    if all(math.isnan(c.p_value) for c in comparisons if c.metric == "auroc"):
        return f"Nothing can be told of {plain} and others: the test predictions are all right, or all wrong."
    how = f"paired tests, Holm, p < {LEVEL}"
    if not better:
        return f"No predictor beats {plain}: no AUROC or AURC is significantly better ({how})."
    sentence = f"Better than {plain} by AUROC or AURC ({how}): {_listed(better)}."
    return sentence + (f" Worse: {_listed(worse)}." if worse else "")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" if "," in name else name for name in names)


def rates_at_same_tpr(
    predictions: Predictions, scores: TrustValues, baseline: TrustValues
) -> tuple[float, float, float]:
    """TPR and TNR of a predictor at its own line, and the baseline's TNR at the largest threshold with that TPR.

    Args:
        predictions: of the test split.
        scores: the predictor's values, with its line.
        baseline: the values of the other.

    Returns:
        (TPR, TNR, the baseline's TNR); NaN where the predictor has no line, or where no prediction is right or wrong.

    Example:
        >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1, 1])
        >>> from confide.evaluation import TrustValues
        >>> own = TrustValues.of(p.facts.confidence, 0.8, "score")
        >>> [round(rate, 2) for rate in confide.evaluation.rates_at_same_tpr(p, own, own)]
        [0.67, 1.0, 1.0]
    """
    if scores.threshold is None:
        return math.nan, math.nan, math.nan
    correct = predictions.facts.correct.cpu().numpy()
    trusted = scores.values >= scores.threshold
    right, wrong = int(correct.sum()), int((~correct).sum())
    true_positives, false_positives = int((trusted & correct).sum()), int((trusted & ~correct).sum())
    same = math.nan
    if right and wrong:
        # Where nothing is kept, the line lies above all: every error is caught.
        line = np.sort(baseline.ranking[correct])[right - true_positives] if true_positives else math.inf
        same = float((baseline.ranking[~correct] < line).mean())
    return true_positives / right if right else math.nan, 1 - false_positives / wrong if wrong else math.nan, same


def measurement_of(evaluation: Evaluation, score: str, metric: str) -> Measurement | None:
    """The measurement of one predictor, or None where it has none."""
    rows = (m for m in evaluation.measurements if m.metric == metric and m.score == score and m.group is None)
    return next(rows, None)


def rank_agreement(values: Mapping[str, TrustValues]) -> tuple[Agreement, ...]:
    """Kendall and Spearman correlations of every two trust predictors over the same samples.

    Args:
        values: of each predictor on the same samples in the same order, by its word.

    Returns:
        One `Agreement` a pair.

    Example:
        >>> import numpy as np
        >>> from confide.evaluation import TrustValues, rank_agreement
        >>> first, second = TrustValues(np.array([0.1, 0.5, 0.9])), TrustValues(np.array([0.2, 0.9, 0.5]))
        >>> pair, = rank_agreement({"mcp": first, "oracle": second})
        >>> pair.a, pair.b, round(pair.kendall, 3)
        ('mcp', 'oracle', 0.333)
    """
    from confide.difficulty.weights import agreement  # loads SciPy's statistics, which an evaluation does without

    places = np.arange(max((len(each.values) for each in values.values()), default=0))
    return agreement([Scores(places, each.ranking, word) for word, each in values.items()])
