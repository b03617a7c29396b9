"""A data frame with weights and groups.

Predictions lie in a table with words for labels, a sampling weight and the hospital they come from. Which hospital is
worse off, beyond chance?
"""

# %% A table as it comes out of a database; pandas or polars frames are taken the same way.
import numpy as np

import confide

rng = np.random.default_rng(1)
n = 3000
site = rng.choice(["north", "south", "west"], n, p=[0.5, 0.3, 0.2])
p_ill = rng.beta(1.2, 2.5, n)
truth = np.where(site == "west", p_ill**1.6, p_ill)  # in the west it is too sure of illness
frame = {
    "healthy": 1 - p_ill,
    "ill": p_ill,
    "label": np.where(rng.random(n) < truth, "ill", "healthy"),
    "site": site,
    "weight": np.where(site == "north", 2.0, 1.0),  # only every other patient of the north was sampled
}
predictions = confide.Predictions.from_frame(frame, probs=["healthy", "ill"], weight="weight")
print(predictions, list(predictions.columns))

# %% Every metric by site, with intervals; every sample counts by its weight.
evaluation = confide.evaluate(predictions, by="site")
for row in evaluation.measurements:
    if row.metric == "confidence_gap" and (row.group or "site=").startswith("site="):
        value, low, high = (100 * number for number in (row.value, row.low, row.high))
        print(f"{row.group or 'all':10} confidence less accuracy {value:+.1f} points ({low:+.1f} to {high:+.1f})")

# %% Or let it look for groups by itself: proposed on one half, tested on the other.
report = confide.evaluation.find_slices(predictions.replace(weights=None))
for slice_ in report.slices[:3]:
    print(slice_)
