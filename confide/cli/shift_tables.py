"""What `confide shift` prints: the cells' means beside clean values, accuracy and ECE by severity, foreign sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confide.cli.tables import text_table

if TYPE_CHECKING:
    from confide.core.results import Evaluation

MEANS = ("accuracy", "confidence_gap", "ece", "nll", "aurc", "auroc")
FOREIGN = ("aupr_in", "aupr_out", "fpr95")
SEVERITY = "shift=severity "


def tables(found: Evaluation) -> list[str]:
    """One text per table."""
    return [*_means(found), *_by_severity(found), *_foreign(found)]


def _means(found: Evaluation) -> list[str]:
    rows = []
    for m in found.measurements:
        if m.metric == "accuracy" and m.group in (None, "shift=mean"):
            where = {"model": m.model, "stage": m.stage, "group": m.group}
            values = [_number(found, word, where) for word in MEANS]
            rows.append([m.model, m.stage, "clean" if m.group is None else "mean of cells", *values])
    return [text_table(["model", "stage", "images", *MEANS], rows)] if rows else []


def _by_severity(found: Evaluation) -> list[str]:
    """Accuracy once a model; ECE of the model at every stage, and of trust predictors that claim a chance."""
    groups = list(dict.fromkeys(m.group for m in found.measurements if (m.group or "").startswith(SEVERITY)))
    shown: dict[tuple[str, str, str], dict[str, float]] = {}
    for m in found.measurements:
        # Calibrators that leave the order of the classes alone leave the accuracy: once is enough.
        wanted = (m.metric == "accuracy" and m.stage == "raw") or m.metric == "ece"
        if wanted and m.group in groups:
            what = m.stage if m.score in (None, "msp") else str(m.score)
            shown.setdefault((m.model, m.metric, "" if m.metric == "accuracy" else what), {})[str(m.group)] = m.value
    rows = [
        [model, f"{metric} {what}".strip(), *(f"{values[g]:.4f}" if g in values else "-" for g in groups)]
        for (model, metric, what), values in shown.items()
    ]
    names = [str(group)[len(SEVERITY) :] for group in groups]
    heads = ["clean" if name == "0" else f"severity {name}" for name in names]
    return ["\n" + text_table(["model", "mean over the cells", *heads], rows)] if rows else []


def _foreign(found: Evaluation) -> list[str]:
    groups = [m for m in found.measurements if m.metric == "auroc" and (m.group or "").startswith("ood=")]
    rows = [
        [m.model, str(m.group)[4:], str(m.score), f"{m.value:.4f}"]
        + [_number(found, word, {"model": m.model, "group": m.group, "score": m.score}) for word in FOREIGN]
        for m in groups
    ]
    return ["\n" + text_table(["model", "foreign", "score", "auroc", *FOREIGN], rows)] if rows else []


def _number(found: Evaluation, word: str, where: dict[str, Any]) -> str:
    for m in found.measurements:
        if (
            m.metric == word
            and m.score in (None, "msp", where.get("score"))
            and all(getattr(m, k) == v for k, v in where.items())
        ):
            return f"{m.value:.4f}"
    return "-"
