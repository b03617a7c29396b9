"""How well a score tells right from wrong: risk-coverage areas, AUROC, AUPR, rates at a threshold, shares at a risk,
and the distance between the scores of both sides.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.checks import check_choice, check_range
from confide.metrics.base import Variant, metric, ranking_metric
from confide.metrics.influence import Influence, Steps, area_influence, tail_sums
from confide.metrics.view import Ranks, View, harmonic_at, harmonic_between, score_values
from confide.numerics.arrays import dot, exact, namespace, true_places
from confide.results import Z
from confide.types import Floats

# One step per distinct score: what the conventions of other packages look at, and losses other than errors need.

RISKS = ("error", "nll", "brier")


def _losses_by_score(view: View, score: Any, loss: str) -> tuple[NDArray[np.floating], Floats, Floats]:
    """Score, weight and weighted loss of every sample, in the order of the samples."""
    check_choice(loss, RISKS, "risk")
    values = score_values(view.predictions, view.base.rows_of(score))
    weights = np.ones(len(values)) if view.weights is None else view.weights
    return values, weights, weights * (view.base.wrong if loss == "error" else view.base.vector(loss))


def steps_of(view: View, score: Any, loss: str = "error") -> tuple[Floats, Ranks]:
    """The distinct scores, from the highest, and samples and losses accepted at each; ties are one step."""
    values, weights, losses = _losses_by_score(view, score, loss)
    distinct, place = np.unique(values, return_inverse=True)
    count, lost = (np.bincount(place, v, minlength=len(distinct))[::-1] for v in (weights, losses))
    there = count > 0
    tied = np.ones(int(there.sum()), dtype=np.bool_)
    ranks = Ranks(np.cumsum(count[there]), np.cumsum(lost[there]), tied, view.whole)
    return distinct[::-1][there].astype(np.float64), ranks


def in_given_order(view: View, score: Any, loss: str = "error") -> Ranks:
    """One step per sample, ties in the order of the samples."""
    values, weights, losses = _losses_by_score(view, score, loss)
    order = np.argsort(-values, kind="stable")
    none_tied = np.zeros(len(order), dtype=np.bool_)
    return Ranks(np.cumsum(weights[order]), np.cumsum(losses[order]), none_tied, view.whole)


def trapezoid_area(ranks: Ranks) -> float:
    """Area between risk and coverage by trapezoids, from the first step to the last but one; NaN with one point."""
    coverage, risk = ranks.accepted[:-1] / ranks.n, ranks.errors[:-1] / ranks.accepted[:-1]
    if len(coverage) < 2:
        return math.nan
    return float(((risk[1:] + risk[:-1]) / 2 * np.diff(coverage)).sum())


def aurc_influence(view: View, *, score: Any = "msp", risk: str = "error", **_: Any) -> Influence:
    """psi of AURC, of any area and order of ties; one more error adds what those there are add on average."""
    if risk != "error":
        return loss_area_influence(view, score, risk)
    steps = Steps.of(view, score)
    still, own = area_influence(steps)
    return steps.influence(still, own, steps.typical(own, view.base.effective_n))


def loss_area_influence(view: View, score: Any, risk: str) -> Influence:
    """psi of the AURC of a loss that is no error."""
    base = replace(view.base, resampled=True, _sorted={}, _vectors={})
    losses = base.vector(risk)
    steps = Steps.of(View(base, view.weights), score, losses)
    still, own = area_influence(steps)
    order = base.ordered(score).order
    psi = still[steps.index] + own[steps.index] * losses[order]
    return Influence(psi - view.weighted_mean(psi, order), order=order)


@ranking_metric(
    "aurc",
    paper="Geifman & El-Yaniv, 2017, arXiv:1705.08500",
    title="AURC",
    meaning="Average error rate over all shares of samples one might accept, most trusted first.",
    better="lower",
    unit="× 1000",
    tables={"core": 8, "models": 7, "summary": 6, "calibrated": 6, "trust": 5, "scores": 2, "shift": 5},
    corners=({"area": "trapezoid"}, {"ties": "given"}, {"ties": "given", "risk": "brier"}, {"risk": "brier"}),
    influence=aurc_influence,
    rare=True,
)
def aurc(view: View, *, score: Any = "msp", area: str = "mean", ties: str = "averaged", risk: str = "error") -> float:
    """Area under the risk-coverage curve, mean over k of (errors among the k safest) / k, ties averaged.

    When: one number for a system that may abstain.
    When not: models differ much in accuracy: it mixes accuracy and ranking; see eaurc.

    Args:
        area: `mean` over all n coverages; `trapezoid` between distinct scores, which leaves out both ends and is
            smaller (released code of Corbiere et al., 2019).
        ties: `averaged` over all orders of equal scores, or in the order `given`, as most released code leaves them.
        risk: what is averaged among the accepted: `error`, or the loss `nll` or `brier` (then the range is its own).

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.aurc(predictions)), 3)
        0.278
    """
    check_choice(area, ("mean", "trapezoid"), "area")
    check_choice(ties, ("averaged", "given"), "ties")
    if (area, ties, risk) == ("mean", "averaged", "error"):
        return view.ranks(score).area
    ranks = in_given_order(view, score, risk) if ties == "given" else steps_of(view, score, risk)[1]
    return ranks.area if area == "mean" else trapezoid_area(ranks)


# Excess area under the risk-coverage curve.


def best_area(n: float, wrong: float, form: str) -> float:
    """AURC of a perfect ranking: r + (1 - r) ln(1 - r) in the limit, or exactly for n samples."""
    check_choice(form, ("limit", "finite"), "form")
    rate = wrong / n
    if form == "limit":
        return rate + (1 - rate) * math.log1p(-rate) if rate < 1 else 1.0
    right = n - wrong
    of_all, of_right = harmonic_between(np.array([n, right], dtype=np.float64))
    # errors come last: sum over j = 1..wrong of j / (right + j) = wrong - right (H[n] - H[right])
    return float(wrong - right * (of_all - of_right)) / n


def eaurc_influence(view: View, *, score: Any = "msp", **_: Any) -> Influence:
    """psi of AURC less that of the best AURC, whose derivative in the error rate r is -ln(1 - r)."""
    steps = Steps.of(view, score)
    still, own = area_influence(steps)
    own -= -math.log1p(-steps.rate) if steps.rate < 1 else 0.0
    return steps.influence(still, own, max(steps.typical(own, view.base.effective_n), 0.0))


@ranking_metric(
    "eaurc",
    paper="Geifman et al., 2019, arXiv:1805.08206",
    title="E-AURC",
    meaning="AURC less that of a perfect ranking of the same errors; 0 if every error ranks last.",
    better="lower",
    unit="× 1000",
    tables={"core": 9, "trust": 6},
    corners=({"form": "finite"},),
    influence=eaurc_influence,
    rare=True,
)
def eaurc(view: View, *, score: Any = "msp", form: str = "limit", area: str = "mean") -> float:
    """Excess AURC, AURC - (r + (1 - r) ln(1 - r)) with the error rate r; the term is 1 at r = 1.

    When: ranking alone, at different accuracies.
    When not: the system's risk itself counts.

    Args:
        form: `limit` for the formula of the paper, `finite` for the best AURC of n samples (0 for a perfect ranking).
        area: `mean` or `trapezoid`, as for AURC; by trapezoids the excess of a good ranking may be below 0.

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.eaurc(predictions)), 3)
        0.215
    """
    check_choice(area, ("mean", "trapezoid"), "area")
    ranks = view.ranks(score)
    own_area = ranks.area if area == "mean" else trapezoid_area(steps_of(view, score)[1])
    return own_area - best_area(ranks.n, ranks.wrong, form)


def augrc_influence(view: View, *, score: Any = "msp") -> Influence:
    """psi of the mean of the errors accepted at each sample's score: these errors + l (1 - coverage)."""
    steps = Steps.of(view, score)
    rejected = 1 - steps.before - steps.mass / 2
    typical = steps.typical(rejected, view.base.effective_n)
    return steps.influence(steps.errors_before + steps.lost / 2, rejected, typical)


