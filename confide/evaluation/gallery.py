"""Which samples to show: the easiest and hardest of each class and suspected labels, with small pictures."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide import dense
from confide.predictions import IMAGE, Predictions
from confide.records import Scores, Split, rows_of
from confide.results import Sample


def gallery(
    split: Split,
    scores: Scores,
    class_names: Sequence[str],
    *,
    predictions: Predictions | None = None,
    each: int = 6,
    longest_side: int = 96,
    most_classes: int = 20,
) -> tuple[Sample, ...]:
    """The `each` easiest and hardest samples of every class by difficulty, with small pictures.

    Args:
        split: the samples.
        scores: their difficulty; joined by id.
        class_names: names of the classes, by label.
        predictions: adds what the model said of each sample.
        each: samples per class and end.
        longest_side: larger pictures are shrunk to it.
        most_classes: with more classes only those with the highest mean difficulty are shown.

    Returns:
        Samples for an Evaluation, class by class, easiest first.

    Example:
        >>> import numpy as np
        >>> ids = np.array(["a", "b", "c"])
        >>> split = confide.Split(["fine", "odd", "good"], np.array([0, 0, 0]), ids)
        >>> scores = confide.Scores(ids, np.array([0.1, 0.9, 0.2]), "rmd")
        >>> [(s.role, s.text) for s in confide.evaluation.gallery(split, scores, ["review"], each=1)]
        [('easiest', 'fine'), ('hardest', 'odd')]
    """
    difficulty = scores.of(split.ids)
    aligned = None if predictions is None else predictions.align(split.ids)
    present = np.unique(split.labels)
    hardest_first = sorted(present, key=lambda k: -float(difficulty[split.labels == k].mean()))[:most_classes]
    samples: list[Sample] = []
    for label in sorted(hardest_first):
        rows = np.flatnonzero(split.labels == label)
        order = rows[np.argsort(difficulty[rows], kind="stable")]
        ends = (("easiest", order[:each]), ("hardest", order[::-1][: min(each, max(len(order) - each, 0))]))
        for role, chosen in ends:
            for row in chosen:
                samples.append(_sample(role, int(row), split, difficulty, class_names, aligned, longest_side))
    return tuple(samples)


def suspects(
    split: Split, scores: Scores, class_names: Sequence[str], *, most: int = 12, longest_side: int = 96
) -> tuple[Sample, ...]:
    """Samples whose label looks wrong, the most suspicious first; none where the scores carry no verdicts.

    Args:
        split: the samples.
        scores: with the columns `verdict`, `suspicion` and `suggested` that looking for label errors adds.
        class_names: names of the classes, by label.
        most: how many at most.
        longest_side: larger pictures are shrunk to it.

    Returns:
        Samples for an Evaluation; `prediction` is the class that fits better.

    Example:
        >>> import numpy as np
        >>> ids = np.array(["a", "b"])
        >>> split = confide.Split(["a cat", "a dog"], np.array([0, 0]), ids)
        >>> columns = {"verdict": np.array(["fine", "wrong label"]), "suspicion": np.array([0.1, 0.9])}
        >>> columns["suggested"] = np.array([0, 1])
        >>> scores = confide.Scores(ids, np.array([0.1, 0.9]), "rmd", columns=columns)
        >>> [(s.text, s.prediction) for s in confide.evaluation.suspects(split, scores, ["cat", "dog"])]
        [('a dog', 'dog')]
    """
    if not {"verdict", "suspicion", "suggested"} <= set(scores.columns):
        return ()
    at = rows_of(split.ids, scores.ids, "scores")
    verdict, suspicion, suggested = (scores.columns[name][at] for name in ("verdict", "suspicion", "suggested"))
    rows = np.flatnonzero(verdict == "wrong label")
    chosen = rows[np.argsort(-suspicion[rows], kind="stable")][:most]
    difficulty = scores.values[at]
    samples = (_sample("suspect", int(row), split, difficulty, class_names, None, longest_side) for row in chosen)
    return tuple(
        replace(sample, prediction=class_names[int(suggested[row])])
        for sample, row in zip(samples, chosen, strict=True)
    )


UNCOUNTED, WRONG = (90, 120, 190), (200, 40, 40)
"""Colours of pixels that do not count, and of errors."""


def map_gallery(
    predictions: Predictions, shape: tuple[int, int] | None = None, *, most: int = 6, longest_side: int = 300
) -> tuple[Sample, ...]:
    """Maps of confidence and error of the images with the largest share of wrong pixels, side by side.

    Args:
        predictions: of pixels, labelled.
        shape: height and width of the images, where the predictions do not tell them.
        most: images at most.
        longest_side: larger maps are shrunk to it.

    Returns:
        Samples for an Evaluation, which the report shows as maps.

    Raises:
        InputError: these are no pixels.

    Example:
        >>> import dataclasses, torch
        >>> p = confide.dense.pixels(torch.full((2, 3, 4, 4), 2.0), torch.ones(2, 4, 4, dtype=int))
        >>> maps = confide.evaluation.map_gallery(p, most=1)
        >>> evaluation = dataclasses.replace(confide.evaluate(p, ["accuracy"], False), samples=maps)
        >>> maps[0].text
        '100 % of 16 pixels wrong'
    """
    dense.maps(predictions, predictions.columns.get(IMAGE, [None])[0], shape)  # refuses what are no pixels
    images, place = np.unique(predictions.columns[IMAGE], return_inverse=True)
    wrong = ~predictions.facts.correct.cpu().numpy()
    pixels = np.bincount(place.reshape(-1))
    errors = np.bincount(place.reshape(-1), wrong) / pixels
    samples = []
    for k in np.argsort(-errors, kind="stable")[:most]:
        confidence, missed = dense.maps(predictions, images[k], shape)
        samples.append(
            Sample(
                role="map",
                id=str(images[k]),
                label="",
                confidence=float(np.nanmean(confidence)),
                picture=picture(map_picture(confidence, missed), longest_side),
                text=f"{errors[k]:.0%} of {pixels[k]:,} pixels wrong".replace("%", " %"),
            )
        )
    return tuple(samples)


def _thinning(counts: NDArray[np.bool_]) -> int:
    """Along each side, one of how many pixels was kept: by whether the neighbours of kept ones were kept too.

    A border that does not count is no thinning: its pixels lie together.
    """
    beside = [counts[:, 1:][counts[:, :-1]], counts[1:][counts[:-1]]]
    neighbours = np.concatenate(beside) if counts.size > 1 else np.ones(1)
    share = max(neighbours.mean() if neighbours.size else 0.0, counts.mean(), 1 / counts.size)
    return max(1, int(np.ceil(np.sqrt(0.9 / share))))


def map_picture(
    confidence: NDArray[np.floating], wrong: NDArray[np.floating], pixel: tuple[int, int] | None = None
) -> NDArray[np.uint8]:
    """Confidence in grey and errors in red, side by side, `3 h w`; small images enlarged, a pixel ringed if given.

    Where few pixels of an image were kept, each cell of a coarser grid shows the mean of those in it.
    """
    height, width = confidence.shape
    coarse = _thinning(np.isfinite(confidence))
    if coarse > 1:
        confidence, wrong = (_cell_means(values, coarse) for values in (confidence, wrong))
    missed = np.nan_to_num(wrong)
    grey = np.repeat((255 * np.nan_to_num(confidence))[None], 3, axis=0)
    faint = 128 + grey / 4  # errors stand on a faint map of the confidence
    red = faint + missed * (np.array(WRONG)[:, None, None] - faint)
    both = [np.where(np.isnan(confidence), np.array(UNCOUNTED)[:, None, None], part) for part in (grey, red)]
    times = max(1, 150 // max(confidence.shape))
    both = [part.repeat(times, axis=1).repeat(times, axis=2) for part in both]
    if pixel is not None:
        scale = both[0].shape[1] / height, both[0].shape[2] / width
        for part in both:
            _ring(part, (pixel[0] + 0.5) * scale[0], (pixel[1] + 0.5) * scale[1])
    gap = np.full((3, both[0].shape[1], max(1, both[0].shape[2] // 30)), 255.0)
    return np.concatenate([both[0], gap, both[1]], axis=2).astype(np.uint8)


def _cell_means(values: NDArray[np.floating], side: int) -> NDArray[np.float64]:
    """The mean of the numbers in every cell of so many rows and columns; NaN where there are none."""
    height, width = values.shape
    row, column = np.divmod(np.flatnonzero(np.isfinite(values)), width)
    shape = -(-height // side), -(-width // side)
    cell = row // side * shape[1] + column // side
    count = np.bincount(cell, minlength=shape[0] * shape[1])
    total = np.bincount(cell, values[row, column], minlength=len(count))
    return np.where(count > 0, total / np.maximum(count, 1), np.nan).reshape(shape)


def _ring(picture: NDArray[np.floating], y: float, x: float) -> None:
    """A ring around a place, black on white so that it is seen on any ground."""
    radius = max(3.0, max(picture.shape[1:]) / 40)
    rows, columns = np.ogrid[: picture.shape[1], : picture.shape[2]]
    distance = np.hypot(rows - y, columns - x)
    thick = max(1.0, radius / 4)
    picture[:, np.abs(distance - radius) <= thick] = 255
    picture[:, np.abs(distance - radius) <= thick / 2] = 0


def _sample(
    role: str,
    row: int,
    split: Split,
    difficulty: NDArray[np.float64],
    class_names: Sequence[str],
    predictions: Predictions | None,
    longest_side: int,
) -> Sample:
    content = split.inputs[row]
    return Sample(
        role=role,
        id=str(split.ids[row]),
        label=class_names[int(split.labels[row])],
        prediction=None if predictions is None else class_names[int(predictions.facts.prediction[row])],
        confidence=None if predictions is None else float(predictions.facts.confidence[row]),
        difficulty=float(difficulty[row]),
        picture=None if isinstance(content, str) else picture(content, longest_side),
        text=content[:280] if isinstance(content, str) else None,
    )


def picture(image: Any, longest_side: int = 96) -> str | None:
    """A data URI of a uint8 image `c h w`; None for what is not an image. PNG when small, else JPEG."""
    from confide.data.images import as_picture, picture_bytes

    drawn = as_picture(image)
    if drawn is None:
        return None
    if max(drawn.size) <= longest_side:
        kind, content = "png", picture_bytes(drawn, "png", optimize=True)
    else:
        drawn.thumbnail((longest_side, longest_side))
        kind, content = "jpeg", picture_bytes(drawn, "jpeg", quality=80)
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
