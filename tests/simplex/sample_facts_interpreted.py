"""The kernel of `facts_of` on a CPU, by Triton's interpreter, against the host's pass; run in a process of its own."""

from __future__ import annotations

import numpy as np
import torch

from confide.facts import ClassCounter, facts_of
from confide.numerics.binning import width_edges
from confide.simplex.sample_facts import NAMES, sample_facts

CASES = (
    (37, 10, torch.float32, 15, "right"),
    (7, 3, torch.float32, 15, "left"),
    (50, 37, torch.bfloat16, 15, "right"),
    (5, 2500, torch.float32, 10, "right"),
    (64, 10, torch.float16, 1, "right"),
)
"""Rows, classes, type, bins and where they are closed."""

for n, classes, kind, bins, closed in CASES:
    generator = torch.Generator().manual_seed(classes)
    logits = (3 * torch.randn(n, classes, generator=generator)).to(kind)
    labels = torch.randint(1, classes, (n,), generator=generator)
    logits[3, 0] = -torch.inf  # a class ruled out
    for weights in (None, np.random.default_rng(0).random(n) + 0.5):
        there, here = (ClassCounter(classes, bins, closed, weights) for _ in range(2))
        facts = facts_of(logits, labels, counter=here)
        own = None if weights is None else torch.from_numpy(weights)
        found = sample_facts(logits, labels, torch.from_numpy(width_edges(bins)).float(), own, closed)
        by_name = dict(zip(NAMES, found.values, strict=True))
        for name, values in by_name.items():
            torch.testing.assert_close(values, getattr(facts, name), rtol=3e-6, atol=3e-6, msg=name)
        assert torch.equal(found.prediction, facts.prediction)
        there.add_sums(n, found.columns, found.cells)
        there.add_truth(by_name["p_true"].numpy(), labels.numpy(), by_name["brier"].numpy())
        for name, values in vars(there.table()).items():
            np.testing.assert_allclose(values, getattr(here.table(), name), atol=2e-5, err_msg=name)
print(f"{len(CASES)} cases, 0 wrong")
