"""Dense predictions: pixels of segmented images, and boxes of a detector, as rows of `Predictions`.

Pixels of one image, and boxes of one image, are not independent: the image is their `unit`, which intervals, tests and
folds count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide.block_sizes import WIDENED_ROWS
from confide.checks import InputError, as_tensor, check_number, check_range, printable
from confide.files import formats
from confide.predictions import IMAGE, Predictions
from confide.random import generator
from confide.types import Columns, Floats, Options

__all__ = ["boundary_distance", "boxes", "from_coco", "image_predictions", "maps", "pixels", "read_images"]

PLACE, BOUNDARY, HEIGHT, WIDTH = "place", "boundary", "height", "width"
"""Columns of pixels: where each lies in its image, row by row; the band of its distance to a boundary; the image's
size.
"""
SIZES = {"small": 0.0, "medium": 32.0**2, "large": 96.0**2}
"""Areas in pixels from which a box is called so (Lin et al., 2014, COCO)."""


@dataclass(frozen=True, eq=False)
class PixelRows:
    """The pixels of one image that count: outputs `n c`, labels, places, and distances to a boundary if asked for."""

    outputs: Tensor
    labels: Tensor | None
    places: NDArray[np.int64]
    distance: Floats | None
    shape: tuple[int, int]


def image_rows(
    outputs: Any, labels: Any, number: int, ignore_index: int, boundary: bool, most: int | None, seed: int
) -> PixelRows:
    """The pixels of one image without those to be ignored, at most so many, drawn by seed and image."""
    values = as_tensor(outputs, f"outputs of image {number}")
    if values.ndim != 3:
        raise InputError(f"outputs of image {number} must be c h w, got shape {tuple(values.shape)}; drop the batch")
    classes = len(values)
    truth = None if labels is None else as_tensor(labels, f"labels of image {number}").cpu().numpy()
    if truth is not None and truth.shape != tuple(values.shape[1:]):
        raise InputError(
            f"labels of image {number} must be {' x '.join(map(str, values.shape[1:]))} as its outputs, "
            f"got {' x '.join(map(str, truth.shape))}; resize the outputs to the labels"
        )
    size = values.shape[1] * values.shape[2]
    places = np.arange(size) if truth is None else np.flatnonzero(truth.reshape(-1) != ignore_index)
    if most is not None and len(places) > most:
        places = np.sort(generator(seed, "pixels", number).choice(places, most, replace=False))
    at, flat = torch.from_numpy(places).to(values.device), values.reshape(classes, size)
    rows = values.new_empty(len(places), classes)
    for first in range(0, len(places), WIDENED_ROWS):  # turned while they are near: twice as fast as all at once
        part = slice(first, first + WIDENED_ROWS)
        rows[part] = flat.index_select(1, at[part]).T
    own = None
    if truth is not None:
        counted = truth.reshape(-1)[places]
        if not np.equal(counted, np.floor(counted)).all():  # also where one is NaN
            raise InputError(
                f"labels of image {number} must be whole numbers of classes, got others; round none of them"
            )
        own = torch.from_numpy(counted.astype(np.int64))
    distance = boundary_distance(truth, ignore_index).reshape(-1)[places] if boundary and truth is not None else None
    return PixelRows(rows, own, places, distance, (values.shape[1], values.shape[2]))


def boundary_distance(labels: Any, ignore_index: int = 255) -> Floats:
    """Distance in pixels from every pixel to the nearest one whose neighbour has another label; 0 on a boundary.

    Args:
        labels: `h w` classes of one image.
        ignore_index: a label that is none: it makes no boundary.

    Returns:
        `h w`; infinity where the image has no boundary.

    Raises:
        InputError: the labels are not those of one image.

    Example:
        >>> confide.dense.boundary_distance([[0, 0, 1, 1]]).tolist()
        [[1.0, 0.0, 0.0, 1.0]]
    """
    from scipy.ndimage import distance_transform_edt

    truth = as_tensor(labels, "labels").cpu().numpy()
    if truth.ndim != 2:
        raise InputError(f"labels of one image must be h w, got shape {truth.shape}; give one image at a time")
    known = truth != ignore_index
    edge = np.zeros(truth.shape, dtype=bool)
    for axis in (0, 1):
        first = tuple(slice(None, -1) if k == axis else slice(None) for k in (0, 1))
        second = tuple(slice(1, None) if k == axis else slice(None) for k in (0, 1))
        differs = (truth[first] != truth[second]) & known[first] & known[second]
        edge[first] |= differs
        edge[second] |= differs
    if not edge.any():
        return np.full(truth.shape, np.inf)
    return np.asarray(distance_transform_edt(~edge))


def band_names(distance: Floats, edges: Sequence[float]) -> NDArray[np.str_]:
    """The band of every distance: `0 to 2 px`, `2 to 8 px`, `8 px and more`."""
    low = (0.0, *edges)
    words = [f"{a:g} to {b:g} px" for a, b in zip(low, edges, strict=False)] + [f"{low[-1]:g} px and more"]
    return np.array(words)[np.searchsorted(np.asarray(edges), distance, side="right")]


def pixels(
    logits: Any = None,
    labels: Any = None,
    ids: Any = None,
    split: str | None = None,
    *,
    probs: Any = None,
    ignore_index: int = 255,
    boundary: Sequence[float] | None = None,
    most: int | None = None,
    seed: int = 0,
    class_names: Sequence[str] | None = None,
) -> Predictions:
    """Predictions of segmented images: a row for every pixel that is not ignored, the image as what was drawn as one.

    Args:
        logits: `n c h w`, or an iterable of `c h w`, also of different sizes; read one by one.
        labels: `n h w`, or an iterable of `h w`, where known.
        ids: n, of the images.
        split: `train`, `val` or `test`.
        probs: instead of logits, probabilities of the classes.
        ignore_index: the label of pixels that do not count.
        boundary: edges of bands of the distance to the nearest label boundary, such as (2, 8): a column `boundary`.
        most: pixels of an image to keep at most, drawn by seed: a calibrator needs no more than some thousands of each.
        seed: of that draw.
        class_names: of the c classes.

    Returns:
        A record with the columns `image`, `place`, `height` and `width`, whose unit is the image.

    Raises:
        InputError: shapes that do not fit, or no pixel that counts.

    Example:
        >>> import torch
        >>> logits = torch.zeros(2, 3, 4, 4)
        >>> logits[:, 1] = 2.0
        >>> labels = torch.ones(2, 4, 4, dtype=torch.long)
        >>> labels[0, 0] = 255
        >>> p = confide.dense.pixels(logits, labels)
        >>> p, float(confide.metrics.accuracy(p))
        (<Predictions: 28 samples, 3 classes, logits>, 1.0)
    """
    if (logits is None) == (probs is None):
        raise InputError("pixels need logits or probs, c h w of every image; give one of them")
    if most is not None:
        most = check_number(most, "most", 1, 1, math.inf)
    outputs = logits if probs is None else probs
    parts, names = [], []
    for number, (image, truth) in enumerate(_pairs(outputs, labels)):
        parts.append(image_rows(image, truth, number, ignore_index, boundary is not None, most, seed))
        names.append(_image_name(ids, number))
    if not any(len(part.places) for part in parts):
        raise InputError("predictions of pixels need at least one that is not ignored, got none; check ignore_index")
    counts = [len(part.places) for part in parts]
    columns: Columns = {
        IMAGE: np.repeat(np.array(names), counts),
        PLACE: np.concatenate([part.places for part in parts]),
    }
    for side, name in enumerate((HEIGHT, WIDTH)):
        columns[name] = np.repeat(np.array([part.shape[side] for part in parts], dtype=np.int32), counts)
    if boundary is not None:
        distances = [part.distance for part in parts if part.distance is not None]
        if len(distances) != len(parts):
            raise InputError("boundary= needs labels, whose boundaries the bands are of; leave it out")
        columns[BOUNDARY] = band_names(np.concatenate(distances), boundary)
    truths = [part.labels for part in parts if part.labels is not None]
    together = parts[0].outputs if len(parts) == 1 else torch.cat([part.outputs for part in parts])
    record: Options = {"split": split, "columns": columns, "class_names": class_names, "unit": IMAGE}
    make = Predictions if probs is None else Predictions.from_probs
    return make(together, torch.cat(truths) if truths else None, **record)


def read_images(path: str | Path) -> tuple[Iterator[NDArray[Any]], Iterator[NDArray[Any]], str]:
    """Outputs and labels of images in a file or a folder, read one by one.

    Args:
        path: an npz with `logits` (or `probs`) `n c h w` and `labels` `n h w`; or a folder of npz files of an image
            each, with `c h w` and `h w`.

    Returns:
        Outputs, labels, and whether the outputs are `logits` or `probs`.

    Raises:
        InputError: no such file, or arrays of another shape.

    Example:
        >>> import numpy as np
        >>> np.savez("images.npz", logits=np.zeros((2, 3, 4, 4)), labels=np.zeros((2, 4, 4), dtype=int))
        >>> logits, labels, kind = confide.dense.read_images("images.npz")
        >>> confide.dense.pixels(**{kind: logits}, labels=labels)
        <Predictions: 32 samples, 3 classes, logits>
    """
    source = Path(path)
    paths = sorted(source.glob("*.npz")) if source.is_dir() else [source]
    if not paths:
        raise InputError(f"{path} must hold npz files of an image each, got none; check the path")
    kinds = [name for name in ("logits", "probs") if name in formats.column_names(paths[0])]
    if len(kinds) != 1:
        raise InputError(f"{paths[0]} must have 'logits' or 'probs', and 'labels'; got neither, or both")

    def arrays(name: str) -> Iterator[NDArray[Any]]:
        for file in paths:
            table, _ = formats.read_table(file)
            if name not in table:
                raise InputError(f"{file} must have '{name}', got {', '.join(table)}; save it with the outputs")
            whole = table[name].ndim == (4 if name != "labels" else 3)
            yield from table[name] if whole else [table[name]]

    return arrays(kinds[0]), arrays("labels"), kinds[0]


def image_predictions(
    logits: Any = None, labels: Any = None, ids: Any = None, split: str | None = None, **options: Any
) -> Iterator[Predictions]:
    """The pixels of one image after the other, for what counts a stream in memory that does not grow with it.

    Args:
        logits: an iterable of `c h w`, as for `pixels`.
        labels: an iterable of `h w`.
        ids: n, of the images.
        split: `train`, `val` or `test`.
        options: probs, ignore_index, boundary, most, seed, class_names, as for `pixels`.

    Returns:
        A record an image; images in which no pixel counts are left out.

    Example:
        >>> import torch
        >>> images = (torch.randn(3, 4, 4) for _ in range(2)), (torch.zeros(4, 4, dtype=int) for _ in range(2))
        >>> sketch = confide.evaluation.sketch_of(confide.dense.image_predictions(*images))
        >>> sketch.rows, len(sketch.units)
        (32, 2)
    """
    kind = "logits" if options.get("probs") is None else "probs"
    outputs, ignored = (logits if kind == "logits" else options.pop("probs")), options.get("ignore_index", 255)
    for number, (image, truth) in enumerate(_pairs(outputs, labels)):
        if truth is not None and bool((as_tensor(truth, "labels") == ignored).all()):
            continue
        name = str(ids[number]) if ids is not None else str(number)
        own: Options = {kind: [image], "labels": None if truth is None else [truth]}
        yield pixels(**own, ids=[name], split=split, **options)


def _pairs(outputs: Any, labels: Any) -> Iterator[tuple[Any, Any]]:
    for part in (outputs, labels):
        if part is not None:
            _check_entries(part, "outputs and labels")
    missing = object()
    for number, (image, truth) in enumerate(
        zip_longest(outputs, repeat(None) if labels is None else labels, fillvalue=missing)
    ):
        if labels is None and image is missing:
            return
        if image is missing or truth is missing:
            lacks = "outputs" if image is missing else "labels"
            raise InputError(f"every image must have outputs and labels, but image {number} has no {lacks}")
        yield image, truth


def _image_name(ids: Any, number: int) -> str | int:
    """What an image is called: its id, or its number."""
    if ids is None:
        return number
    if number >= len(ids):
        raise InputError(f"ids must be one for each image, got {len(ids)} and more images; give the others")
    return str(ids[number])


def _check_entries(part: Any, what: str) -> None:
    if not hasattr(part, "__iter__") or not getattr(part, "ndim", 1):
        raise InputError(f"{what} must be lists, one entry an image, got {printable(repr(part))[:60]}")


def are_pixels(predictions: Predictions) -> bool:
    """Whether these are pixels, each with its place in an image of known size."""
    known = [predictions.columns.get(name) for name in (PLACE, HEIGHT, WIDTH)]
    return predictions.unit == IMAGE and all(v is not None and v.dtype.kind in "iu" for v in known)


def maps(predictions: Predictions, image: Any, shape: tuple[int, int] | None = None) -> tuple[Floats, Floats]:
    """Confidence and error of one image as maps; NaN where a pixel does not count.

    Args:
        predictions: of pixels.
        image: its id, or its number.
        shape: height and width, where the predictions do not tell them.

    Returns:
        Confidence `h w`, and 1 where the prediction is wrong, 0 where it is right, likewise.

    Raises:
        InputError: these are no pixels, or there is no such image.

    Example:
        >>> import torch
        >>> p = confide.dense.pixels(torch.full((1, 2, 1, 2), 3.0), torch.tensor([[[0, 1]]]))
        >>> [own.tolist() for own in confide.dense.maps(p, 0)]
        [[[0.5, 0.5]], [[0.0, 1.0]]]
    """
    if PLACE not in predictions.columns or predictions.unit != IMAGE:
        raise InputError(f"maps are of pixels, got {predictions!r}; make them with confide.dense.pixels")
    rows = np.flatnonzero(predictions.columns[IMAGE] == image)
    if not len(rows):
        raise InputError(f"there is no image {image!r} among these pixels; its id is in the column '{IMAGE}'")
    own = predictions.take(rows)
    if shape is None:
        if not are_pixels(predictions):
            raise InputError("maps need height and width of the image, got neither as a column; pass shape=(h, w)")
        shape = int(own.columns[HEIGHT][0]), int(own.columns[WIDTH][0])
    confidence, wrong = np.full(shape, np.nan), np.full(shape, np.nan)
    at = own.columns[PLACE]
    confidence.reshape(-1)[at] = own.facts.sureness()
    if own.facts.right is not None:
        wrong.reshape(-1)[at] = ~own.facts.correct.cpu().numpy()
    return confidence, wrong


# Boxes.


def overlaps(boxes: Floats, others: Floats) -> Floats:
    """Intersection over union of every two boxes `x1 y1 x2 y2`, `n m`."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    shared = np.clip(high - low, 0, None).prod(axis=2)
    return np.asarray(shared / np.maximum(areas(boxes)[:, None] + areas(others)[None] - shared, 1e-12))


