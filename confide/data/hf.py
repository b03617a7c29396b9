"""`hf:<name>`: datasets of the Hugging Face hub, or saved by that library."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confide.core.door import InputError, MissingExtra
from confide.data.encoded import file_stamp
from confide.data.family import DATASETS
from confide.data.images import ImageOptions
from confide.data.parts import SPLIT_WORDS, WHOLE, Found
from confide.data.tables import read_tables


@DATASETS.add("hf", paper="Lhoest et al., 2021, arXiv:2109.02846", takes="name")
def hf(
    name: str,
    *,
    data_folder: Path,
    config: str | None = None,
    inputs: str | None = None,
    labels: str | None = None,
    size: int | tuple[int, int] | None = None,
    fit: str = "crop",
    channels: int | None = None,
    memory_gb: float = 1.0,
) -> Found:
    """Hugging Face datasets, `hf:<name>` or `hf:<folder saved by it>`: images or texts with labels.

    Args:
        config: which configuration, where the dataset has several.
        inputs: column of inputs; the first of image, img, x, features, text and the like by default.
        labels: column of labels; the first of label, category, intent, class and the like by default.
        size: side, or (height, width); by default the size all images have, else their median short side up to 224.
        fit: crop cuts the centre of the wanted aspect, stretch keeps all of the image.
        channels: 1 or 3; by default 1 if all images are grey.
        memory_gb: decoded images up to this stay in memory, more are decoded when asked for.
    """
    splits = _load(name, config)
    tables: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for split, rows in splits.items():
        word = SPLIT_WORDS.get(split, WHOLE if len(splits) == 1 else "")
        if word and word not in tables:
            tables[word] = _undecoded(rows).with_format("arrow")[:]
        else:
            left_out[split] = "not train, val or test"
    if not tables:
        raise InputError(
            f"hf:{name} must have a split train, val or test, got {', '.join(splits)}; choose another config"
        )
    versions = {SPLIT_WORDS.get(split, WHOLE): _version(rows) for split, rows in splits.items()}
    facts: dict[str, Any] = {"place": f"hf:{name}:{config}", "versions": versions}
    if left_out:
        facts["left_out"] = left_out
    found = Found({}, None, name.rstrip("/").rsplit("/", 1)[-1], facts)
    options = ImageOptions(size, fit, channels, memory_gb)
    return read_tables(tables, found, (inputs, labels), options, data_folder)


def _load(name: str, config: str | None) -> Mapping[str, Any]:
    try:
        import datasets
    except ImportError:
        raise MissingExtra("datasets", "hf", f"hf:{name}") from None
    try:
        saved = any((Path(name) / file).exists() for file in ("dataset_dict.json", "dataset_info.json"))
        loaded = datasets.load_from_disk(name) if saved else datasets.load_dataset(name, config)
    except Exception as error:  # the library raises its own, the hub's and the network's errors
        why = str(error).strip().split("\n", 1)[0] or type(error).__name__
        raise InputError(f"hf:{name} must be a dataset that can be loaded, but loading failed: {why}") from None
    return loaded if isinstance(loaded, Mapping) else {WHOLE: loaded}


def _version(rows: Any) -> str:
    """Stamps of the files that hold the rows."""
    return " ".join(file_stamp(entry["filename"]) for entry in rows.cache_files)


def _undecoded(rows: Any) -> Any:
    """Image columns as stored bytes: decoding is done here, in threads, and finds damaged images."""
    for column, feature in rows.features.items():
        if type(feature).__name__ == "Image":
            rows = rows.cast_column(column, type(feature)(decode=False))
    return rows
