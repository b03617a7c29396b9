"""Worked cases of files exactly at their limits: what is read, what is refused, what is left of a torn write."""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import torch

from confide.files import columns, disk, fitted, formats, frames, shards, signing
from tests.kept.entries import _each, _or_line


def _files() -> dict[str, Callable[[], Any]]:
    deep = formats.DEEPEST
    return {
        "yaml depth": lambda: [
            len(str(_or_line(lambda d=d: formats.read_yaml("[" * d + "]" * d, "text")))) > 0
            and str(_or_line(lambda d=d: formats.read_yaml("[" * d + "]" * d, "text")))[-40:]
            for d in (deep, deep + 1, deep + 2)
        ],
        "json depth": lambda: [
            str(_or_line(lambda d=d: formats.parse_json("[" * d + "]" * d, "text")))[-40:]
            for d in (deep - 1, deep, deep + 1, deep + 2)
        ],
        "yaml size": partial(_at, formats, "LARGEST_YAML", 8, lambda: _each(
            lambda text: formats.read_yaml(text, "text"), "a: 1", "a: 12345", "a: 123456"
        )),
        "yaml file size": partial(_at, formats, "LARGEST_YAML", 8, lambda: _each(_yaml_file, "a: 12345", "a: 123456")),
        "yaml aliases": partial(_at, formats, "MOST_YAML_VALUES", 9, lambda: _each(
            lambda text: formats.read_yaml(text, "text"),
            "a: &a [1, 2]\nb: [*a, *a]", "a: &a [1, 2]\nb: [*a, *a, *a]", "[1,2,3,4,5,6,7,8]", "[1,2,3,4,5,6,7,8,9]",
            "{a: {b: {c: 1}}}",
        )),
        "yaml words": lambda: _each(
            lambda text: formats.read_yaml(text, "text"),
            "a: 1e-3", "a: -.5E+2", "a: 2024-01-01", "a: !x 1", "1: 2", "a: 1\na: 2", "a: {b: 1, b: 2}", "<<: 1",
            "a: [", "a: &x [*x]", "a: yes", "", "'1': 2",
        ),
        "pairs": lambda: [
            *_each(lambda t: list(formats.split_pair(t, "give A=B")), "a=b", "a = b=c", "=b", " =b", "a=", "a"),
            *_each(lambda t: list(formats.split_pair(t, "give A=B", last=True)), "a=b=c", "=b", "a"),
        ],
        "tags": lambda: _each(
            lambda tag: formats.EVALUATION.check(tag, "file", "9.9"),
            "evaluation/2", "evaluation/1", "evaluation/3", "evaluation/0", "run/2", None, "evaluation/x", 2,
        ),
        "plain": lambda: formats.plain(
            {1: (1.5, math.nan), "a": np.float32(math.inf), "b": torch.arange(2), "c": Path("x"), "d": None, "e": True}
        ),
        "tables": _tables,
        "lists": _lists,
        "npz that unpacks": partial(_at, formats, "UNPACKED_AT_LEAST", 4000, _unpacked),
        "frames": _frames,
        "shards": _shards,
        "last lines": _lines,
        "leftovers": _leftovers,
        "locks": _locks,
        "roles": _roles,
        "class names": _class_names,
        "fitted": _fitted,
        "signed": _signed,
        "what is read": lambda: _each(
            _reading, ValueError("v" * 400), OSError("o"), pa.ArrowInvalid("a"), KeyError("k")
        ),
    }  # fmt: skip


def _at(module: Any, name: str, value: Any, make: Callable[[], Any]) -> Any:
    with patch.object(module, name, value):
        return make()


def _yaml_file(text: str) -> Any:
    Path("x.yaml").write_text(text)
    return formats.read_yaml_file(Path("x.yaml"))


def _reading(error: Exception) -> Any:
    with formats.reading("some.file", "table"):
        raise error


