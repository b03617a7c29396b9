"""Charts for notebooks and papers: matplotlib axes in and out, the report's colours, the report's numbers.

Every function takes predictions or an evaluation, draws into `ax` or a new figure, and returns the axes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from confide.checks import InputError, MissingExtra, check_choice
from confide.evaluation.evaluate import evaluate
from confide.predictions import Predictions, need_predictions
from confide.records import Scores
from confide.report.static import PALETTE, SEQUENTIAL, SERIES
from confide.results import Curve, Evaluation, SetResult
from confide.sets import PredictionSets, measure

MOST_CLASSES = 30


def reliability(source: Any, ax: Any = None, *, bins: int = 15, binning: str = "width", stage: str = "raw") -> Any:
    """Accuracy against confidence: a dot a bin, a stem to the diagonal, the 95 % band of a calibrated model.

    Args:
        source: predictions, an evaluation, or a file of predictions.
        ax: matplotlib axes; new ones by default.
        bins: 10, 15 or 20.
        binning: `width` or `mass`.
        stage: of an evaluation: `raw`, or a calibrator's word.

    Returns:
        The axes.

    Raises:
        InputError: the evaluation has no such curve.
        MissingExtra: matplotlib is not installed.

    Example:
        >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 1])
        >>> axes = confide.plot.reliability(p)  # doctest: +SKIP
    """
    check_choice(binning, ("width", "mass"), "binning")
    kind = f"reliability_{binning}"
    evaluation, ax = _evaluation(source), _axes(ax)
    curves = [c for c in _curves(evaluation, kind, stage) if len(c.columns["low"]) == bins]
    if not curves:
        sizes = sorted({len(c.columns["low"]) for c in _curves(evaluation, kind, stage)})
        raise InputError(f"the evaluation has reliability in {sizes} bins, got bins={bins}; choose one of these")
    rows = {name: np.asarray(values, dtype=np.float64) for name, values in curves[0].columns.items()}
    ax.plot([0, 1], [0, 1], color=PALETTE["ink3"], linewidth=1)
    for left, right, *band in zip(*(rows[name] for name in ("low", "high", "band_low", "band_high")), strict=True):
        if all(map(math.isfinite, band)):
            ax.fill_between([left, right], *band, color=PALETTE["band"], linewidth=0)
    full = rows["count"] > 0
    confidence, accuracy = rows["confidence"][full], rows["accuracy"][full]
    low, high = rows["band_low"][full], rows["band_high"][full]
    colours = np.where(accuracy < confidence, PALETTE["wrong"], PALETTE["accent"])
    # Within the band, and where there is none, a gap may be chance.
    colours = np.where((accuracy < low) | (accuracy > high), colours, PALETTE["grey"])
    ax.vlines(confidence, np.minimum(confidence, accuracy), np.maximum(confidence, accuracy), colors=colours)
    ax.scatter(confidence, accuracy, color=colours, zorder=3, s=24)
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy")
    return _plain(ax)


def risk_coverage(source: Any, ax: Any = None, *, score: str = "msp", stage: str | None = None) -> Any:
    """Error rate among accepted samples against the share accepted; a line per model and stage.

    Args:
        source: predictions, an evaluation, or a file of predictions.
        ax: matplotlib axes; new ones by default.
        score: what ranks the samples, as named in the evaluation.
        stage: only this one; all by default.

    Returns:
        The axes.

    Raises:
        InputError: the evaluation has no such curve.

    Example:
        >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 1])
        >>> axes = confide.plot.risk_coverage(p)  # doctest: +SKIP
    """
    evaluation, ax = _evaluation(source), _axes(ax)
    curves = [c for c in _curves(evaluation, "risk_coverage", stage) if c.score == score]
    if not curves:
        known = sorted({str(c.score) for c in evaluation.curves if c.kind == "risk_coverage"})
        raise InputError(f"the evaluation has no risk-coverage curve of '{score}'; it has {', '.join(known) or 'none'}")
    for k, curve in enumerate(curves):
        named = {"label": f"{curve.model}, {curve.stage}"} if len(curves) > 1 else {}
        ax.plot(curve.columns["coverage"], curve.columns["risk"], color=_series(k), linewidth=2, **named)
    ax.set(xlim=(0, 1), xlabel="share accepted", ylabel="error rate among accepted")
    ax.set_ylim(bottom=0)
    if len(curves) > 1:
        ax.legend(frameon=False)
    return _plain(ax)


def difficulty(source: Any, ax: Any = None, *, scores: Scores | None = None) -> Any:
    """Error rate by tenth of difficulty, with 95 % intervals.

    Args:
        source: an evaluation made with `scores=`, or predictions.
        ax: matplotlib axes; new ones by default.
        scores: difficulty of the samples, with predictions.

    Returns:
        The axes.

    Raises:
        InputError: neither scores nor an evaluation by difficulty.

    Example:
        >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 1])
        >>> scores = confide.Scores(p.ids, [0.1, 0.2, 0.9], "rmd")
        >>> axes = confide.plot.difficulty(p, scores=scores)  # doctest: +SKIP
    """
    evaluation, ax = _evaluation(source, scores), _axes(ax)
    curves = _curves(evaluation, "error_by_difficulty", None)
    if not curves:
        what = "the evaluation knows" if isinstance(source, Evaluation) else "predictions alone know"
        raise InputError(
            f"{what} no difficulty; pass scores=, such as confide.difficulty.score('rmd', features, labels), "
            "or evaluate(..., scores=...)"
        )
    for k, curve in enumerate(curves):
        rows = {name: np.asarray(values, dtype=np.float64) for name, values in curve.columns.items()}
        place = np.arange(1, len(rows["error"]) + 1)
        whiskers = np.stack([rows["error"] - rows["error_low"], rows["error_high"] - rows["error"]]).clip(0)
        named = {"label": f"{curve.model}, {curve.stage}"} if len(curves) > 1 else {}
        ax.errorbar(place, rows["error"], whiskers, color=_series(k), marker="o", markersize=5, linewidth=1.5, **named)
    ax.set(xlabel="difficulty, from the easiest part to the hardest", ylabel="error rate")
    ax.set_ylim(bottom=0)
    if len(curves) > 1:
        ax.legend(frameon=False)
    return _plain(ax)


def confusion(predictions: Predictions, ax: Any = None, *, share: bool = True) -> Any:
    """The confusion matrix: rows are labels, columns predicted classes.

    Args:
        predictions: labelled, of at most 30 classes.
        ax: matplotlib axes; new ones by default.
        share: of the samples of a label; False for counts.

    Returns:
        The axes.

    Raises:
        InputError: more classes than a matrix can show.

    Example:
        >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0, 1, 1])
        >>> axes = confide.plot.confusion(p)  # doctest: +SKIP
    """
    need_predictions(predictions, "a confusion matrix")
    size = predictions.num_classes
    if size > MOST_CLASSES:
        raise InputError(
            f"a confusion matrix is drawn of at most {MOST_CLASSES} classes, got {size}; take some of them"
        )
    from matplotlib.colors import LinearSegmentedColormap

    ax = _axes(ax)
    labels, predicted = predictions.labels.cpu().numpy(), predictions.facts.prediction.cpu().numpy()
    counts = np.bincount(labels * size + predicted, minlength=size * size).reshape(size, size)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    ramp = LinearSegmentedColormap.from_list("confide", [PALETTE["paper"], *SEQUENTIAL])
    ax.imshow(shares, cmap=ramp, vmin=0, vmax=1)
    for i in range(size):
        for j in range(size):
            if counts[i, j]:
                text = f"{100 * shares[i, j]:.0f}" if share else f"{counts[i, j]:,}"
                colour = PALETTE["paper"] if shares[i, j] > 0.6 else PALETTE["ink"]
                ax.text(j, i, text, ha="center", va="center", color=colour, fontsize=8)
    names = predictions.class_names or tuple(map(str, range(size)))
    ax.set_xticks(range(size), names, rotation=90 if size > 5 else 0)
    ax.set_yticks(range(size), names)
    ax.set(xlabel="predicted class", ylabel="label, " + ("per cent of its samples" if share else "samples"))
    return _plain(ax, grid=False)


def sets(result: SetResult | PredictionSets, predictions: Predictions | None = None, ax: Any = None) -> Any:
    """How large prediction sets are, and in the title how often they hold the true class.

    Args:
        result: of `confide.sets.measure`; or fitted sets, with predictions.
        predictions: labelled samples that the sets were not fitted on.
        ax: matplotlib axes; new ones by default.

    Returns:
        The axes.

    Raises:
        InputError: fitted sets without samples to draw them on, or neither fitted sets nor their result.

    Example:
        >>> val = confide.Predictions.from_probs([[0.7, 0.2, 0.1]] * 20, [0] * 14 + [1] * 4 + [2] * 2, split="val")
        >>> axes = confide.plot.sets(confide.sets.fit("lac", val, coverage=0.8), val)  # doctest: +SKIP
    """
    if isinstance(result, PredictionSets):
        if predictions is None:
            raise InputError("fitted sets are drawn on samples; pass predictions= too, or the result of sets.measure")
        result = measure(result, predictions)
    if not isinstance(result, SetResult):
        raise InputError(
            f"sets are drawn from fitted sets and predictions, or from what sets.measure says; got "
            f"{type(result).__name__}: plot.sets(fitted, predictions)"
        )
    ax = _axes(ax)
    sizes, counts = zip(*result.sizes, strict=True)
    ax.bar(sizes, np.asarray(counts) / sum(counts), color=PALETTE["accent"], width=0.8)
    ax.set(xlabel="classes in the set", ylabel="share of samples", title=_coverage_title(result))
    ax.xaxis.get_major_locator().set_params(integer=True)
    return _plain(ax)


def _coverage_title(result: SetResult) -> str:
    whole = result.whole
    if not math.isfinite(whole.share):
        return f"promised coverage {result.coverage:g}"
    return f"coverage {whole.share:.3f} ({whole.low:.3f} to {whole.high:.3f}), promised {result.coverage:g}"


def shift(evaluation: Evaluation, ax: Any = None, *, of: str = "gap") -> Any:
    """Boxes over the corruptions by severity: confidence minus accuracy, or the ECE with its chance level.

    Args:
        evaluation: of `confide.robustness.evaluate_shift` or `confide shift`.
        ax: matplotlib axes; new ones by default.
        of: `gap` or `ece`.

    Returns:
        The axes.

    Raises:
        InputError: an evaluation without shift.

    Example:
        >>> axes = confide.plot.shift(confide.Evaluation.load("shift/evaluation.json"))  # doctest: +SKIP
    """
    check_choice(of, ("gap", "ece"), "of")
    ax = _axes(ax)
    curves = _curves(evaluation, "shift_boxes" if of == "gap" else "shift_ece_boxes", None)
    if not curves:
        raise InputError("the evaluation holds no shift; make it with: confide shift")
    width = 0.8 / len(curves)
    parts = {"whislo": "low", "q1": "lower_quartile", "med": "median", "q3": "upper_quartile", "whishi": "high"}
    for k, curve in enumerate(curves):
        rows = range(len(curve.columns["severity"]))
        boxes = [{key: curve.columns[name][row] for key, name in parts.items()} for row in rows]
        at = [severity + (k - (len(curves) - 1) / 2) * width for severity in curve.columns["severity"]]
        colour = _series(k)
        style = {name: {"color": colour} for name in ("boxprops", "medianprops", "whiskerprops", "capprops")}
        ax.bxp(boxes, positions=at, widths=0.8 * width, showfliers=False, **style)
        ax.plot([], [], color=colour, label=f"{curve.model}, {curve.stage}")
    severities = curves[0].columns["severity"]
    ax.set_xticks(severities, [f"{severity:g}" for severity in severities])
    ax.axhline(0, color=PALETTE["ink3"], linewidth=1)
    ax.set(xlabel="severity, 0 is clean", ylabel="confidence minus accuracy" if of == "gap" else "ECE")
    cells = [m for m in evaluation.measurements if m.metric == of and m.plain and m.group_kind == "shift"]
    limits = [m.chance_high for m in cells if m.chance_high is not None]
    if limits:
        label = f"by chance up to {max(limits):.3f}"
        ax.axhline(max(limits), label=label, color=PALETTE["ink3"], linewidth=1, linestyle="--")
    if len(curves) > 1 or limits:
        ax.legend(frameon=False)
    return _plain(ax)


def _evaluation(source: Any, scores: Scores | None = None) -> Evaluation:
    if isinstance(source, Evaluation):
        return source
    return evaluate(source, ["accuracy"], scores=scores)


def _curves(evaluation: Evaluation, kind: str, stage: str | None) -> list[Curve]:
    return [c for c in evaluation.curves if c.kind == kind and c.group is None and stage in (None, c.stage)]


def _series(k: int) -> str:
    return SERIES[str(k % 5 + 1)]


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError:
        raise MissingExtra("matplotlib", "report", "a plot") from None
    return pyplot.subplots(figsize=(3.9, 3.4), layout="constrained")[1]


def _plain(ax: Any, *, grid: bool = True) -> Any:
    """The report's look: no frame, a faint grid across the values, ink for text."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.tick_params(colors=PALETTE["ink2"], length=0)
    if grid:
        ax.grid(axis="y", color=PALETTE["grid"], linewidth=1)
        ax.set_axisbelow(True)
    return ax