@ranking_metric(
    "augrc",
    paper="Traub et al., 2024, arXiv:2407.01032",
    title="AUGRC",
    meaning="The share of samples accepted and wrong, averaged over all shares one might accept.",
    better="lower",
    range=(0.0, 0.5),
    unit="× 1000",
    tables={"core": 10},
    influence=augrc_influence,
    rare=True,
)
def augrc(view: View, *, score: Any = "msp") -> float:
    """Area under (errors accepted) / n over coverage, by trapezoids through (0, 0) and one point per distinct score.

    Equals (1 - AUROC) a (1 - a) + (1 - a)^2 / 2 with accuracy a; 0 if all are right, 1/2 if all are wrong.

    When: one number for a system that may abstain, on the scale of errors.
    When not: the threshold is fixed: look at the operating point.

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.augrc(predictions)), 3)
        0.167
    """
    ranks = view.ranks(score)
    return sum(dot(part.size, part.errors_before + part.errors) for part in ranks.parts()) / 2 / ranks.n**2


def auroc_influence(view: View, *, score: Any = "msp") -> Influence:
    """psi of DeLong et al., 1988: for a right sample the share of errors below it, for an error of right ones above."""
    steps = Steps.of(view, score)
    rate, errors = steps.rate, steps.errors_before + steps.lost / 2
    below, above = 1 - errors / rate, (steps.before + steps.mass / 2 - errors) / (1 - rate)
    value = dot(below, steps.right) / (1 - rate)
    of_right, of_wrong = (below - value) / (1 - rate), (above - value) / rate
    return steps.influence(of_right, of_wrong - of_right)


