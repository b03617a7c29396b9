"""Figure 5 of Zhou et al.: how well the smooth binned CDF follows the true one."""

import numpy as np

from benchmarks.lib.claims import Trend
from benchmarks.lib.items import Item, Study
from benchmarks.lib.quantities import cells_of, sample_facts
from benchmarks.lib.values import Value

BINS = 64
SMOOTHNESS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.2)


def values(study: Study) -> list[Value]:
    """Mean gap between eq. 21's estimate and the empirical CDF of the confidences."""
    values = []
    for dataset, method, seed, result in cells_of(study, ("cross_entropy",)):
        _, _, confidence = sample_facts(study, result)
        counts, edges = np.histogram(confidence, bins=BINS, range=(0, 1))
        centres = (edges[:-1] + edges[1:]) / 2
        at = np.linspace(0, 1, 501)
        true = np.searchsorted(np.sort(confidence), at, side="right") / len(confidence)
        for smoothness in SMOOTHNESS:
            steps = 1 / (1 + np.exp(-np.clip((at[:, None] - centres) / smoothness, -500, 500)))
            gap = 100 * float(np.abs(steps @ counts / len(confidence) - true).mean())
            values.append(Value(dataset, method, "mean gap of the CDF", seed, gap, smoothness))
    return values


ITEM = Item(
    name="p2-figure5",
    title="smoothness of the approximate CDF",
    source="Zhou et al. (2025), Figure 5",
    setting="curves of the sigmoid approximation for several nu; no numbers are printed.",
    here="64 bins, the test confidences of networks trained with cross-entropy; the gap is in points.",
    methods=("cross_entropy",),
    axes={"": "nu"},
    values=values,
    claims=(Trend("a smaller nu follows the CDF more closely", ("cross_entropy",), "mean gap of the CDF", least=0.9),),
)
