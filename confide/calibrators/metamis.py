"""metamis: temperature for low entropies, no answer (uniform) for high ones, at a bounded miscoverage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from confide.calibrators.calibrator import CALIBRATORS, Fitted, Values, of_rows, transform_of
from confide.calibrators.temperature import bound_notes
from confide.calibrators.tempered import best_scale
from confide.core.door import InputError, check_range
from confide.core.shapes import Labels, Logits, PerSample

LARGEST_DRAW = 500
ROUNDING = 1e-6


@CALIBRATORS.add(
    "metamis",
    paper="Ma and Blaschko, 2021, Meta-Cal, arXiv:2105.04290",
    corners=({"alpha": 0.5}, {"alpha": 0.001}),
    keeps_argmax=False,
    yields="logits",
    parameters=(2, 0, 0),
)
def metamis(
    logits: Logits, labels: Labels, *, alpha: float = 0.05, seed: int = 0, rows: Sequence[int] | None = None
) -> Fitted:
    """Meta-Cal under a miscoverage constraint: softmax(z / T) where the entropy is below a threshold, else 1 / c.

    The rows above the threshold say "do not know": their argmax becomes class 0, which costs accuracy.

    Args:
        alpha: share of right predictions that may fall above the threshold. Default: the choice of the paper.
        seed: of the draw of right predictions (a tenth, at most 500) that set the threshold.
        rows: these validation rows set the threshold instead of drawn ones.
    """
    check_range(alpha, "alpha", 0.0, 1.0, low_open=True, high_open=True)
    entropy = entropy_of(logits)
    right = (logits.argmax(dim=1) == labels).nonzero().squeeze(1).numpy()
    chosen = chosen_rows(rows, right, len(right) // 10, seed, len(labels))
    threshold = float(np.quantile(entropy[chosen].numpy(), 1 - alpha, method="higher"))
    return tempered_below(logits, labels, entropy, threshold, chosen)


def chosen_rows(
    rows: Sequence[int] | None, pool: NDArray[np.int64], wanted: int, seed: int, n: int
) -> NDArray[np.int64]:
    """The rows given, or a seeded draw from the pool: at least one, at most 500."""
    if rows is not None:
        given = np.asarray(rows, dtype=np.int64)
        if not len(given) or given.min() < 0 or given.max() >= n:
            raise InputError(f"rows must be indices into the {n} predictions, got {list(given[:5])}")
        return given
    if not len(pool):
        raise InputError("the threshold needs at least one right prediction, got none; use more predictions on 'val'")
    return np.random.default_rng(seed).permutation(pool)[: min(max(wanted, 1), LARGEST_DRAW)]


def tempered_below(
    logits: Logits, labels: Labels, entropy: PerSample, threshold: float, chosen: NDArray[np.int64]
) -> Fitted:
    """Temperature on the rows that did not set the threshold and lie below it."""
    below = entropy < threshold
    below[torch.from_numpy(chosen)] = False
    notes = [f"{int((entropy >= threshold).sum())} of {len(labels)} validation samples get the uniform answer"]
    if not bool(below.any()):
        notes.append("no other sample lies below the entropy threshold, so T stays 1; use more validation samples")
        scale = 1.0
    else:
        found = best_scale(logits[below], labels[below])
        scale, notes = found.scale, [*notes, *bound_notes(found)]
    values = {
        "threshold": torch.tensor(threshold, dtype=torch.float64),
        "temperature": torch.tensor(1 / scale, dtype=torch.float64),
    }
    return Fitted(values, tuple(notes))


def entropy_of(logits: Logits) -> PerSample:
    """Entropy of softmax(logits) in float64, by row blocks."""
    return of_rows(logits, _entropy)


def _entropy(logits: Logits) -> PerSample:
    log_probs = torch.log_softmax(logits, dim=1)
    return -(log_probs.exp() * log_probs).sum(dim=1)


@transform_of("metamis")
def answered(values: Values, logits: Logits) -> Logits:
    """z / T below the entropy threshold, zeros (the uniform answer) above."""
    # The threshold is the entropy of a sample, which float32 and other devices round otherwise: it stays above.
    below = (_entropy(logits) < values["threshold"] * (1 - ROUNDING))[:, None]
    return torch.where(below, logits / values["temperature"], torch.zeros_like(logits))