@ranking_metric(
    "auroc",
    paper="Hendrycks & Gimpel, 2017, arXiv:1610.02136",
    title="AUROC",
    meaning="Chance that a right prediction is trusted more than a wrong one. 50 % is a coin.",
    better="higher",
    tables={"core": 11, "models": 8, "summary": 7, "trust": 1, "scores": 1, "shift": 6, "ood": 1},
    influence=auroc_influence,
)
def auroc(view: View, *, score: Any = "msp") -> float:
    """AUROC of correct against wrong, P(score of a correct > score of a wrong) + P(tie) / 2.

    Undefined (NaN) where all samples are correct or all wrong.

    When: does confidence rank right above wrong, whatever the accuracy?
    When not: only the safest part is used: look at risk_at_coverage.

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.auroc(predictions)), 3)
        0.5
    """
    ranks = view.ranks(score)
    right = ranks.n - ranks.wrong
    if right == 0 or ranks.wrong == 0:
        return math.nan
    above = 0.0
    for part in ranks.parts():
        above += dot(part.size - part.new_errors, ranks.wrong - (part.errors_before + part.errors) / 2)
    return above / (right * ranks.wrong)


def precision_influence(hits: Floats, mass: Floats) -> tuple[Floats, Floats]:
    """psi of average precision, sum over hits of the precision at their score, over the share of hits.

    A sample moves the precision at every score that accepts it: sum over hits i from its own on of
    (hit - precision_i) / accepted_i. Returns psi of a sample that is no hit, and of one that is.
    """
    total, accepted = float(hits.sum()), np.cumsum(mass)
    precision = np.cumsum(hits) / accepted
    others, own = tail_sums(hits * precision / accepted), tail_sums(hits / accepted)
    value = dot(hits, precision) / total
    return -others / total, (precision + own - others - value) / total


def success_influence(view: View, *, score: Any = "msp") -> Influence:
    """psi of the average precision of right samples."""
    steps = Steps.of(view, score)
    of_wrong, of_right = precision_influence(steps.right, steps.mass)
    return steps.influence(of_right, of_wrong - of_right)


@ranking_metric(
    "aupr_success",
    paper="Hendrycks & Gimpel, 2017, arXiv:1610.02136",
    title="AUPR, right",
    meaning="How purely the highest scores hold correct samples; a guess gets the accuracy.",
    better="higher",
    tables={"core": 12, "trust": 2},
    variants=(
        Variant(
            "aupr_in",
            title="AUPR, known",
            meaning="How purely the highest scores hold samples of known classes; a guess gets their share.",
            tables={"ood": 2},
        ),
    ),
    influence=success_influence,
)
def aupr_success(view: View, *, score: Any = "msp") -> float:
    """Average precision of correct samples, sum over distinct scores of (recall gained) x precision (steps).

    Undefined (NaN) where no sample is correct.

    When: right samples are rare.
    When not: accuracy is high: it is then near 100 % for all.

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.aupr_success(predictions)), 3)
        0.833
    """
    ranks = view.ranks(score)
    right = ranks.n - ranks.wrong
    if right == 0:
        return math.nan
    lost = 0.0
    for part in ranks.parts():
        gained = part.size - part.new_errors
        # One precision for a tie; over a run of correct samples k the precisions 1 - E / k sum up.
        where = namespace(gained).where
        of_ties = where(part.tied, gained * part.errors / where(part.accepted > 0, part.accepted, 1.0), 0.0)
        run = true_places(~part.tied & (gained > 0))
        lost += float(of_ties.sum()) + dot(part.errors[run], part.rise[run])
    return (right - lost) / right


def error_influence(view: View, *, score: Any = "msp", form: str = "negated") -> Influence:
    """psi of the average precision of errors, from the least safe on."""
    steps = Steps.of(view, score)
    turn = -1 if form == "negated" else 1
    of_right, of_wrong = (psi[::turn] for psi in precision_influence(steps.lost[::turn], steps.mass[::turn]))
    return steps.influence(of_right, of_wrong - of_right)


