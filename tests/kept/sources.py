"""Worked cases of datasets and of pictures on their way to a network, exactly at their limits."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import torch
from PIL import Image

import confide
from confide.data.base import SplitPlan
from confide.data.images import ImageOptions
from confide.features.extraction import _is_array
from confide.files.shards import SHARDS_MANIFEST
from tests.kept.entries import _each, _or_line, _split


def _datasets() -> dict[str, Callable[[], Any]]:
    plans = [(0, 0), (1, 0), (0.5, 0.5), (0.5, 0.51), (1.01, 0), (-0.01, 0), (0, 1), (0.1, 0.9)]
    sizes: list[Any] = [0, 1, -1, (3, 4), (3,), (3, 0), (3, 4, 5), 2.0, (1, 1.5), True]
    return {
        **_sources(),
        "fractions": lambda: _each(lambda p: SplitPlan(0, *p).check() or "taken", *plans),
        "sizes": lambda: _each(lambda size: ImageOptions(size=size).check() or "taken", *sizes),
        "memory": lambda: _each(lambda gb: ImageOptions(memory_gb=gb).check() or "taken", 0, -0.1, 0.1),
        "channels": lambda: _each(lambda c: ImageOptions(channels=c).check() or "taken", None, 1, 2, 3),
    }


def _loaded(source: Any, **options: Any) -> Any:
    """All that a dataset tells: kinds, splits, names, what was left out, where it came from."""
    own = confide.load_dataset(source, folder="kept here", **options)
    told = own.provenance
    return {
        "name": [own.name, own.kind, list(own.class_names)],
        "splits": {
            key: [list(map(str, split.ids[:6])), split.labels.tolist()[:30], str(np.asarray(split.inputs)[:1])[:90]]
            for key, split in own.splits.items()
        },
        "columns": {key: sorted(split.columns) for key, split in own.splits.items()},
        "aside": [list(pair) for pair in own.set_aside],
        "cut": dict(own.cut_from),
        "told": [
            dict(told.splits), dict(told.counts), told.split_seed, dict(told.classes_without_samples),
            dict(told.left_out), told.image_size, told.fit, told.decoded, told.source,
        ],
    }  # fmt: skip


def _sources() -> dict[str, Callable[[], Any]]:
    """Arrays, texts, tables and pictures as they may come."""
    rows, two = np.arange(80.0).reshape(40, 2), np.arange(40) % 2
    words = np.array(["cat", "dog"] * 20)

    def arrays(source: Any, options: dict[str, Any] | None = None) -> Any:
        return _loaded(source, **(options or {}))

    def text(name: str, content: str | bytes, **options: Any) -> Any:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return _loaded(name, **options)

    lines = "text,label,id\n" + "".join(f"t{k},{'ab'[k % 2]},i{k}\n" for k in range(20))
    objects = "".join(json.dumps({"text": f"t{k}", "label": k % 2}) + "\n" for k in range(20))
    texts: dict[str, tuple[Any, ...]] = {
        "plain": ("a.csv", lines),
        "mark": ("a.csv", b"\xef\xbb\xbf" + lines.encode()),
        "tabs": ("a.tsv", lines.replace(",", "\t")),
        "missing label": ("a.csv", lines + "t,,x\n"),
        "missing text": ("a.jsonl", objects + '{"label": 1}\n'),
        "a list as label": ("a.jsonl", objects + '{"text": "t", "label": [1]}\n'),
        "a list": ("a.jsonl", objects + "[1]\n"),
        "no json": ("a.jsonl", objects + "\n\nx\n"),
        "other bytes": ("a.csv", lines.encode() + b"\xff,a,b\n"),
        "zero as label": ("a.jsonl", objects + '{"text": "t", "label": 0}\n'),
        "empty label": ("a.jsonl", objects + '{"text": "t", "label": ""}\n'),
        "other names": ("a.csv", lines.replace("text", "query").replace("label", "intent")),
        "unknown names": ("a.csv", lines.replace("text", "x").replace("label", "y2")),
    }
    given = {
        "words": ((rows, words),),
        "numbers": ((rows, two),),
        "bools": ((rows, two == 1),),
        "fractions": ((rows, two), {"val_fraction": 0, "test_fraction": 0.5}),
        "no cut": ((rows, two), {"val_fraction": 0, "test_fraction": 0}),
        "all cut": ((rows, two), {"val_fraction": 0.5, "test_fraction": 0.5}),
        "seed": ((rows, two), {"seed": 5}),
        "names": ((rows, two), {"class_names": ["n", "m"], "name": "mine"}),
        "names of words": ((rows, words), {"class_names": ["dog", "cat"]}),
        "a name too few": ((rows, words), {"class_names": ["dog"]}),
        "more names": ((rows, two), {"class_names": ["n", "m", "o"]}),
        "one class": ((rows, two * 0),),
        "a gap": ((rows, two * 2),),
        "negative": ((rows, two - 1),),
        "half": ((rows, two + 0.5),),
        "missing": ((rows, np.array([None, *two[1:]], dtype=object)),),
        "short": ((rows, two[1:]),),
        "wide": ((rows, np.stack([two, two])),),
        "none": ((rows[:0], two[:0]),),
        "dates": ((rows, np.array(["2024-01-01"] * 40, dtype="datetime64[D]")),),
        "bad names": ((rows, two), {"class_names": "ab"}),
        "bad rename": ((rows, two), {"rename": ["a"]}),
        "renamed nothing": ((rows, two), {"rename": {"x": "test"}}),
        "bad name": ((rows, two), {"name": 3}),
    }
    return {
        "arrays": lambda: {name: _or_line(lambda own=own: arrays(*own)) for name, own in given.items()},
        "texts": lambda: {name: _or_line(lambda own=own: text(*own)) for name, own in texts.items()},
        "renamed": lambda: _each(
            lambda rename: [text("f/train.csv", lines) and 1, text("f/val.csv", lines.replace(",i", ",v")) and 2,
                            list(_loaded("f", rename=rename)["splits"])],
            None, {"val": "test"}, {"val": "train"}, {"val": "train", "train": "val"}, {"val": "other"},
        ),
        "a file besides": lambda: [
            _or_line(lambda: text("g/train.csv", lines))["told"][4],
            _or_line(lambda: text("g/more.csv", lines)),
            _or_line(lambda: text("g/test.csv", lines.replace(",i", ",v"))) and _loaded("g")["told"][4],
        ],
        "nowhere": lambda: _each(_loaded, "none.csv", "none", "csv", "csv:none.csv", "arrays", "fashion-sampl", "."),
        "folders": _folders,
        "parquet": _parquets,
        "lazy": _lazy,
        "decoded": _decoded,
    }  # fmt: skip


def _picture(place: Path, size: tuple[int, int], mode: str = "RGB", kind: str = "PNG", level: int = 90) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    ramp = (np.add.outer(np.arange(size[1]) * 7, np.arange(size[0]) * 3) + level) % 256
    Image.fromarray(ramp.astype(np.uint8)).convert(mode).save(place, kind)


def _folders() -> Any:
    """Folders of pictures: of one size, of several, grey, damaged, with splits."""
    told: dict[str, Any] = {}
    for name, sizes, modes in (
        ("same", [(6, 4)], ["L"]), ("several", [(6, 4), (8, 8), (4, 9)], ["L", "RGB"]), ("wide", [(300, 260)], ["RGB"]),
    ):  # fmt: skip
        for k in range(12):
            _picture(Path(name, "ab"[k % 2], f"{k}.png"), sizes[k % len(sizes)], modes[k % len(modes)], level=k)
        for options in ({}, {"size": 5}, {"size": (3, 5), "fit": "stretch"}, {"channels": 3}, {"channels": 1}):
            told[f"{name} {options}"] = _or_line(lambda name=name, o=options: _loaded(name, **o))
    for split in ("train", "test"):
        for k in range(8):
            _picture(Path("parts", split, "ab"[k % 2], f"{k}.png"), (4, 4))
    told["parts"] = _loaded("parts")
    Path("same/a/broken.png").write_bytes(b"x")
    whole = Path("same/a/0.png").read_bytes()
    Path("same/b/half.png").write_bytes(whole[: len(whole) // 2])
    Path("same/b/empty.png").write_bytes(b"")
    told["damaged"] = [_loaded("same")["aside"], _loaded("same", memory_gb=0)["aside"]]
    Path("bad/a").mkdir(parents=True)
    Path("bad/a/1.png").write_bytes(b"x")
    told["bad"] = _or_line(lambda: _loaded("bad"))
    return told


def _parquets() -> Any:
    """Tables of image bytes, of texts and of rows, with and without names of classes."""
    import pyarrow.parquet as pq

    def coded(k: int) -> bytes:
        _picture(Path("one.png"), (5, 4), level=k)
        return Path("one.png").read_bytes()

    def table(metadata: Any = None, **columns: Any) -> Any:
        own = pa.table(columns)
        if metadata is not None:
            own = own.replace_schema_metadata({"huggingface": json.dumps(metadata)})
        pq.write_table(own, "t.parquet")
        return _loaded("t.parquet")

    def named(names: Any) -> Any:
        return {"info": {"features": {"label": {"names": names}}}}

    labels, content = [k % 2 for k in range(20)], [coded(k) for k in range(20)]
    structs = [{"bytes": own, "path": None} for own in content]
    cases: dict[str, dict[str, Any]] = {
        "bytes": {"image": content, "label": labels},
        "structs": {"image": structs, "label": labels},
        "a hole": {"image": [{"bytes": None, "path": None}, *structs[1:]], "label": labels},
        "by path": {"image": [{"bytes": None, "path": "one.png"}, *structs[1:]], "label": labels},
        "named": {"image": content, "label": labels, "metadata": named(["no", "yes"])},
        "no names": {"image": content, "label": labels, "metadata": named([])},
        "odd names": {"image": content, "label": labels, "metadata": named("ny")},
        "other metadata": {"image": content, "label": labels, "metadata": {"info": 3}},
        "texts": {"text": [f"t{k}" for k in range(20)], "label": labels, "id": [f"i{k}" for k in range(20)]},
        "rows": {
            "features": [[1.0, k] for k in range(20)],
            "label": labels,
            "age": list(range(20)),
            "note": ["x"] * 20,
        },
        "no labels": {"text": ["a", "b"]},
    }
    return {name: _or_line(lambda own=own: table(**own)) for name, own in cases.items()}


def _lazy() -> Any:
    """Pictures that are decoded when asked for: rows in every way, a fingerprint that follows the files."""
    for k in range(6):
        _picture(Path("f", "ab"[k % 2], f"{k}.png"), (6, 4), level=20 * k)
    own = confide.load_dataset("f", folder="kept here", memory_gb=0, val_fraction=0, test_fraction=0)
    images = own.split("train").inputs
    whole = images[:]
    chosen: tuple[Any, ...] = (0, [0], [2, 1], slice(1, 3), np.arange(6) < 2, [], np.array(5))
    same = [
        bool(np.array_equal(images[own], whole[np.array(own, dtype=int)] if own == [] else whole[own]))
        if not isinstance(own, np.ndarray)
        else bool(np.array_equal(images[own], whole[own]))
        for own in chosen
    ]
    marks = [images.fingerprint, images.subset([0, 1]).fingerprint]
    again = confide.load_dataset("f", folder="kept here", memory_gb=0, val_fraction=0, test_fraction=0)
    marks.append(again.split("train").inputs.fingerprint)
    first = Path("f/a/0.png")
    about = first.stat()
    content = bytearray(first.read_bytes())
    content[-20] ^= 1
    first.write_bytes(bytes(content))
    os.utime(first, ns=(about.st_atime_ns, about.st_mtime_ns))
    marks.append(images.fingerprint)
    with patch("confide.data.images.SAMPLED_IMAGES", 1):
        marks.append(images.fingerprint)
    first.unlink()
    return [
        same,
        [marks.index(mark) for mark in marks],
        images.nbytes,
        list(images.shape),
        list(images.subset([1, 2]).shape),
        str(np.asarray(images[1:2], dtype=np.float32).dtype),
        _or_line(lambda: images[[0]]),
        sorted(path.suffix for path in Path("kept here").rglob("*.parquet")),
    ]  # fmt: skip


def _decoded() -> Any:
    """One file as pixels: modes, sizes, how a shape is fitted."""
    from confide.data.images import PixelFormat, as_picture, decode, inspect_image, reason_of

    told: dict[str, Any] = {}
    for mode, kind in (("L", "PNG"), ("RGB", "JPEG"), ("RGBA", "PNG"), ("P", "PNG"), ("1", "PNG"), ("I;16", "PNG")):
        _picture(Path("p"), (9, 6), "L" if mode.startswith("I") else mode, kind)
        if mode.startswith("I"):
            Image.fromarray((np.arange(54).reshape(6, 9) * 1100).astype(np.uint16)).save("p", kind)
        for form in (
            PixelFormat(1, 6, 9),
            PixelFormat(3, 3, 3),
            PixelFormat(1, 3, 8, "stretch"),
            PixelFormat(3, 12, 9),
        ):
            pixels = decode(io.BytesIO(Path("p").read_bytes()), form)
            rough = [list(pixels.shape), round(float(pixels.mean()) / 10)]  # each decoder rounds a JPEG in its own way
            told[f"{mode} {form}"] = pixels if kind == "PNG" else rough
        told[f"{mode} seen"] = [inspect_image(io.BytesIO(Path("p").read_bytes()), deep) for deep in (True, False)]
    pixels = np.zeros((3, 2, 2), np.uint8)
    items = (pixels, pixels[:1], pixels[:2], pixels[0], pixels.astype(int))
    pictures = [as_picture(item) for item in items]
    told["pictures"] = [None if own is None else [own.mode, list(own.size)] for own in pictures]
    errors = (ValueError("a\n b"), ValueError(), OSError("cannot identify image file x"))
    told["reasons"] = [reason_of(error) for error in errors]
    return told


# Pictures on their way to a network.


def _pictures() -> dict[str, Callable[[], Any]]:
    from confide.features import images

    draws = np.random.default_rng(0)
    colour = draws.integers(0, 256, (3, 5, 7)).astype(np.uint8)

    def array(item: Any) -> Any:
        own = images.as_image_array(item)
        return [list(own.shape), own.dtype.name, int(own.astype(int).sum())]

    def picture(item: Any) -> Any:
        own = images.as_pil(item)
        return [own.mode, list(own.size), int(np.asarray(own).astype(int).sum())]

    def coded(image: Image.Image, kind: str = "PNG") -> bytes:
        buffer = io.BytesIO()
        image.save(buffer, kind)
        return buffer.getvalue()

    def prepared(item: Any, **changes: Any) -> Any:
        usual = {"short_side": None, "exact": None, "crop": None, "resample": 2, "scale": 1 / 255}
        own = images.Preprocess(**{**usual, "mean": (0.5, 0.4, 0.3), "std": (0.5, 0.25, 1.0), **changes})
        one = own(item)
        both = own.batch(torch.from_numpy(np.asarray(item))[None])[0] if own.takes_batches() else one
        return [list(one.shape), one.numpy(), bool(torch.allclose(one, both))]

    cases: tuple[Any, ...] = (
        colour, colour[0], colour[:1], colour.transpose(1, 2, 0), colour[:, :3, :3], colour[None], colour[:2], [1, 2],
        colour / 255, colour / 254, -colour / 255.0, colour.astype(int), np.zeros((3, 0, 0)), np.ones((3, 2, 2)),
        np.full((3, 2, 2), 0.5), np.zeros((2, 2, 3)), np.zeros((3, 3, 1)), np.zeros((4, 4, 4)), np.zeros((1, 4, 3)),
        np.zeros((4, 5, 1)), np.zeros((3, 5, 3)),
    )  # fmt: skip
    grey = Image.fromarray(colour[0])
    modes = (grey, grey.convert("RGB"), grey.convert("RGBA"), grey.convert("1"), grey.convert("P"), coded(grey), b"x")
    return {
        "arrays": lambda: _each(array, *cases, *modes),
        "images": lambda: _each(picture, *modes, colour, colour[0]),
        "sizes": lambda: _each(
            lambda changes: prepared(colour, **changes),
            {}, {"short_side": 4}, {"short_side": 5}, {"short_side": 9, "crop": (8, 8)}, {"exact": (4, 6)},
            {"crop": (3, 4)}, {"crop": (7, 8)}, {"crop": (6, 6)}, {"crop": (5, 7)}, {"resample": 3, "exact": (3, 9)},
            {"resample": 1, "short_side": 8}, {"resample": 0, "exact": (9, 3)}, {"scale": 1.0, "crop": (1, 1)},
        ),
        "standing": lambda: prepared(colour.transpose(0, 2, 1), short_side=4),
        "processors": lambda: _each(
            lambda config: str(images.from_processor(config)),
            {}, {"size": 8}, {"size": 8, "crop_size": 6}, {"size": 8, "crop_size": 6, "do_center_crop": False},
            {"size": {"shortest_edge": 9}, "crop_size": {"height": 3, "width": 4}, "do_center_crop": True},
            {"size": {"height": 3, "width": 4}}, {"do_resize": False, "do_rescale": False, "do_normalize": False},
            {"resample": 3, "rescale_factor": 0.5, "image_mean": [1, 2, 3], "image_std": [4, 5, 6]}, {"crop_size": 5},
        ),
        "augmented": lambda: [
            *_each(lambda row: array(images.augmented(colour, 3, row)), *range(6)),
            *_each(lambda item: array(images.augmented(item, 0, 0)), colour[:, :1, :1], "text"),
        ],
        "kernels": lambda: {
            "weights": images._weights(5, 3, 2).tolist(),
            "linear": images._linear(np.array([-1.0, -0.5, 0, 1, 2])).tolist(),
            "cubic": images._cubic(np.array([-2.0, -1.5, -1, -0.5, 0, 1, 1.5, 2, 3])).tolist(),
            "lanczos": images._lanczos(np.array([-3.0, -1.5, 0, 1, 2.5, 3, 3.5])).tolist(),
        },
        "whole arrays": lambda: _each(
            lambda inputs: _is_array(_split(inputs, len(inputs)), _preprocess(2)),
            colour[None], colour[None, :1], colour[None, :2], colour[None].astype(int), colour, [colour],
        ),
        "no kernel": lambda: _is_array(_split(colour[None], 1), _preprocess(0)),
        "extracted": lambda: _each(_extracted, {}, {"batch_size": 1}, {"batch_size": 0}, {"shard_rows": 0},
                                   {"workers": -1}, {"workers": 1025}, {"dtype": "float16"}, {"dtype": "int8"},
                                   {"augment": 1}, {"out": "shards", "shard_rows": 2}),
        "shards again": _shards_again,
    }  # fmt: skip


def _preprocess(resample: int) -> Any:
    from confide.features.images import Preprocess

    return Preprocess(None, None, None, resample, 1.0, (0.0,) * 3, (1.0,) * 3)


def _extracted(options: dict[str, Any]) -> Any:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 1, 6, 6)).astype(np.uint8)
    own = confide.features.extract("pixels", _split(pixels, 5), **options)
    return [str(own.values.dtype), np.asarray(own.values), list(own.ids), own.labels.tolist(), own.split]


def _shards_again() -> Any:
    """The same folder of shards again: whole, with a shard less, with other labels, inputs or sizes."""
    pixels = np.random.default_rng(0).integers(0, 256, (5, 1, 6, 6)).astype(np.uint8)
    split = _split(pixels, 5)

    def extract(split: Any = split, rows: int = 2, **options: Any) -> Any:
        own = confide.features.extract("pixels", split, out="s", shard_rows=rows, **options)
        return [np.asarray(own.values[:]).sum(), own.labels.tolist(), sorted(os.listdir("s"))]

    def damaged(change: Callable[[Path], Any]) -> Any:
        change(Path("s/rows-000001.npy"))
        return extract()

    first = extract()
    return [
        first,
        extract() == first,
        damaged(lambda path: path.with_name(SHARDS_MANIFEST).unlink()) == first,
        damaged(Path.unlink) == first,
        damaged(lambda path: path.write_bytes(b"x")) == first,
        damaged(lambda path: np.save(path, np.zeros((1, 36)))) == first,
        extract(confide.data.Split(pixels, np.zeros(5, int), split.ids))[1],
        _or_line(lambda: extract(_split(pixels[::-1], 5)))[:90],
        _or_line(lambda: extract(rows=3))[:90],
        _or_line(lambda: extract(dtype="float16"))[:90],
    ]
