"""What a finished run says in the terminal: a table of results and where the report is."""

from __future__ import annotations

from confide.cli.tables import text_table
from confide.core.results import Evaluation, Measurement
from confide.experiment import Outcome

COLUMNS = (
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
    print(results_table(outcome.evaluation))
    print("± is half the 95 % interval; * marks an ECE that a perfectly calibrated model would show in less than 5 %")
    for warning in outcome.evaluation.warnings:
        print(f"note: {warning}")
    print(f"report: {outcome.report}")


def results_table(evaluation: Evaluation) -> str:
    """One row per model and stage; ranking metrics also for each trust score."""
    rows = []
    whole = [m for m in evaluation.measurements if m.group is None]
    for model, stage in dict.fromkeys((m.model, m.stage) for m in whole):
        here = [m for m in whole if (m.model, m.stage) == (model, stage)]
        plain = [m for m in here if m.score in (None, "msp")]
        rows.append(
            (f"{model}, {stage}", *(cell(plain, metric, scale, digits) for metric, _, scale, digits in COLUMNS))
        )
        for score in dict.fromkeys(m.score for m in here if m.score and m.score.startswith("trust:")):
            ranked = [m for m in here if m.score == score]
            cells = (cell(ranked, metric, scale, digits) for metric, _, scale, digits in COLUMNS)
            rows.append((f"  ranked by {score[6:]}", *cells))
    return text_table(("model, stage", *(title for _, title, _, _ in COLUMNS)), rows)


def cell(rows: list[Measurement], metric: str, scale: float, digits: int) -> str:
    """Value and half-interval; a star where the calibration test rejects."""
    found = next((m for m in rows if m.metric == metric), None)
    if found is None:
        return ""
    text = f"{scale * float(found):.{digits}f}"
    if found.low == found.low:
        text += f" ±{scale * (found.high - found.low) / 2:.{digits}f}"
    return text if found.p_value is None else text + ("*" if found.p_value < 0.05 else " ")