@ranking_metric(
    "aupr_error",
    paper="Hendrycks & Gimpel, 2017, arXiv:1610.02136",
    title="AUPR, errors",
    meaning="How purely the lowest scores hold errors; a guess gets the error rate.",
    better="higher",
    tables={"core": 13, "trust": 3},
    variants=(
        Variant(
            "aupr_out",
            title="AUPR, OOD",
            meaning="How purely the lowest scores hold samples of unknown classes; a guess gets their share.",
            tables={"ood": 3},
        ),
    ),
    corners=({"form": "released"},),
    influence=error_influence,
)
def aupr_error(view: View, *, score: Any = "msp", form: str = "negated") -> float:
    """Average precision of wrong samples by the negated score (steps); undefined (NaN) without errors.

    When: errors are rare and must be found.
    When not: models differ in accuracy: its base is the error rate.

    Args:
        form: `negated`; `released` leaves the score as it is, as the released code of Luo et al., 2021, does, so that
            a better score gives a smaller value. For comparison with its tables only.

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.aupr_error(predictions)), 3)
        0.5
    """
    check_choice(form, ("negated", "released"), "form")
    ranks = view.ranks(score) if form == "negated" else steps_of(view, score)[1]
    if ranks.wrong == 0:
        return math.nan
    if form == "released":
        hits = sum(float((part.new_errors * part.errors / part.accepted).sum()) for part in ranks.parts())
        return hits / ranks.wrong
    total = 0.0
    for part in ranks.parts():
        left, errors_left = ranks.n - part.before, ranks.wrong - part.errors_before
        tie = true_places(part.tied & (part.new_errors > 0))  # a resample may leave nothing behind a tie
        total += float((part.new_errors[tie] * errors_left[tie] / left[tie]).sum())
        # Over a run of L errors with Q errors among R samples left, (Q - k) / (R - k) sums to
        # L - (R - Q)(H[R] - H[R - L]).
        run = true_places(~part.tied & (part.new_errors > 0))
        if len(run):
            n = int(ranks.n)
            rise = harmonic_at(left[run], n) - harmonic_at(ranks.n - part.accepted[run], n)
            total += float(part.new_errors[run].sum()) - dot(left[run] - errors_left[run], rise)
    return total / ranks.wrong


# False positive rate at 95 % true positive rate.

SCANNED, WITHIN = 10_000, 0.0005


def at_nearest_corner(ranks: Ranks, tpr: float) -> float:
    """FPR at the corner of the ROC curve, points on a line left out, whose TPR is nearest."""
    wrong, right = ranks.errors, ranks.accepted - ranks.errors
    nothing = 0.0 if ranks.whole else 1e-9 * ranks.n  # what rounding leaves of weights
    corner = np.ones(len(wrong), bool)
    if len(wrong) > 2:
        corner[1:-1] = np.logical_or(*(np.abs(np.diff(side, 2)) > nothing for side in (wrong, right)))
    share = np.concatenate(([0.0], right[corner] / right[-1]))
    distance = np.abs(share - tpr) if ranks.whole else np.abs(share - tpr).round(12)
    return float(np.concatenate(([0.0], wrong[corner] / wrong[-1]))[int(np.argmin(distance))])


def at_first_scanned(values: Floats, ranks: Ranks, tpr: float) -> float:
    """FPR at the first of 10,000 rising thresholds whose TPR is within 0.0005; NaN where none is."""
    low, high = float(values[-1]), float(values[0])
    if low == high:
        return math.nan
    thresholds = np.arange(low, high, (high - low) / SCANNED)
    # Values fall: those at or above a threshold are the first so many.
    at = np.searchsorted(-values, -thresholds, side="right") - 1
    right = (ranks.accepted - ranks.errors)[at] / (ranks.n - ranks.wrong)
    hit = np.flatnonzero((right >= tpr - WITHIN) & (right <= tpr + WITHIN))
    return float(ranks.errors[at[hit[0]]] / ranks.wrong) if len(hit) else math.nan


def fpr95_influence(view: View, *, score: Any = "msp", tpr: float = 0.95, **_: Any) -> Influence:
    """psi of the errors above the threshold, less what its movement adds: the slope of the ROC curve times psi of TPR.

    The slope is from the share of errors among the samples around the threshold.
    """
    steps = Steps.of(view, score)
    rate, right = steps.rate, steps.accepted - steps.errors
    place = int(np.argmax(right >= tpr * (1 - rate) * (1 - 1e-9)))
    accepted = np.arange(len(right)) <= place
    local = steps.local(float(steps.accepted[place]), view.base.effective_n)
    slope = local / rate * (1 - rate) / max(1 - local, 1e-9)
    of_right = np.asarray(-slope * (accepted - float(right[place]) / (1 - rate)) / (1 - rate))
    of_wrong = np.asarray((accepted - float(steps.errors[place]) / rate) / rate)
    return steps.influence(of_right, of_wrong - of_right)


