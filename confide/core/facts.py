"""Per-sample facts of a prediction, from one pass over the logits by row blocks that stay in cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from confide.core.door import InputError


@dataclass(frozen=True, eq=False)
class Facts:
    """Vectors of length n. Top-1 files know only confidence, prediction and correct; the rest is None there."""

    confidence: Tensor
    prediction: Tensor
    correct: Tensor
    entropy: Tensor | None = None
    margin: Tensor | None = None
    p_true: Tensor | None = None
    nll: Tensor | None = None
    brier: Tensor | None = None
    max_logit: Tensor | None = None
    energy: Tensor | None = None

    def need(self, name: str) -> Tensor:
        """The vector of that name, or an error where only top-1 confidences are known."""
        values: Tensor | None = getattr(self, name)
        if values is None:
            raise InputError(f"'{name}' needs all probabilities, but these predictions hold only the top-1 confidence")
        return values


def facts_of(logits: Tensor, labels: Tensor) -> Facts:
    """All facts of logits and labels, in the dtype of the logits but at least float32."""
    wide = logits.to(torch.float32) if logits.dtype in (torch.float16, torch.bfloat16) else logits
    n, num_classes = wide.shape
    names = ("confidence", "entropy", "margin", "p_true", "nll", "brier", "max_logit", "energy")
    out = {name: wide.new_empty(n) for name in names}
    prediction = torch.empty(n, dtype=torch.int64, device=wide.device)
    rows = max(1, (1 << 18) // max(num_classes, 1))
    for start in range(0, n, rows):
        block, truth = wide[start : start + rows], labels[start : start + rows, None]
        part = slice(start, start + len(block))
        log_probs = torch.log_softmax(block, dim=1)
        probs = log_probs.exp()
        top = probs.topk(2, dim=1).values
        out["max_logit"][part], prediction[part] = block.max(dim=1)
        out["energy"][part] = torch.logsumexp(block, dim=1)
        out["confidence"][part] = top[:, 0]
        out["margin"][part] = top[:, 0] - top[:, 1]
        out["entropy"][part] = -torch.xlogy(probs, probs).sum(dim=1)
        out["nll"][part] = -log_probs.gather(1, truth).squeeze(1)
        out["p_true"][part] = probs.gather(1, truth).squeeze(1)
        out["brier"][part] = probs.square().sum(dim=1) - 2 * out["p_true"][part] + 1
    bad = (~torch.isfinite(out["energy"])).nonzero()
    if len(bad):
        raise InputError(
            f"logits must be finite, got NaN or infinity at sample {int(bad[0])} of {n}; "
            "drop that sample or mend the model that made it"
        )
    return Facts(prediction=prediction, correct=prediction == labels, **out)