def areas(boxes: Floats) -> Floats:
    """Area of every box."""
    return np.asarray(np.clip(boxes[:, 2:] - boxes[:, :2], 0, None).prod(axis=1))


def boxes(
    detected: Iterable[Any],
    scores: Iterable[Any],
    classes: Iterable[Any],
    truth: Iterable[Any],
    truth_classes: Iterable[Any],
    *,
    iou: float = 0.5,
    ids: Any = None,
    class_names: Sequence[str] | None = None,
    split: str | None = None,
) -> Predictions:
    """Pairs of a detector: a box is right if it overlaps a true box of its class, which no surer box has taken.

    Args:
        detected: of every image the detector's boxes, `k 4` as x1 y1 x2 y2.
        scores: of every image their confidences, k in [0, 1].
        classes: of every image their classes, k.
        truth: of every image the true boxes, `m 4`.
        truth_classes: of every image their classes, m.
        iou: intersection over union from which a box counts as found.
        ids: of the images.
        class_names: of the classes.
        split: `train`, `val` or `test`.

    Returns:
        A record of confidence and correctness with the columns `image` (its unit), `box_class` and `size` (small below
        32 x 32 pixels, large from 96 x 96 on), and `overlap` with the box it took. True boxes that were missed make no
        row: precision and calibration are those of what was found.

    Raises:
        InputError: shapes that do not fit, or no box at all.

    Example:
        >>> p = confide.dense.boxes(
        ...     [[[0, 0, 10, 10], [1, 1, 11, 11], [50, 50, 60, 60]]], [[0.9, 0.8, 0.7]], [[0, 0, 1]],
        ...     [[[0, 0, 10, 10], [50, 50, 58, 60]]], [[0, 1]])
        >>> p.facts.correct.tolist(), p.columns["size"].tolist()
        ([True, False, True], ['small', 'small', 'small'])
    """
    check_range(iou, "iou", 0.0, 1.0, low_open=True)
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in ("score", "right", "class", "area", "overlap", IMAGE)}
    for number, own in enumerate(_images(detected, scores, classes, truth, truth_classes)):
        near, sure, kinds, real, real_kinds = (_box_values(v, number, k in (0, 3)) for k, v in enumerate(own))
        if not len(near) == len(sure) == len(kinds) or len(real) != len(real_kinds):
            raise InputError(f"boxes, scores and classes of image {number} must be as many; check that image")
        if any((v != np.floor(v)).any() for v in (kinds, real_kinds)):
            raise InputError(f"classes of image {number} must be whole numbers, got others; check that image")
        right, overlap = matched(near, sure, kinds, real, real_kinds, iou)
        name = _image_name(ids, number)
        values = (sure, right, kinds.astype(np.int64), areas(near), overlap, np.array([name] * len(near)))
        for key, value in zip(parts, values, strict=True):
            parts[key].append(value)
    rows = {key: np.concatenate([v for v in own if len(v)] or [np.zeros(0)]) for key, own in parts.items()}
    if not len(rows["score"]):
        raise InputError("predictions of boxes need at least one box, got none; lower the detector's threshold")
    names = None if class_names is None else np.array(list(class_names))
    size = np.array(list(SIZES))[np.searchsorted(list(SIZES.values()), rows["area"], side="right") - 1]
    columns = {IMAGE: rows[IMAGE], "size": size, "overlap": rows["overlap"]}
    columns["box_class"] = rows["class"] if names is None else names[rows["class"]]
    return Predictions.from_pairs(rows["right"].astype(np.int64), rows["score"], split=split, unit=IMAGE, **columns)


