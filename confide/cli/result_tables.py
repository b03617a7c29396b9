"""Results in the terminal: models and stages of a run, and trust predictors side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confide.cli.shared import metric_cell, p_value, print_json, text_table
from confide.evaluation.trust import DECIDING, TrustValues, measurement_of, trust_score
from confide.experiment import Outcome
from confide.metrics import explain
from confide.results import Curve, Evaluation, Measurement, MetricInfo


def show_outcome(outcome: Outcome, as_json: bool) -> None:
    """The table of models and stages, warnings, and the path of the report as the last line."""
    if as_json:
        print_json(outcome.as_dict())
        return
    if not outcome.computed:
        print("nothing to do: every stage was made before with these options")
    print(run_table(outcome.evaluation))
    print(
        "± is half the 95 % interval; after an ECE in brackets: what a perfectly calibrated model would show by chance,"
    )
    print("with * where it would show so much in less than 5 %")
    for warning in outcome.evaluation.warnings:
        print(f"note: {warning}")
    print(f"report: {outcome.report}")


def run_table(evaluation: Evaluation) -> str:
    """One row per model and stage; ranking metrics also for each trust score."""
    columns = evaluation.columns("summary")
    rows = []
    whole = [m for m in evaluation.measurements if m.group is None]
    for model, stage in dict.fromkeys((m.model, m.stage) for m in whole):
        here = [m for m in whole if (m.model, m.stage) == (model, stage)]
        plain = [m for m in here if m.plain]
        rows.append((f"{model}, {stage}", *(run_cell(plain, info) for info in columns)))
        for score in dict.fromkeys(m.score for m in here if m.score and m.score.startswith("trust:")):
            ranked = [m for m in here if m.score == score]
            rows.append((f"  ranked by {score[6:]}", *(run_cell(ranked, info) for info in columns)))
    return text_table(("model, stage", *(info.heading for info in columns)), rows)


def run_cell(rows: list[Measurement], info: MetricInfo) -> str:
    """Value and half-interval; of a calibration error also what chance would show, starred where the test rejects."""
    measured = next((m for m in rows if m.metric == info.word), None)
    cell = metric_cell(info, measured)
    if measured is None or measured.chance is None:
        return cell
    star = "" if measured.p_value is None else "*" if measured.rejected else " "
    return f"{cell} ({info.number(measured.chance)}){star}"


# What `confide trust` prints: how predictors rank errors, what they decide, and whether any beats max-softmax.

# Two normal curves this far apart in KL differ in width, not in place: the number grows with the ratio of variances.
LARGEST_KL = 100.0


def show_trust(evaluation: Evaluation, scores: Mapping[str, TrustValues], same: Mapping[str, float]) -> None:
    """All tables, the verdict, and what was left out."""
    n, accuracy = evaluation.measurements[0].n, evaluation.value("accuracy")
    print(f"{n} test predictions, {round(n * (1 - accuracy))} of them wrong ({100 * (1 - accuracy):.2f} %)\n")
    order = sorted(scores, key=lambda word: -evaluation.value("auroc", score=trust_score(word)))
    print(ranking_table(evaluation, order))
    print("\nat each predictor's own line (none for a mere score):\n")
    print(decision_table(evaluation, order, same))
    wide = [word for word in order if _beyond(evaluation, word)]
    if wide:
        print(
            f"\naverage KL above {LARGEST_KL:g} ({', '.join(wide)}): the scores of right and of wrong predictions "
            "spread so unlike that the number tells their widths apart, not their places; read Bhattacharyya"
        )
    for curve in evaluation.curves:
        if curve.kind == "alpha_sweep":
            print("\nsteep slope, larger alpha_neg catches more errors and doubts more right predictions:\n")
            print(sweep_table(curve))
    if evaluation.comparisons:
        print("\n± is half the 95 % interval; p: paired test against mcp, Holm-corrected over the predictors")
    for warning in evaluation.warnings:
        print(f"note: {warning}")
    if evaluation.about.verdict:
        print(evaluation.about.verdict)


def ranking_table(evaluation: Evaluation, order: Sequence[str]) -> str:
    """One row per predictor, best AUROC first, with the p-values of AUROC and AURC against max-softmax."""
    columns, deciding = evaluation.columns("trust"), [evaluation.info(word) for word in DECIDING]
    header = ("predictor", *(info.heading for info in columns), *(f"p {info.title}" for info in deciding))
    rows = []
    for word in order:
        cells = [_trust_cell(evaluation, word, info, more_digits=1) for info in columns]
        rows.append((word, *cells, *(_tested(evaluation, word, info.word) for info in deciding)))
    return text_table(header, rows)


def decision_table(evaluation: Evaluation, order: Sequence[str], same: Mapping[str, float]) -> str:
    """TPR and TNR at the predictor's own line, beside max-softmax's TNR at the same TPR; separability."""
    columns, rate = evaluation.columns("decisions"), evaluation.info("tnr")
    apart = [info for info in columns if info.kind == "separation"]
    tests = (f"p {info.short or info.title}" for info in apart)
    header = ("predictor", *(info.heading for info in columns), *tests, f"{rate.heading} of mcp at that TPR")
    rows = []
    for word in order:
        cells = [_trust_cell(evaluation, word, info) for info in columns]
        beside = rate.number(same[word]) if word in same and word != "mcp" else ""
        rows.append((word, *cells, *(_tested(evaluation, word, info.word) for info in apart), beside))
    return text_table(header, rows)


def sweep_table(curve: Curve) -> str:
    """TPR, TNR and AUROC for every alpha_neg."""
    infos = explain(name for name in curve.columns if name != "alpha_neg")
    columns = [curve.columns["alpha_neg"], *(curve.columns[word] for word in infos)]
    rows = [
        (f"{alpha:g}", *(info.number(value) for info, value in zip(infos.values(), values, strict=True)))
        for alpha, *values in zip(*columns, strict=True)
    ]
    return text_table(("alpha_neg", *(info.heading for info in infos.values())), rows)


def _tested(evaluation: Evaluation, word: str, metric: str) -> str:
    """The corrected p-value of one predictor against max-softmax, + where it is better, - where it is worse."""
    test = next((c for c in evaluation.comparisons if c.b.score == trust_score(word) and c.metric == metric), None)
    return "" if test is None else p_value(test.p_holm) + {"b": " +", "a": " -"}.get(test.better or "", "")


def _trust_cell(evaluation: Evaluation, word: str, info: MetricInfo, more_digits: int = 0) -> str:
    if info.word == "separability_kl" and _beyond(evaluation, word):
        return f"> {LARGEST_KL:g}"
    return metric_cell(info, measurement_of(evaluation, trust_score(word), info.word), more_digits)


def _beyond(evaluation: Evaluation, word: str) -> bool:
    """Whether the average KL of a predictor is too large to be read as a distance."""
    distance = measurement_of(evaluation, trust_score(word), "separability_kl")
    return distance is not None and distance.value > LARGEST_KL