@ranking_metric(
    "fpr95",
    paper="Liang et al., 2018, arXiv:1706.02690",
    title="FPR at 95 % TPR",
    short="FPR95",
    meaning="The share of errors still accepted at the threshold that accepts 95 % of the correct samples.",
    better="lower",
    tables={"core": 14, "trust": 4, "scores": 3, "ood": 4},
    corners=({"tpr": 1.0}, {"tpr": 0.0}, {"form": "corner"}),
    influence=fpr95_influence,
)
def fpr95(view: View, *, score: Any = "msp", tpr: float = 0.95, form: str = "reached") -> float:
    """Share of wrong samples at or above the largest threshold that at least `tpr` of the correct ones reach.

    Undefined (NaN) where all samples are correct or all wrong.

    When: papers on out-of-distribution data are compared.
    When not: the 95 % mean nothing in use.

    Args:
        tpr: the share of correct samples to keep.
        form: `reached`, as above; `corner` takes the corner of the ROC curve whose TPR is nearest, which may keep less
            (released code of Moon et al., 2020); `scan` the first of 10,000 rising thresholds within 0.0005 of it,
            NaN where none is (released code of Corbiere et al., 2019).

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.fpr95(predictions)), 3)
        1.0
    """
    check_range(tpr, "tpr", 0, 1)
    check_choice(form, ("reached", "corner", "scan"), "form")
    ranks = view.ranks(score)
    right = ranks.n - ranks.wrong
    if right == 0 or ranks.wrong == 0:
        return math.nan
    if form != "reached":
        values, steps = steps_of(view, score)
        return at_nearest_corner(steps, tpr) if form == "corner" else at_first_scanned(values, steps, tpr)
    reached = exact(ranks.accepted - ranks.errors) >= tpr * right * (1 - 1e-12)
    return float(ranks.errors[int(true_places(reached)[0])]) / ranks.wrong


def side_influence(view: View, threshold: float, score: Any, wrong_side: bool) -> Influence:
    """psi of the share of one side, right or wrong, that the threshold accepts; of the other side 0."""
    accepted, wrong, weights = view.accepted(score, threshold)
    side, chosen = wrong == wrong_side, accepted != wrong_side
    total = float(weights[side].sum())
    value = float(weights[side & chosen].sum()) / total
    psi = np.where(side, chosen - value, 0.0) * (float(weights.sum()) / total)
    return Influence(psi, order=view.base.ordered(score).order, errors=side)


def tpr_influence(view: View, *, threshold: float = 0.5, score: Any = "msp") -> Influence:
    """psi of the share of right samples accepted."""
    return side_influence(view, threshold, score, False)


def tnr_influence(view: View, *, threshold: float = 0.5, score: Any = "msp") -> Influence:
    """psi of the share of errors rejected."""
    return side_influence(view, threshold, score, True)


@ranking_metric(
    "tpr",
    paper="Luo et al., 2021, arXiv:2110.00054",
    title="TPR",
    meaning="The share of correct samples that the threshold accepts.",
    better="higher",
    tables={"decisions": 1},
    corners=({"threshold": 0.0}, {"threshold": 1.0}),
    influence=tpr_influence,
)
def tpr(view: View, *, threshold: float = 0.5, score: Any = "msp") -> float:
    """Share of correct samples with score >= threshold; undefined (NaN) where no sample is correct.

    When: share of right samples kept at a threshold.
    When not: no threshold is fixed: take auroc.

    Args:
        threshold: from which score on a sample is accepted.

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.tpr(predictions, threshold=0.7)), 3)
        0.5
    """
    accepted, wrong, weights = view.accepted(score, threshold)
    right = float((weights * ~wrong).sum())
    return float((weights * (accepted & ~wrong)).sum()) / right if right else math.nan


@ranking_metric(
    "tnr",
    paper="Luo et al., 2021, arXiv:2110.00054",
    title="TNR",
    meaning="The share of wrong samples that the threshold rejects.",
    better="higher",
    tables={"decisions": 2},
    corners=({"threshold": 0.0}, {"threshold": 1.0}),
    influence=tnr_influence,
)
def tnr(view: View, *, threshold: float = 0.5, score: Any = "msp") -> float:
    """Share of wrong samples with score < threshold; undefined (NaN) without errors.

    When: share of errors caught at a threshold.
    When not: no threshold is fixed: take auroc.

    Args:
        threshold: below which score a sample is rejected.

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.tnr(predictions, threshold=0.85)), 3)
        1.0
    """
    accepted, wrong, weights = view.accepted(score, threshold)
    total = float((weights * wrong).sum())
    return float((weights * (wrong & ~accepted)).sum()) / total if total else math.nan


