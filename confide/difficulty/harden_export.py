"""Hard samples as a folder that loads as a test set (pictures by class, or a table of texts), or as a parquet file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from confide.checks import InputError
from confide.data.images import as_picture, picture_bytes
from confide.difficulty.harden import HardBenchmark
from confide.files import formats
from confide.records import Dataset, Split, rows_of


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
        columns = {"id": part.ids[rows], "label": part.labels[rows], "score": values, **_contents(part, rows)}
        formats.write_table(
            out, columns, {"confide": formats.HARD.tag, "class_names": json.dumps(list(dataset.class_names))}
        )
        formats.write_text(out.with_suffix(".md"), card)
        return
    if out.suffix:
        raise InputError(f"the hard samples go to a folder or a .parquet file, got '{out}'")
    names = np.array([dataset.class_names[int(k)] for k in part.labels[rows]])
    common = {"id": part.ids[rows], "label": names, "score": values}
    if isinstance(part.inputs[int(rows[0])], str):
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
    found = sorted((out / "test").rglob("*"), reverse=True)  # what a folder holds comes before it
    own = re.compile(r"\d{4}-[^/]*(/\d{6}\.png)?")
    for path in found:
        if not own.fullmatch(path.relative_to(out / "test").as_posix()):
            raise InputError(
                f"{out} must be a new folder or an earlier hard benchmark, got {path}; choose another folder"
            )
    if found:
        (out / "README.md").unlink(missing_ok=True)
    for path in found:
        path.rmdir() if path.is_dir() else path.unlink()


def _write_pictures(out: Path, dataset: Dataset, part: Split, rows: NDArray[Any]) -> NDArray[np.str_]:
    """One file per sample under its class's number and name; ids may hold anything, so files are numbered."""
    places = []
    for label in range(dataset.num_classes):
        # Also of classes without a hard sample: the numbers of the classes stay what they were.
        (out / "test" / _folder_of(dataset, label)).mkdir(parents=True, exist_ok=True)
    for number, row in enumerate(rows):
        item = part.inputs[int(row)]
        if np.asarray(item).ndim < 2:
            raise InputError("rows of numbers are exported as .parquet; give -o FILE.parquet")
        place = f"test/{_folder_of(dataset, int(part.labels[row]))}/{number:06d}.png"
        with formats.atomic(out / place) as temporary:
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
