"""From scores to a hard benchmark: which samples, without near-duplicates, the card that says how it was made, and its
files: a folder that loads as a test set (pictures by class, or a table of texts), or a parquet file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from confide.block_sizes import COMPARED_ROWS
from confide.checks import InputError, check_range
from confide.data.images import as_picture, picture_bytes
from confide.files import disk, formats
from confide.numerics.blocks import matrix_product, working_block
from confide.numerics.neighbours import unit
from confide.records import Dataset, Features, Scores, Split, rows_of


def distinct_rows(values: Any, order: NDArray[np.integer], count: int, similarity: float) -> NDArray[np.int64]:
    """The first `count` rows of `order` of which no two have a cosine of `similarity` or more; earlier ones win."""
    distinct: list[int] = []
    chosen = torch.empty(0, int(values.shape[1]))
    for start in range(0, len(order), COMPARED_ROWS):
        here = np.asarray(order[start : start + COMPARED_ROWS], dtype=np.int64)
        rows = unit(working_block(values[torch.as_tensor(here) if isinstance(values, torch.Tensor) else here]).cpu())
        free = np.ones(len(here), dtype=bool)
        if len(chosen):
            free = matrix_product(rows, chosen.to(rows).T).max(dim=1).values.numpy() < similarity
        among = matrix_product(rows, rows.T).numpy() >= similarity
        for i in range(len(here)):
            if free[i] and len(distinct) < count:
                distinct.append(int(here[i]))
                free[i + 1 :] &= ~among[i, i + 1 :]
            else:
                free[i] = False
        chosen = torch.cat([chosen.to(rows), rows[torch.from_numpy(free)]])
        if len(distinct) >= count:
            break
    return np.asarray(distinct, dtype=np.int64)


# From scores to a hard benchmark: which samples, and the card that says how it was made.


@dataclass(frozen=True, eq=False)
class HardBenchmark:
    """Rows of the scores that were chosen, hardest first, and how."""

    rows: NDArray[np.int64]
    scores: Scores
    fraction: float
    stratified: bool
    similarity: float | None
    left_out: int  # near-duplicates that would have been chosen

    def card(self, name: str, licence: str = "", class_names: Sequence[str] = ()) -> str:
        """A short text for the folder: how made, distribution of scores, classes, licence."""
        chosen, everything = self.scores.values[self.rows], self.scores.values
        lines = [
            f"# Hard part of {name}",
            "",
            f"The hardest {100 * self.fraction:g} % by `{self.scores.method}`"
            + (", the same share of every class" if self.stratified else "")
            + f": {len(self.rows):,} of {len(everything):,} samples. High scores are hard.",
            "",
            f"- options of the score: {dict(self.scores.options) or 'defaults'}",
            f"- near-duplicates left out: {self._duplicates()}",
            f"- scores here {chosen.min():.4g} to {chosen.max():.4g}, mean {chosen.mean():.4g}; "
            f"in all {everything.min():.4g} to {everything.max():.4g}, mean {self.scores.mean:.4g}",
            "- quantiles of all scores (5, 25, 50, 75, 95 %): "
            + ", ".join(f"{q:.4g}" for q in np.quantile(everything, (0.05, 0.25, 0.5, 0.75, 0.95))),
        ]
        lines += self._classes(class_names)
        lines += [
            "",
            "## Licence",
            "",
            licence or f"The samples are those of {name} and keep its licence; check it before passing them on.",
            "",
            "Hard samples hold more wrong labels than the rest: look through them before judging a model by them.",
            "",
        ]
        return "\n".join(lines)

    def _duplicates(self) -> str:
        if self.similarity is None:
            return "not looked for"
        return f"{self.left_out} (cosine of features at least {self.similarity:g})"

    def _classes(self, names: Sequence[str]) -> list[str]:
        if self.scores.labels is None:
            return []
        counts = np.bincount(self.scores.labels[self.rows])
        shown = [f"{names[k] if k < len(names) else k}: {count}" for k, count in enumerate(counts) if count]
        return ["", "## Samples per class", "", *(f"- {line}" for line in shown)]


def harden(
    scores: Scores,
    *,
    fraction: float = 0.1,
    stratify: bool = False,
    features: Features | None = None,
    similarity: float = 0.99,
) -> HardBenchmark:
    """The hardest fraction of the samples, without near-duplicates when features are given.

    Args:
        scores: of the samples, high = hard.
        fraction: share of the samples to keep.
        stratify: the same share of every class, at least one sample of each.
        features: rows to tell near-duplicates by; the next hardest takes the place of one left out.
        similarity: cosine of centred features from which two samples count as near-duplicates.

    Returns:
        A `HardBenchmark`: the rows, hardest first; `card()` says how it was made.

    Raises:
        InputError: a stratified choice of scores without labels.

    Example:
        >>> import numpy as np
        >>> labels = np.arange(60) % 2
        >>> rows = 4 * np.eye(2, 3)[labels] + np.random.default_rng(0).normal(size=(60, 3))
        >>> rows[7] = [4, 0, 0]  # of class 1, but it looks like class 0
        >>> scores = confide.difficulty.score("rmd", rows, labels)
        >>> hard = confide.difficulty.harden(scores, fraction=0.05)
        >>> len(hard.rows), int(hard.rows[0])
        (3, 7)
    """
    check_range(fraction, "fraction", 0, 1, low_open=True)
    check_range(similarity, "similarity", 0, 1, low_open=True)
    order = np.argsort(-scores.values, kind="stable")
    if not stratify:
        rows, left_out = _choose(order, _count(fraction, len(order)), scores, features, similarity)
    else:
        if scores.labels is None:
            raise InputError("a stratified choice needs labels, but these scores have none; score with labels")
        parts = [order[scores.labels[order] == k] for k in np.unique(scores.labels)]
        chosen = [_choose(p, _count(fraction, len(p)), scores, features, similarity) for p in parts]
        rows = np.concatenate([c[0] for c in chosen])
        rows = rows[np.argsort(-scores.values[rows], kind="stable")]
        left_out = sum(c[1] for c in chosen)
    return HardBenchmark(rows, scores, fraction, stratify, similarity if features is not None else None, left_out)


def _count(fraction: float, n: int) -> int:
    return max(1, round(fraction * n))


def _choose(
    order: NDArray[Any], count: int, scores: Scores, features: Features | None, similarity: float
) -> tuple[NDArray[np.int64], int]:
    if features is None:
        return order[:count].astype(np.int64), 0
    place = rows_of(scores.ids[order], features.ids, "features")
    mean = np.asarray(features.values[:: max(1, len(features) // 4096)], dtype=np.float64).mean(axis=0)
    distinct = distinct_rows(_Centred(features.values, mean), place, count, similarity)
    back = dict(zip(place.tolist(), order.tolist(), strict=True))
    rows = np.array([back[int(k)] for k in distinct], dtype=np.int64)
    position = {int(row): i for i, row in enumerate(order)}
    return rows, position[int(rows[-1])] + 1 - len(rows)


class _Centred:
    """Rows minus a mean: without it the features of many networks all point much the same way."""

    def __init__(self, values: Any, mean: NDArray[np.float64]) -> None:
        self.values, self.mean, self.shape = values, mean.astype(np.float32), values.shape

    def __getitem__(self, rows: Any) -> NDArray[np.float32]:
        return np.asarray(self.values[rows], dtype=np.float32) - self.mean


# Its files.


def export(out: Path, dataset: Dataset, split: str, hard: HardBenchmark, card: str) -> None:
    """Write the chosen samples; the card comes last, so its presence means the benchmark is whole."""
    part = dataset.split(split)
    ids = hard.scores.ids[hard.rows]
    absent = ~np.isin(ids.astype(np.str_), part.ids.astype(np.str_))
    if absent.any():
        raise InputError(
            f"{absent.sum()} of {len(ids)} hard samples are not in the split '{split}', first {str(ids[absent][0])!r}; "
            "name the split that was scored with --split, or --split all"
        )
    rows = rows_of(ids, part.ids, f"split '{split}' of the data")
    values = hard.scores.values[hard.rows]
    if out.suffix == ".parquet":
        disk.remove(out.with_suffix(".md"))
        columns = {"id": part.ids[rows], "label": part.labels[rows], "score": values, **_contents(part, rows)}
        formats.write_table(
            out, columns, {"confide": formats.HARD.tag, "class_names": json.dumps(list(dataset.class_names))}
        )
        formats.write_text(out.with_suffix(".md"), card)
        return
    if out.suffix:
        raise InputError(f"the hard samples go to a folder or a .parquet file, got '{out}'")
    with disk.locked(out):
        _export_folder(out, dataset, part, rows, values, card)


def _export_folder(
    out: Path, dataset: Dataset, part: Split, rows: NDArray[Any], values: NDArray[Any], card: str
) -> None:
    first = part.inputs[int(rows[0])]
    if not isinstance(first, str) and np.asarray(first).ndim < 2:
        raise InputError("rows of numbers are exported as .parquet; give -o FILE.parquet")
    names = np.array([dataset.class_names[int(k)] for k in part.labels[rows]])
    common = {"id": part.ids[rows], "label": names, "score": values}
    disk.remove_leftovers([out, out / "about", *(out / "test").glob("*")])
    if isinstance(first, str):
        disk.remove(out / "README.md")
        formats.write_table(out / "test.csv", {"text": _contents(part, rows)["text"], **common})
    else:
        _clear(out)
        places = _write_pictures(out, dataset, part, rows)
        # Not beside the folder of pictures: a table there would be taken for the dataset itself.
        formats.write_table(out / "about" / "samples.csv", {"file": places, **common})
    formats.write_text(out / "README.md", card)


def _contents(part: Split, rows: NDArray[Any]) -> dict[str, NDArray[Any]]:
    first = part.inputs[int(rows[0])]
    if isinstance(first, str):
        return {"text": np.array([part.inputs[int(r)] for r in rows], dtype=object)}
    if np.asarray(first).ndim >= 2:
        return {"image": np.array([_png(part.inputs[int(r)]) for r in rows], dtype=object)}
    return {"row": np.stack([np.asarray(part.inputs[int(r)]) for r in rows])}


def _clear(out: Path) -> None:
    """Take an earlier benchmark's pictures away, which would count as hard; other files are refused, never removed."""
    paths = sorted((out / "test").rglob("*"), reverse=True)  # what a folder holds comes before it
    own = re.compile(r"\d{4}-[^/]*(/\d{6}\.png)?")
    for path in paths:
        if not own.fullmatch(path.relative_to(out / "test").as_posix()):
            raise InputError(
                f"{out} must be a new folder or an earlier hard benchmark, got {path}; choose another folder"
            )
    for path in (out / "README.md", *paths):
        disk.remove(path)


