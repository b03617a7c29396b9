"""An image folder with wrong labels.

Fifteen hundred embedded pictures; we give sixty of them the wrong class and look which are found.
"""

# %% A folder of pictures, as a camera or a labelling tool leaves it.
from pathlib import Path

import numpy as np
from PIL import Image

import confide

sample = confide.load_dataset("fashion-sample").train.take(np.arange(1500))
rng = np.random.default_rng(0)
given = sample.labels.copy()
wrong = rng.choice(len(given), 60, replace=False)
given[wrong] = (given[wrong] + rng.integers(1, 10, 60)) % 10
features = np.asarray(sample.columns["features"])

# %% Each sample is judged by the classes of all the others; the features came with the data.
record = confide.Features(features, given, sample.ids, "cached", "train")
verdicts = confide.difficulty.verdicts(record)
suspects = verdicts.suspects()
hits = len(set(suspects.tolist()) & set(wrong.tolist()))
print(f"{len(suspects)} suspects, {hits} of the 60 wrong labels among them")

# %% The first ten, with what is suggested instead.
for row in suspects[:10]:
    print(sample.ids[row], "labelled", given[row], "looks like", verdicts.fit.suggested[row], "was", sample.labels[row])

# %% The same from the shell, on a folder: confide score photos/ --split all --find-label-errors suspects.csv
for row in range(40):
    folder = Path("photos") / f"class{given[row]}"
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(sample.inputs[row])[0]).save(folder / f"{sample.ids[row]}.png")
print(sum(1 for _ in Path("photos").rglob("*.png")), "pictures written to photos/")