# Largest share of samples that can be accepted at a given error rate.


def largest_coverage(ranks: Ranks, risk: float) -> float:
    """Largest accepted share whose error rate is at most `risk`; ties are accepted together."""
    allowed = risk * exact(ranks.accepted) * (1 + 1e-12)
    good = true_places((ranks.errors <= allowed) & (ranks.accepted > 0))
    reached = float(ranks.accepted[good[-1]]) if len(good) else 0.0
    following = int(good[-1]) + 1 if len(good) else 0
    if following < len(ranks.accepted) and not ranks.tied[following] and risk < 1:
        # A run of errors follows: the first few may still be allowed, (E + k) / (A + k) <= risk.
        errors = float(ranks.errors[following - 1]) if following else 0.0
        room = (risk * reached - errors) / (1 - risk)
        reached += max(0, math.floor(room * (1 + 1e-12)))
    return reached / ranks.n


def coverage_influence(steps: Steps, n: float, coverage: float, risk: float, of_rate: float = 0.0) -> Influence:
    """psi of the coverage c at which the risk of the accepted is `risk`, which moves by `of_rate` times the error rate.

    There the mean of (l - risk) over the accepted is 0; it rises with c by the local risk less `risk`.
    """
    accepted = (steps.accepted <= coverage + 0.5 / n).astype(np.float64)
    rise = max(steps.local(coverage, n) - risk, 1e-9)
    return steps.influence(accepted * (1 + risk / rise), (of_rate * coverage - accepted) / rise)


def crossing_interval(view: View, score: Any, risk: float, of_rate: float = 0.0) -> tuple[float, float]:
    """Coverages at which the risk of the accepted may be `risk`, by the test of each coverage (Wilson's, at `risk`).

    A coverage is too small where the risk is below by more than chance. Where the risk moves by `of_rate` times the
    error rate, so does the test: of each sample it looks at accepted x (l - risk) - of_rate x coverage x (l - rate).
    """
    steps = Steps.of(view, score)
    coverage, rate, shift = steps.accepted, steps.rate, of_rate * steps.accepted
    wrong = risk * coverage
    kinds = (
        (wrong, 1 - risk - shift * (1 - rate)),
        (coverage - wrong, shift * rate - risk),
        (np.maximum(rate - wrong, 0.0), -shift * (1 - rate)),
        (np.maximum(1 - coverage - rate + wrong, 0.0), shift * rate),
    )
    variance = sum((share * effect**2 for share, effect in kinds), np.zeros(len(coverage))) / view.base.effective_n
    apart = steps.errors - risk * coverage
    half = Z * np.sqrt(variance) + 1e-12
    below, possible = np.flatnonzero(apart <= -half), np.flatnonzero(apart <= half)
    low = float(coverage[below[-1]]) if len(below) else 0.0
    # What lies before the first step that is refuted may be: a wrong sample at the top rules out no smaller coverage.
    refuted = int(possible[-1]) + 1 if len(possible) else 0
    high = float(coverage[min(refuted, len(coverage) - 1)])
    return low, high


def coverage_bounds(view: View, *, risk: float = 0.05, score: Any = "msp") -> tuple[float, float]:
    """The interval of the coverage at a risk."""
    return crossing_interval(view, score, risk)


def halving_bounds(view: View, *, score: Any = "msp") -> tuple[float, float]:
    """The interval of the share rejected at half the error rate."""
    low, high = crossing_interval(view, score, (1 - view.mean("correct")) / 2, 0.5)
    return 1 - high, 1 - low


def coverage_at_risk_influence(view: View, *, risk: float = 0.05, score: Any = "msp") -> Influence:
    """psi of the coverage at a risk."""
    coverage = largest_coverage(view.ranks(score), risk)
    return coverage_influence(Steps.of(view, score), view.base.effective_n, coverage, risk)


def halving_influence(view: View, *, score: Any = "msp") -> Influence:
    """psi of the share rejected at half the error rate, which moves too."""
    steps = Steps.of(view, score)
    half = steps.rate / 2
    coverage = largest_coverage(view.ranks(score), half)
    influence = coverage_influence(steps, view.base.effective_n, coverage, half, 0.5)
    return replace(influence, psi=-influence.psi)


