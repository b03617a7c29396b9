"""Results in the terminal: models and stages of a run, and trust predictors side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from confide.cli.shared import text_table
from confide.evaluation.trust import SEPARATION, TrustValues, measurement_of, trust_score
from confide.experiment import Outcome
from confide.results import Curve, Evaluation, Measurement

# What a finished run says in the terminal: a table of results and where the report is.

RUN_COLUMNS = (
    ("accuracy", "accuracy %", 100.0, 1),
    ("nll", "NLL", 1.0, 3),
    ("brier", "Brier", 1.0, 3),
    ("ece", "ECE width", 100.0, 1),
    ("ece_mass", "ECE mass", 100.0, 1),
    ("aurc", "AURC x1000", 1000.0, 1),
    ("auroc", "AUROC", 100.0, 1),
)


def show_outcome(outcome: Outcome) -> None:
    """The table of models and stages, warnings, and the path of the report as the last line."""
    if not outcome.made:
        print("nothing to do: every stage was made before with these options")
    print(run_table(outcome.evaluation))
    print("± is half the 95 % interval; * marks an ECE that a perfectly calibrated model would show in less than 5 %")
    for warning in outcome.evaluation.warnings:
        print(f"note: {warning}")
    print(f"report: {outcome.report}")


def run_table(evaluation: Evaluation) -> str:
    """One row per model and stage; ranking metrics also for each trust score."""
    rows = []
    whole = [m for m in evaluation.measurements if m.group is None]
    for model, stage in dict.fromkeys((m.model, m.stage) for m in whole):
        here = [m for m in whole if (m.model, m.stage) == (model, stage)]
        plain = [m for m in here if m.score in (None, "msp")]
        rows.append(
            (f"{model}, {stage}", *(run_cell(plain, metric, scale, digits) for metric, _, scale, digits in RUN_COLUMNS))
        )
        for score in dict.fromkeys(m.score for m in here if m.score and m.score.startswith("trust:")):
            ranked = [m for m in here if m.score == score]
            cells = (run_cell(ranked, metric, scale, digits) for metric, _, scale, digits in RUN_COLUMNS)
            rows.append((f"  ranked by {score[6:]}", *cells))
    return text_table(("model, stage", *(title for _, title, _, _ in RUN_COLUMNS)), rows)


def run_cell(rows: list[Measurement], metric: str, scale: float, digits: int) -> str:
    """Value and half-interval; a star where the calibration test rejects."""
    found = next((m for m in rows if m.metric == metric), None)
    if found is None:
        return ""
    text = f"{scale * float(found):.{digits}f}"
    if found.low == found.low:
        text += f" ±{scale * (found.high - found.low) / 2:.{digits}f}"
    return text if found.p_value is None else text + ("*" if found.p_value < 0.05 else " ")


# What `confide trust` prints: how predictors rank errors, what they decide, and whether any beats max-softmax.

RANKING_COLUMNS = (
    ("auroc", "AUROC %", 100.0, 2),
    ("aurc", "AURC x1000", 1000.0, 2),
    ("eaurc", "E-AURC x1000", 1000.0, 2),
    ("aupr_success", "AUPR-success %", 100.0, 2),
    ("aupr_error", "AUPR-error %", 100.0, 1),
    ("fpr95", "FPR95 %", 100.0, 1),
)
# Two normal curves this far apart in KL differ in width, not in place: the number grows with the ratio of variances.
LARGEST_KL = 100.0
DECISION_COLUMNS = (
    ("tpr", "TPR %", 100.0, 1),
    ("tnr", "TNR %", 100.0, 1),
    ("separability_kl", "average KL", 1.0, 2),
    ("separability_bhattacharyya", "Bhattacharyya", 1.0, 3),
)


def show_trust(found: Evaluation, scores: Mapping[str, TrustValues], same: Mapping[str, float]) -> None:
    """All tables, the verdict, and what was left out."""
    n, accuracy = found.measurements[0].n, found.value("accuracy")
    print(f"{n} test predictions, {round(n * (1 - accuracy))} of them wrong ({100 * (1 - accuracy):.2f} %)\n")
    order = sorted(scores, key=lambda word: -found.value("auroc", score=trust_score(word)))
    print(ranking_table(found, order))
    print("\nat each predictor's own line (none for a mere score):\n")
    print(decision_table(found, order, same))
    wide = [word for word in order if _beyond(found, word)]
    if wide:
        print(
            f"\naverage KL above {LARGEST_KL:g} ({', '.join(wide)}): the scores of right and of wrong predictions "
            "spread so unlike that the number tells their widths apart, not their places; read Bhattacharyya"
        )
    for curve in found.curves:
        if curve.kind == "alpha_sweep":
            print("\nsteep slope, larger alpha_neg catches more errors and doubts more right predictions:\n")
            print(sweep_table(curve))
    if found.comparisons:
        print(
            "\n± is half the 95 % interval; p: paired permutation test against mcp, Holm-corrected over the predictors"
        )
    for warning in found.warnings:
        print(f"note: {warning}")
    if found.about.verdict:
        print(found.about.verdict)


def ranking_table(found: Evaluation, order: Sequence[str]) -> str:
    """One row per predictor, best AUROC first, with the p-values of AUROC and AURC against max-softmax."""
    header = ("predictor", *(title for _, title, _, _ in RANKING_COLUMNS), "p AUROC", "p AURC")
    rows = []
    for word in order:
        cells = [_trust_cell(found, word, metric, scale, digits) for metric, _, scale, digits in RANKING_COLUMNS]
        rows.append((word, *cells, *(_tested(found, word, metric) for metric in ("auroc", "aurc"))))
    return text_table(header, rows)


def decision_table(found: Evaluation, order: Sequence[str], same: Mapping[str, float]) -> str:
    """TPR and TNR at the predictor's own line, beside max-softmax's TNR at the same TPR; separability."""
    header = (
        "predictor",
        *(title for _, title, _, _ in DECISION_COLUMNS),
        "p KL",
        "p Bhatt.",
        "TNR % of mcp at that TPR",
    )
    rows = []
    for word in order:
        cells = [_trust_cell(found, word, metric, scale, digits) for metric, _, scale, digits in DECISION_COLUMNS]
        beside = f"{100 * same[word]:.1f}" if word in same and word != "mcp" else ""
        rows.append((word, *cells, *(_tested(found, word, metric) for metric in SEPARATION), beside))
    return text_table(header, rows)


def sweep_table(curve: Curve) -> str:
    """TPR, TNR and AUROC for every alpha_neg."""
    columns = [curve.columns[name] for name in ("alpha_neg", "tpr", "tnr", "auroc")]
    rows = [(f"{a:g}", *(f"{100 * v:.1f}" for v in values)) for a, *values in zip(*columns, strict=True)]
    return text_table(("alpha_neg", "TPR %", "TNR %", "AUROC %"), rows)


def _tested(found: Evaluation, word: str, metric: str) -> str:
    """The corrected p-value of one predictor against max-softmax, + where it is better, - where it is worse."""
    tests = [one for one in found.comparisons if one.b.score == trust_score(word) and one.metric == metric]
    return _p_value(tests[0].p_holm) + _mark(tests[0].better) if tests and tests[0].p_holm == tests[0].p_holm else ""


def _p_value(p: float) -> str:
    return "<0.001" if p < 0.0005 else f"{p:.3f}"


def _mark(better: str | None) -> str:
    return {"b": " +", "a": " -"}.get(better or "", "")


def _trust_cell(found: Evaluation, word: str, metric: str, scale: float, digits: int) -> str:
    one = measurement_of(found, trust_score(word), metric)
    if one is None or one.value != one.value:
        return ""
    if metric == "separability_kl" and _beyond(found, word):
        return f"> {LARGEST_KL:g}"
    text = f"{scale * one.value:.{digits}f}"
    if one.bounds is None or one.low != one.low:
        return text
    return text + f" ±{scale * (one.high - one.low) / 2:.{digits}f}"


def _beyond(found: Evaluation, word: str) -> bool:
    """Whether the average KL of a predictor is too large to be read as a distance."""
    one = measurement_of(found, trust_score(word), "separability_kl")
    return one is not None and one.value > LARGEST_KL