def _tables() -> Any:
    table = {
        "id": np.array(["a", "b", "c"]),
        "x": np.array([1.5, math.nan, -2.0]),
        "k": np.arange(3),
        "rows": np.arange(6.0).reshape(3, 2),
    }
    told: dict[str, Any] = {}
    for ending in ("npz", "parquet", "csv", "jsonl"):
        path = Path(f"t.{ending}")
        formats.write_table(path, table, {"about": "it"})
        read, metadata = formats.read_table(path)
        told[ending] = {
            "columns": {name: [str(v) for v in values.reshape(-1)] for name, values in read.items()},
            "shapes": {name: list(values.shape) for name, values in read.items()},
            "metadata": metadata,
            "names": formats.column_names(path),
            "rows": formats.row_count(path),
            "batches": [len(next(iter(own.values()))) for own, _ in formats.table_batches(path, 2)],
            "arrow": sorted(formats.read_arrow(path)[0].column_names),
            "chosen": sorted(formats.read_arrow(path, ["k", "rows"])[0].column_names),
        }
    told["width"] = [
        formats.list_width("t.parquet", names) for names in (("rows",), ("none", "rows"), ("none",), ("x",))
    ]
    told["between"] = formats.read_between("t.parquet", "k", 1, 2)["k"].tolist()
    told["refused"] = [
        _or_line(lambda: formats.write_table("t.txt", table)),
        _or_line(lambda: formats.write_table("o.npz", {"a": np.array(["x", 1], dtype=object)})),
        _or_line(lambda: formats.read_table("none.csv")),
        _or_line(lambda: formats.read_arrow("none.parquet")),
        _or_line(lambda: list(formats.table_batches("none.parquet", 2))),
        _or_line(lambda: formats.read_tensors("none.safetensors")),
        _or_line(lambda: formats.read_checkpoint("none.safetensors")),
    ]
    formats.write_table("words.npz", {"a": np.array(["x", "y"], dtype=object)})
    formats.write_table("empty.parquet", {"rows": np.zeros((0, 2))})
    told["words"] = [formats.read_table("words.npz")[0]["a"].dtype.kind, formats.list_width("empty.parquet", ("rows",))]
    for name, text in {"semi.csv": "a;b\n1;2\n", "tab.csv": "a\tb\n1\t2\n", "comma.csv": "a,b;c\n1,2\n"}.items():
        Path(name).write_text(text)
        told[name] = {k: v.tolist() for k, v in formats.read_table(name)[0].items()}
    return told


def _lists() -> Any:
    """Columns of lists: of one length, of several, with holes, in chunks, of words."""
    cases = {
        "one length": pa.chunked_array([[[1, 2], [3, 4]], [[5, 6]]]),
        "holes inside": pa.chunked_array([[[1, None], [3, 4]]]),
        "several": pa.chunked_array([[[1, 2], [3]]]),
        "late": pa.chunked_array([[[1, 2], [3, 4], [5]]]),
        "fixed": pa.chunked_array([pa.array([[1.0, 2.0]], pa.list_(pa.float64(), 2))]),
        "none": pa.chunked_array([pa.array([], pa.list_(pa.int64()))]),
        "words": pa.chunked_array([["a", "b"]]),
        "missing": pa.chunked_array([[1, None]]),
    }
    told: dict[str, Any] = {}
    for name, column in cases.items():
        own = _or_line(lambda column=column: formats.arrow_to_numpy(column))
        told[name] = own if isinstance(own, str) else [list(own.shape), [str(v) for v in own.reshape(-1)]]
    lines = ['{"v": [1, 2], "w": [1], "o": {"a": 1}, "t": "x"}', '{"v": [3, 4], "w": [1, 2], "o": {"a": 2}, "t": "y"}']
    Path("l.jsonl").write_text("\n".join(lines))
    told["jsonl"] = {k: [list(v.shape), v.reshape(-1).tolist()] for k, v in formats.read_table("l.jsonl")[0].items()}
    return told