def risk_influence(view: View, *, coverage: float = 0.8, score: Any = "msp") -> Influence:
    """psi of the risk at a coverage: of the accepted l less the local risk, at which the threshold moves."""
    steps, n = Steps.of(view, score), view.base.effective_n
    share = np.clip((coverage - steps.before) / np.maximum(steps.mass, 1e-300), 0.0, 1.0) / coverage
    return steps.influence(-share * steps.local(coverage, n), share, 1 / n / coverage)


@ranking_metric(
    "coverage_at_risk",
    paper="Geifman & El-Yaniv, 2017, arXiv:1705.08500",
    title="Coverage at a risk",
    meaning="The largest share of samples one can accept with at most the given error rate; seen here, not promised.",
    better="higher",
    corners=({"risk": 0.0}, {"risk": 1.0}),
    influence=coverage_at_risk_influence,
    bounds=coverage_bounds,
)
def coverage_at_risk(view: View, *, risk: float = 0.05, score: Any = "msp") -> float:
    """Largest k / n over thresholds whose error rate among the k accepted is at most `risk`; 0 if there is none.

    Descriptive: for a threshold with a guarantee see `confide.operating_point`.

    When: how much can be answered at a given risk, described on this split.
    When not: a promise is needed: `confide.operating_point` makes one.

    Args:
        risk: the error rate allowed among accepted samples.

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.coverage_at_risk(predictions, risk=0.4)), 3)
        1.0
    """
    check_range(risk, "risk", 0, 1)
    return largest_coverage(view.ranks(score), risk)


@ranking_metric(
    "risk_at_coverage",
    paper="Geifman & El-Yaniv, 2017, arXiv:1705.08500",
    title="Risk at a coverage",
    meaning="The error rate among the given share of samples with the highest scores.",
    better="lower",
    corners=({"coverage": 1.0}, {"coverage": 1e-9}),
    influence=risk_influence,
    rare=True,
)
def risk_at_coverage(view: View, *, coverage: float = 0.8, score: Any = "msp") -> float:
    """Error rate among the ceil(coverage x n) safest samples, averaged over all orders of tied ones.

    When: the share to answer is given.
    When not: a promise is needed: `confide.operating_point` makes one.

    Args:
        coverage: the share of samples accepted.

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.risk_at_coverage(predictions, coverage=0.5)), 3)
        0.5
    """
    check_range(coverage, "coverage", 0, 1, low_open=True)
    ranks = view.ranks(score)
    # The tolerance keeps 0.8 x 1000 at 800 although 0.8 is not exact in binary.
    accepted_count = max(1.0, math.ceil(coverage * ranks.n * (1 - 1e-12) - 1e-9))
    return float(ranks.errors_at(np.array([accepted_count]))[0] / accepted_count)


@ranking_metric(
    "halving_rejection",
    paper="Nadeem et al., 2010, PMLR 8 (accuracy-rejection curves)",
    title="Share to set aside to halve the error rate",
    short="Halving",
    meaning="The share of samples to set aside, least trusted first, so that the error rate of the rest is halved.",
    better="lower",
    tables={"core": 15},
    influence=halving_influence,
    bounds=halving_bounds,
)
def halving_rejection(view: View, *, score: Any = "msp") -> float:
    """1 - the largest coverage whose error rate is at most half the overall one; undefined (NaN) without errors.

    When: how many to hand over to halve the errors.
    When not: errors are few: it jumps.

    Example:
        >>> predictions = confide.Predictions.from_probs([[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]], [0, 1, 1])
        >>> round(float(confide.metrics.halving_rejection(predictions)), 3)
        0.667
    """
    ranks = view.ranks(score)
    if ranks.wrong == 0:
        return math.nan
    return 1 - largest_coverage(ranks, ranks.wrong / ranks.n / 2)


def moments_influence(view: View, score: Any, gradient: tuple[float, float, float, float]) -> Influence:
    """psi of a function of the mean and variance of the scores of right and of wrong samples, by its gradient."""
    ordered = view.base.ordered(score)
    weights, values = view.in_order(ordered), ordered.values.astype(np.float64)
    psi = np.zeros(len(values))
    sides = (~ordered.wrong, ordered.wrong)
    for side, (mean, variance), (of_mean, of_variance) in zip(
        sides, view.moments(score), (gradient[:2], gradient[2:]), strict=True
    ):
        apart = values[side] - mean
        share = float(side.mean() if weights is None else weights[side].sum() / weights.sum())
        psi[side] = (of_mean * apart + of_variance * (apart**2 - variance)) / share
    return Influence(psi, order=ordered.order, errors=ordered.wrong)


