"""temperature: softmax(z / T)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from confide.calibrators.calibrator import CALIBRATORS, Fitted, Values, transform_of
from confide.calibrators.tempered import Array, Optimum, TemperedRows, best_scale
from confide.core.binning import bin_of, mass_bin_of_rank, width_edges
from confide.core.door import check_choice
from confide.core.shapes import Labels, Logits

GRID = tuple(k / 10 for k in range(1, 101))


@CALIBRATORS.add(
    "temperature",
    paper="Guo et al., 2017, arXiv:1706.04599",
    corners=({"search": "grid"}, {"search": "grid", "criterion": "nll"}, {"search": "grid", "binning": "mass"}),
    keeps_argmax=True,
    yields="logits",
    parameters=(1, 0, 0),
    linear=True,
    finds_nan=True,
)
def temperature(
    logits: Logits,
    labels: Labels,
    *,
    search: str = "newton",
    criterion: str | None = None,
    bins: int = 15,
    binning: str = "width",
) -> Fitted:
    """Temperature scaling, softmax(z / T) with one T for all classes.

    Args:
        search: `newton` finds the T of the smallest NLL to 1e-8; `grid` tries 0.1, 0.2, ..., 10 as the papers do.
        criterion: what the grid minimises, `ece` (the papers) or `nll`; newton minimises `nll`.
        bins: bins of the grid's ECE.
        binning: `width` or `mass`, the bins of the grid's ECE.
    """
    check_choice(search, ("newton", "grid"), "search")
    check_choice(criterion, (None, "nll", "ece") if search == "grid" else (None, "nll"), "criterion")
    check_choice(binning, ("width", "mass"), "binning")
    if search == "newton":
        found = best_scale(logits, labels)
        return Fitted({"temperature": torch.tensor(found.temperature, dtype=torch.float64)}, bound_notes(found))
    rows = TemperedRows(logits, labels)
    correct = rows.correct()
    losses = [
        rows.moments(1 / t)[0] if criterion == "nll" else ece_of(rows.confidence(1 / t), correct, bins, binning)
        for t in GRID
    ]
    if not np.isfinite(losses).all() or not bool(torch.isfinite(logits.sum())):
        raise FloatingPointError("a loss of the grid is not a number")
    # The first of equal losses: the smallest T wins ties.
    best = GRID[int(np.argmin(losses))]
    ends = {GRID[0]: "low", GRID[-1]: "high"}
    notes = bound_notes(Optimum(1 / best, ends.get(best)))
    return Fitted({"temperature": torch.tensor(best, dtype=torch.float64)}, notes)


@transform_of("temperature")
def tempered(values: Values, logits: Logits) -> Logits:
    """z / T."""
    return logits / values["temperature"]


def bound_notes(found: Optimum) -> tuple[str, ...]:
    """What to say of a search that ended at a bound."""
    if found.bound is None:
        return ()
    towards, meaning = {
        "low": ("0", "every class is certain: are all predictions right, or is the set too small?"),
        "high": ("infinity", "every class is equally likely: do the logits say nothing about these labels?"),
    }[found.bound]
    return (f"T ran to {towards} and was stopped at its bound {found.temperature:.4g}; there {meaning}",)


def ece_of(confidence: Array, correct: NDArray[np.bool_], bins: int, binning: str) -> float:
    """Expected calibration error, sum over bins of |sum of (confidence - correct)| / n."""
    if binning == "mass":
        order = np.argsort(confidence, kind="stable")
        confidence, correct = confidence[order], correct[order]
        which = mass_bin_of_rank(len(confidence), bins)
    else:
        which = bin_of(confidence, width_edges(bins))
    gap = np.bincount(which, confidence - correct, minlength=bins)
    return float(np.abs(gap).sum() / len(confidence))