def _write_pictures(out: Path, dataset: Dataset, part: Split, rows: NDArray[Any]) -> NDArray[np.str_]:
    """One file per sample under its class's number and name; ids may hold anything, so files are numbered."""
    places = []
    for label in range(dataset.num_classes):
        # Also of classes without a hard sample: the numbers of the classes stay what they were.
        disk.make_folder(out / "test" / _folder_of(dataset, label))
    for number, row in enumerate(rows):
        item = part.inputs[int(row)]
        place = f"test/{_folder_of(dataset, int(part.labels[row]))}/{number:06d}.png"
        with disk.atomic(out / place) as temporary:
            temporary.write_bytes(_png(item))
        places.append(place)
    return np.array(places)


def _folder_of(dataset: Dataset, label: int) -> str:
    """The number keeps the order of the classes, the name makes it readable."""
    name = "".join(c if c.isalnum() or c in "-_" else "_" for c in dataset.class_names[label])[:60]
    return f"{label:04d}-{name}"


def _png(item: Any) -> bytes:
    picture = item if isinstance(item, Image.Image) else as_picture(item, channels=(1, 3, 4))
    if picture is None:
        raise InputError(f"pictures must be uint8 pixels c h w, got {np.asarray(item).dtype} {np.shape(item)}")
    return picture_bytes(picture)