def _unpacked() -> Any:
    """The bytes that an archive declares: as many as allowed, and one more."""

    def archive(size: int) -> Any:
        with zipfile.ZipFile("z.npz", "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("a.npy", b"0" * size)
        with patch.object(formats, "UNPACKED_RATIO", 1):
            return formats._check_sizes(Path("z.npz")) or "taken"

    def by_ratio(ratio: int) -> Any:
        with zipfile.ZipFile("r.npz", "w", zipfile.ZIP_STORED) as file:
            file.writestr("a.npy", b"0" * 9000)
        own = Path("r.npz").stat().st_size
        with patch.object(formats, "UNPACKED_RATIO", ratio * 9000 / own):
            return formats._check_sizes(Path("r.npz")) or "taken"

    def value(call: Callable[[int], Any], number: int) -> str:
        try:
            return str(call(number))
        except ValueError as error:
            return str(error)

    return [*(value(archive, n) for n in (3999, 4000, 4001)), *(value(by_ratio, n) for n in (1, 2))]


def _frames() -> Any:
    def shown(column: Any) -> Any:
        own = frames.column_array(column)
        return [list(own.shape), own.dtype.kind, [str(v) for v in own.reshape(-1)]]

    ragged = np.empty(2, dtype=object)
    ragged[:] = [[1, 2], [3]]
    even = np.empty(2, dtype=object)
    even[:] = [[1, 2], (3, 4)]
    mixed = np.empty(2, dtype=object)
    mixed[:] = [[1, 2], "ab"]
    return [
        *_each(shown, [1, 2], ragged, even, mixed, np.array([], dtype=object), np.zeros((2, 2)), [[1], [2, 3]]),
        _or_line(lambda: list(frames.frame_columns({"a": [1], 2: [3]}))),
        _or_line(lambda: frames.frame_columns([1, 2])),
        _or_line(lambda: frames.as_frame({"a": np.arange(2)}, "numpy")),
    ]


def _shards() -> Any:
    rows = np.arange(21.0).reshape(7, 3)
    paths = []
    for k, (low, high) in enumerate(pairwise((0, 3, 6, 7))):
        shards.write_shard(Path(f"{k}.npy"), rows[low:high])
        paths.append(Path(f"{k}.npy"))
    read = shards.ShardedRows(tuple(paths), (0, 3, 6, 7), (7, 3), rows.dtype)
    chosen: tuple[Any, ...] = (
        slice(None), slice(2, 4), slice(3, 6), slice(6, 9), slice(5, 2), slice(None, None, 2), slice(-2, None), 0, 6,
        [6, 0, 3], np.arange(7) % 2 == 0, [],
    )  # fmt: skip
    same = [
        bool(np.array_equal(read[own], rows[np.asarray(own, dtype=int)] if own == [] else rows[own]))
        if not isinstance(own, np.ndarray)
        else bool(np.array_equal(read[own], rows[own]))
        for own in chosen
    ]
    plan = shards.ExtractionPlan("x", {}, "train", 7, "i", "", 3, "float32", None)
    broken = [
        _or_line(lambda: shards.read_shard(Path("0.npy"), (3, 4))),
        _or_line(lambda: shards.read_shard(Path("none.npy"), (3, 3)))[:40],
    ]
    objects = np.empty(1, dtype=object)
    try:
        shards.write_shard(Path("o.npy"), objects)
        pickled = "written"
    except ValueError as error:
        pickled = str(error)
    return [same, [plan.shard(k).tolist() for k in range(4)], broken, len(read), pickled, sorted(os.listdir("."))]


def _lines() -> Any:
    """What is cut off a file of lines: nothing, the beginning of a line, all of it; in steps of any size."""
    told = []
    for text in (b"", b"a\n", b"a\nb", b"abc", b"a\n\n", b"\n", b"abcdef\nghijk"):
        Path("l.txt").write_bytes(text)
        with open("l.txt", "rb") as file:
            ends = [disk._end_of_last_line(file, step) for step in (1, 2, 3, 100)]
        with disk.appending(Path("l.txt")) as lines:
            kept = lines.read()
            lines.write(b"new\n")
        told.append([ends, kept.decode(), Path("l.txt").read_text()])
    with disk.appending(Path("deep/er/l.txt")) as lines, patch.object(disk, "_try_lock", lambda handle: False):
        waits: list[float] = []
        with patch.object(disk.time, "sleep", waits.append):
            line = _or_line(lambda: disk.appending(Path("l.txt"), 0.1).__enter__())
    return [told, line, len(waits)]


def _leftovers() -> Any:
    for name in (".confide-1.part", ".confide-2.tmp", "confide-3.part", "below/.confide-4.part"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("x")
    disk.remove_leftovers([Path(), Path("none")])
    flushed: list[str] = []
    with patch.object(disk, "flush_folder", lambda folder: flushed.append(folder.name)):
        disk.make_folder(Path("new/inner"))
        disk.make_folder(Path("new/inner"))
    with disk.atomic("whole.txt") as temporary:
        temporary.write_text("whole")
        os.umask(os.umask(0))
    disk.remove(Path("nothing"))
    disk.remove(Path("new/inner"))
    modes = [oct(Path("whole.txt").stat().st_mode & 0o111)]
    disk.new_private_file(Path("secret"), b"s")
    modes.append(oct(Path("secret").stat().st_mode & 0o777))
    return [sorted(str(p) for p in Path().rglob("*")), flushed, modes]


def _locks() -> Any:
    import fcntl

    told: list[Any] = []
    for error in (BlockingIOError(), PermissionError(), OSError("no locks here")):

        def refuse(*_: Any, error: OSError = error) -> None:
            raise error

        with patch.object(fcntl, "flock", refuse), open("lock", "a") as file:
            told.append(disk._try_lock(file.fileno()))
    with disk.locked(Path("held")), disk.locked(Path("held")):
        told.append(_or_line(lambda: disk.lock_file(Path("held/.lock"), Path("held"))))
    with disk.locked(Path("held")):
        told.append(sorted(os.listdir("held")))
    return told


def _roles() -> Any:
    def roles(names: str) -> Any:
        own = columns.column_roles(names.split(), "file")
        outputs = own.outputs and [own.outputs.kind, list(own.outputs.names), own.outputs.classes]
        rest = {k: v for k, v in vars(own).items() if k != "outputs" and v not in (None, ())}
        return {**rest, "outputs": outputs, "are": [own.are_predictions, own.are_pairs]}

    return _each(
        roles,
        "label logits", "label p0 p1 p2", "label p1 p0", "label p1 p2", "label p0", "label prob_cat prob_dog",
        "label prob_cat", "label prob", "label prob p", "prediction prob label", "label probs p0 p1", "confidence",
        "confidence correct", "p correct", "p correct label", "label prediction confidence", "prediction confidence",
        "label target logits", "id sample_id logits", "label logit_0 logit_1 note sample_weight trust", "correct",
        "label confidence", "note", "",
    )  # fmt: skip


def _class_names() -> Any:
    two = {"class_names": np.array(["a", "b"])}
    return [
        columns.class_names_of(dict(two), {}, ("x", "y"), 2),
        columns.class_names_of(dict(two), {}, None, 2),
        columns.class_names_of(dict(two), {}, None, 3),
        columns.class_names_of(dict(two), {"class_names": '["m", 1]'}, None, 2),
        *(columns.names_in(text) for text in ('["a"]', '{"a": 1}', "[1.5]", "[null]", "x", "[]")),
        *(
            columns.are_words(np.array(own, dtype=kind))
            for own, kind in ((["a"], None), (["a"], object), (["a", 1], object), ([], object), ([1.0], None))
        ),
        *_each(
            lambda words: columns.class_indices_of(np.array(words), ("a", "b"), "file").tolist(),
            ["a", " b "], ["b", "c", "d"], ["a", "b", "c"], [],
        ),
        *_each(lambda names: columns.class_indices_of(np.array(["a"]), names, "file").tolist(), None, tuple("bcdefg"),
               tuple("bcdefgh")),
        *(
            columns.OutputColumns(kind, ("x", "y")).values({"x": np.array([x]), "y": np.array([0.25])}, "f").dtype.name
            for kind, x in (("logits", 0.5), ("logits", 0.1), ("probs", 0.5))
        ),
        _or_line(lambda: columns.OutputColumns("probs", ("x",)).values({"x": np.array(["text"])}, "f")),
        columns.classes_of_columns(["prob_a", "prob_b"]), columns.classes_of_columns(["prob_a", "b"]),
    ]  # fmt: skip


def _fitted() -> Any:
    state = fitted.FittedState({"word": "x", "n": 3}, {"w": torch.tensor([[1.5, -2.0]]), "k": torch.tensor([7])})
    told: list[Any] = []
    for name in ("t.json", "t.safetensors", "t.txt"):
        told.append(_or_line(lambda name=name: str(fitted.save_fitted(name, formats.CALIBRATOR, state))))
    fitted.save_fitted("o.json", formats.TRUST, state)

    def read(path: str, format: Any) -> Any:
        return fitted.load_fitted(path, format, lambda s: [s.record, {k: v.tolist() for k, v in s.tensors.items()}])

    told += [_or_line(lambda name=name: read(name, formats.CALIBRATOR)) for name in ("t.json", "t.safetensors")]
    told += [_or_line(lambda name=name: read(name, formats.TRUST)) for name in ("o.json", "t.json", "none.json")]
    odd = fitted.FittedState({"word": {1, 2}})
    told.append(_or_line(lambda: fitted.save_fitted("odd.json", formats.TRUST, odd))[:60])
    infinite = fitted.FittedState({}, {"w": torch.tensor([math.inf])})
    told.append(_or_line(lambda: fitted.save_fitted("i.json", formats.CALIBRATOR, infinite)))
    Path("o.safetensors").write_bytes(b"changed")
    told.append(_or_line(lambda: read("o.json", formats.TRUST)))
    Path("o.safetensors").unlink()
    told.append(_or_line(lambda: read("o.json", formats.TRUST)))
    for record, kinds in (({"a": 1}, {"a": int}), ({"a": True}, {"a": int}), ({"a": "x"}, {"a": (int, str)}),
                          ({"a": 1.0}, {"a": int})):  # fmt: skip
        try:
            told.append(fitted.need_fields(record, kinds) or "taken")
        except TypeError as error:
            told.append(str(error))
    formats.write_checkpoint("c.safetensors", {"w": torch.arange(3)}, {"a": "b"})
    told.append([{k: v.tolist() for k, v in formats.read_checkpoint("c.safetensors")[0].items()},
                 formats.read_checkpoint("c.safetensors")[1]])  # fmt: skip
    content = bytearray(Path("c.safetensors").read_bytes())
    content[-1] ^= 1
    Path("c.safetensors").write_bytes(bytes(content))
    told.append(_or_line(lambda: formats.read_checkpoint("c.safetensors")))
    return told


def _signed() -> Any:
    with patch.object(signing, "config_folder", lambda: Path("own")):
        content = {"format": "run/2", "config": {"data": "x"}}
        unsigned = signing.is_signed_here(content)
        signed = signing.sign(content)
        return [
            unsigned,
            sorted(signed),
            signing.is_signed_here(signed),
            signing.is_signed_here({**signed, "config": {"data": "y"}}),
            signing.is_signed_here(json.loads(json.dumps(signed))),
            len(list(Path("own").iterdir())),
        ]
