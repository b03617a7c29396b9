"""Thresholds whose error rate is promised, chosen on validation; and what was seen of them on the test split."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from confide.report.view import View
from confide.report.words import count, fixed, percent

PLAIN = (None, "msp", "confidence")


@dataclass(frozen=True)
class Promise:
    """A ready-made threshold; empty texts where no threshold can be promised."""

    risk: str
    threshold: str
    coverage: str
    seen: str
    spared: str
    value: float | None
    broken: bool = False  # the error rate seen lies above the promised one


def points_of(view: View) -> list[dict[str, Any]]:
    """Operating points of the model in focus by its own confidence, most generous first."""
    own = [dict(p) for p in view.evaluation.operating_points if p.get("model", view.focus) == view.focus]
    own = [p for p in own if p.get("score") in PLAIN and number(p.get("risk") or p.get("bound")) is not None]
    stage = [p for p in own if p.get("stage", view.final) == view.final] or own
    return sorted(stage, key=lambda p: -promised(p))


def promised(point: dict[str, Any]) -> float:
    """The error rate that is promised: the one asked for, or the bound found at a coverage asked for."""
    return float(point.get("risk") or point["bound"])


def number(value: Any) -> float | None:
    """A finite number, or None."""
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def promises(view: View) -> tuple[Promise, ...]:
    """Rows of the table of thresholds."""
    accuracy = view.find("accuracy", stage=view.final) or view.find("accuracy")
    rows = []
    for point in points_of(view):
        threshold, risk = number(point.get("threshold")), promised(point)
        coverage, seen = number(point.get("test_coverage")), number(point.get("test_risk"))
        spared = "–"
        if accuracy and coverage is not None and seen is not None:
            errors = (1 - accuracy.value) * accuracy.n
            spared = f"{count(errors - coverage * seen * accuracy.n)} of {count(errors)}"
        chosen = coverage if coverage is not None else number(point.get("coverage"))
        rows.append(
            Promise(
                risk_text(risk),
                fixed(threshold, 3) if threshold is not None else "",
                percent(chosen, 1) if chosen is not None else "–",
                percent(seen, 1) if seen is not None else "–",
                spared,
                threshold,
                seen is not None and seen > risk,
            )
        )
    return tuple(rows)


def risk_text(risk: float) -> str:
    """A promised error rate with the decimals it needs."""
    return percent(risk, 0 if abs(100 * risk - round(100 * risk)) < 1e-6 else 1)


def chosen_on(view: View) -> str:
    """What the thresholds were chosen on, and how sure the promise is."""
    points = points_of(view)
    sizes = {int(p["n"]) for p in points if number(p.get("n"))}
    sure = {float(p["confidence"]) for p in points if number(p.get("confidence"))}
    samples = f"{count(sizes.pop())} validation {view.unit}" if len(sizes) == 1 else f"validation {view.unit}"
    return f"with {percent(sure.pop())} confidence, chosen on {samples}" if len(sure) == 1 else f"chosen on {samples}"