def _images(*parts: Any) -> Iterator[tuple[Any, ...]]:
    """The parts of one image after the other, of which all must be as many."""
    missing = object()
    for part in parts:
        _check_entries(part, "boxes, scores and classes")
    for number, own in enumerate(zip_longest(*parts, fillvalue=missing)):
        if any(part is missing for part in own):
            raise InputError(f"boxes, scores and classes must be of as many images, but image {number} lacks one")
        yield own


def _box_values(values: Any, number: int, corners: bool) -> Floats:
    """Four finite numbers a box, or one."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.full(1, np.nan)
    if corners and not array.size:
        array = array.reshape(0, 4)
    if array.ndim != (2 if corners else 1) or (corners and array.shape[1] != 4) or not np.isfinite(array).all():
        needs = "n x 4 finite numbers" if corners else "n finite numbers"
        raise InputError(f"boxes of image {number} must be {needs}, got {printable(repr(values))[:60]}")
    return array


def from_coco(
    detections: str | Path, annotations: str | Path, *, iou: float = 0.5, split: str | None = None
) -> Predictions:
    """Pairs of a detector from files in the layout of COCO: results, and annotations.

    Args:
        detections: JSON, a list of {image_id, category_id, bbox: [x, y, width, height], score}.
        annotations: JSON with `annotations` {image_id, category_id, bbox} and `categories` {id, name}; those marked
            `iscrowd` do not count.
        iou: intersection over union from which a box counts as found.
        split: `train`, `val` or `test`.

    Returns:
        As `boxes`, with the names of the categories.

    Raises:
        InputError: another layout.

    Example:
        >>> import json
        >>> from pathlib import Path
        >>> box = {"image_id": 7, "category_id": 3, "bbox": [0, 0, 10, 10]}
        >>> _ = Path("d.json").write_text(json.dumps([{**box, "score": 0.8}]))
        >>> _ = Path("a.json").write_text(json.dumps({"annotations": [box], "categories": [{"id": 3, "name": "cup"}]}))
        >>> p = confide.dense.from_coco("d.json", "a.json")
        >>> p.columns["box_class"].tolist(), p.facts.correct.tolist()
        (['cup'], [True])
    """
    detected, known = formats.read_json(detections), formats.read_json(annotations)
    try:
        names = {category["id"]: str(category["name"]) for category in known["categories"]}
        place = {key: k for k, key in enumerate(names)}
        tables: list[dict[Any, list[tuple[Floats, int, float]]]] = [{}, {}]
        real = [row for row in known["annotations"] if not row.get("iscrowd")]
        for table, rows in zip(tables, (detected, real), strict=True):
            for row in rows:
                x, y, width, height = row["bbox"]
                box = np.array([x, y, x + width, y + height], dtype=np.float64)
                own = (box, place[row["category_id"]], float(row.get("score", 1.0)))
                table.setdefault(row["image_id"], []).append(own)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        came = (
            f"the key or category {error} is missing" if isinstance(error, KeyError) else "an entry is of another kind"
        )
        raise InputError(
            f"{detections} and {annotations} must be results and annotations in the layout of COCO, but {came}; "
            "see docs/dense.md"
        ) from None
    images = list(tables[0])

    def column(table: int, part: int) -> list[NDArray[Any]]:
        return [np.array([own[part] for own in tables[table].get(image, [])]) for image in images]

    parts = column(0, 0), column(0, 2), column(0, 1), column(1, 0), column(1, 1)
    return boxes(*parts, iou=iou, ids=images, class_names=list(names.values()), split=split)


def matched(
    near: Floats, sure: Floats, kinds: Floats, real: Floats, real_kinds: Floats, iou: float
) -> tuple[NDArray[np.bool_], Floats]:
    """Whether each box takes a true one, the surest first, and how far it overlaps that one."""
    right, overlap, free = np.zeros(len(near), dtype=bool), np.zeros(len(near)), np.ones(len(real), dtype=bool)
    if not len(near) or not len(real):
        return right, overlap
    shares = np.where(kinds[:, None] == real_kinds[None], overlaps(near, real), 0.0)
    for k in np.argsort(-sure, kind="stable"):
        best = int(np.argmax(np.where(free, shares[k], -1.0)))
        overlap[k] = shares[k, best] if free[best] else 0.0
        if free[best] and shares[k, best] >= iou:
            right[k], free[best] = True, False
    return right, overlap