def divergence_influence(view: View, *, score: Any = "msp", form: str = "divergence") -> Influence:
    """psi of the average divergence."""
    (mean, variance), (other_mean, other) = view.moments(score)
    apart = mean - other_mean
    scale = 0.5 if form == "released" else 0.25
    of_mean = 2 * apart * (1 / variance + 1 / other)
    of_first = 1 / other - (other + apart**2) / variance**2
    of_second = 1 / variance - (variance + apart**2) / other**2
    return moments_influence(view, score, (scale * of_mean, scale * of_first, -scale * of_mean, scale * of_second))


def bhattacharyya_influence(view: View, *, score: Any = "msp") -> Influence:
    """psi of the Bhattacharyya distance."""
    (mean, variance), (other_mean, other) = view.moments(score)
    apart, both = mean - other_mean, variance + other
    of_mean = apart / (2 * both)
    shared = apart**2 / (4 * both**2)
    # ln((v1 + v2)^2 / (4 v1 v2)) / 4 is ln(v1 + v2) / 2 - ln(v1) / 4 - ln(v2) / 4.
    of_first, of_second = (1 / (2 * both) - 1 / (4 * v) - shared for v in (variance, other))
    return moments_influence(view, score, (of_mean, of_first, -of_mean, of_second))


@metric(
    "separability_kl",
    paper="Luo et al., 2021, arXiv:2110.00054",
    title="Average KL",
    short="KL",
    meaning="How far apart the scores of correct and of wrong samples lie, if both were normal; 0 if alike.",
    kind="separation",
    better="higher",
    range=(0.0, math.inf),
    unit="nats",
    digits=2,
    tables={"decisions": 3},
    corners=({"form": "released"},),
    influence=divergence_influence,
)
def separability_kl(view: View, *, score: Any = "msp", form: str = "divergence") -> float:
    """[KL(N1 || N2) + KL(N2 || N1)] / 2 of Gaussians fitted to the scores of correct and wrong samples.

    Undefined (NaN) with fewer than two samples on a side or a side of equal scores.

    When: the paper's figures are compared.
    When not: scores are far from Gaussian: take auroc.

    Differs from the released code: the mean of both directions has its half (see the errata).

    Args:
        form: `divergence`; `released` lacks the 1/2 of the quadratic term, as the paper's code does, so that alike
            samples get 0.5. For comparison with its tables only.

    Example:
        >>> predictions = confide.Predictions.from_top1([1, 1, 0, 0], [1, 1, 1, 1], [0.9, 0.8, 0.6, 0.5])
        >>> round(float(confide.metrics.separability_kl(predictions)), 3)
        9.0
    """
    check_choice(form, ("divergence", "released"), "form")
    (mean, variance), (other_mean, other_variance) = view.moments(score)
    if not (variance > 0 and other_variance > 0):
        return math.nan
    apart = (mean - other_mean) ** 2
    quadratic = (variance + apart) / other_variance + (other_variance + apart) / variance
    return (quadratic - 1) / 2 if form == "released" else (quadratic - 2) / 4


@metric(
    "separability_bhattacharyya",
    paper="Luo et al., 2021, arXiv:2110.00054",
    title="Bhattacharyya distance",
    short="Bhattacharyya",
    meaning="How little the scores of correct and of wrong samples overlap, if both were normal; 0 if alike.",
    kind="separation",
    better="higher",
    range=(0.0, math.inf),
    tables={"decisions": 4},
    influence=bhattacharyya_influence,
)
def separability_bhattacharyya(view: View, *, score: Any = "msp") -> float:
    """ln((v1 / v2 + v2 / v1 + 2) / 4) / 4 + (m1 - m2)^2 / (4 (v1 + v2)) of Gaussians fitted to both sides.

    Undefined (NaN) with fewer than two samples on a side or a side of equal scores.

    When: the paper's figures are compared.
    When not: scores are far from Gaussian: take auroc.

    Example:
        >>> predictions = confide.Predictions.from_top1([1, 1, 0, 0], [1, 1, 1, 1], [0.9, 0.8, 0.6, 0.5])
        >>> round(float(confide.metrics.separability_bhattacharyya(predictions)), 3)
        2.25
    """
    (mean, variance), (other_mean, other_variance) = view.moments(score)
    if not (variance > 0 and other_variance > 0):
        return math.nan
    ratio = variance / other_variance
    return math.log((ratio + 1 / ratio + 2) / 4) / 4 + (mean - other_mean) ** 2 / (4 * (variance + other_variance))
