"""Worked cases of files, networks, trainings and watches exactly at their limits, where they refuse and where not."""

from __future__ import annotations

import io
import json
import math
import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import torch
from PIL import Image

import confide
from confide import monitor
from confide.data.base import SplitPlan
from confide.data.images import ImageOptions
from confide.features.extraction import _is_array
from confide.files import columns, disk, fitted, formats, frames, shards, signing
from confide.files.shards import SHARDS_MANIFEST
from confide.models import preparation
from confide.models.device import Device, is_out_of_memory
from confide.predictions import Predictions
from confide.training import OracleSettings, Settings
from confide.training.oracle import BALANCED
from confide.training.steps import _reason_against
from tests.kept.entries import NAMES, C, N, _network, _or_line, features, labels, predictions


def limit_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    yield from _cases("settings", _settings())
    yield from _cases("files", _files())
    yield from _cases("watch", _watches())
    yield from _cases("networks", _networks())
    yield from _cases("data", _datasets())
    yield from _cases("pictures", _pictures())
    yield from _cases("verbs", _verbs())
    yield from _cases("estimators", _estimators())


def _cases(topic: str, cases: Mapping[str, Callable[[], Any]]) -> Iterator[tuple[str, Callable[[], Any]]]:
    for name, make in cases.items():
        yield f"{topic}: {name}", partial(_told, make)


def _told(make: Callable[[], Any]) -> Any:
    """What comes of it in an empty folder, whose place is left out of what is said."""
    before = os.getcwd()
    with TemporaryDirectory() as name:
        os.chdir(name)
        try:
            return _without(_or_line(make), str(Path(name).resolve()), name)
        finally:
            os.chdir(before)


def _without(value: Any, *places: str) -> Any:
    if isinstance(value, str):
        for place in places:
            value = value.replace(place, "FOLDER")
        return re.sub(r" from byte \d+| at 0x[0-9a-f]+", "", value)
    if isinstance(value, (list, tuple)) and len(value) > 12:  # of which else some would be kept
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        return {k: _without(v, *places) for k, v in value.items()}
    return [_without(v, *places) for v in value] if isinstance(value, (list, tuple)) else value


def _each(call: Callable[..., Any], *values: Any) -> Any:
    """What it says of every value in turn: the line that refuses it, or what comes of it."""
    return [_or_line(lambda value=value: _shown(call(value))) for value in values]


def _shown(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, dict, list, tuple, np.ndarray)) else "taken"


# Settings.


def _settings() -> dict[str, Callable[[], Any]]:
    def settings(name: str, *values: Any) -> Callable[[], Any]:
        return lambda: _each(lambda value: Settings(**{name: value}) and "taken", *values)

    def oracle(name: str, *values: Any) -> Callable[[], Any]:
        return lambda: _each(lambda value: OracleSettings(**{name: value}) and "taken", *values)

    tiny = sys.float_info.min
    return {
        "epochs": settings("epochs", 1, 0, True, 2.0, 10**9, 10**9 + 1, 10**12),
        "batch_size": settings("batch_size", 1, 0),
        "choose_after": settings("choose_after", 0, -1),
        "learning_rate": settings("learning_rate", 0, tiny, math.inf, math.nan, "x", True),
        "momentum": settings("momentum", 0, 1, 0.99, -tiny),
        "weight_decay": settings("weight_decay", 0, -tiny, math.inf),
        "label_noise": settings("label_noise", 0, 1, 1.01, -0.01),
        "average": settings("average", 0, math.inf),
        "val_fraction": settings("val_fraction", 0, 1, 0.99),
        "clip_norm": settings("clip_norm", None, 0, tiny, math.inf),
        "nesterov": lambda: _each(lambda m: Settings(nesterov=True, momentum=m) and "taken", 0, 0.5),
        "compile": lambda: _each(lambda d: Settings(compile=True, deterministic=d) and "taken", True, False),
        "milestones": lambda: _each(
            lambda m: Settings(schedule="step", schedule_options={"milestones": m}) and "taken",
            [], [0], [-1], "60", 3, [1, 2.5], (4,),
        ),
        "warmup": lambda: _each(
            lambda w: Settings(schedule="one_cycle", schedule_options={"warmup": w}) and "taken", 0, -1, "x", True
        ),
        "oracle beta": lambda: _each(
            lambda b: OracleSettings(loss=BALANCED, loss_options={"beta": b}) and "taken", 0, 1, 0.999, -0.001
        ),
        "oracle epochs": oracle("epochs", 1, 0),
        "oracle batch_size": oracle("batch_size", 1, 0),
        "oracle learning_rate": oracle("learning_rate", 0, tiny),
        "oracle backbone_rate": oracle("backbone_rate", 0, -tiny),
        "oracle words": lambda: [
            *_each(lambda d: OracleSettings(depth=d) and "taken", "head", "network", "x"),
            *_each(lambda d: OracleSettings(head=d) and "taken", "", "linear", "mlp", "x"),
        ],
        "model options": lambda: _each(
            lambda o: confide.models.create(o[0], o[1], 2, **o[2]),
            ("mlp", (3,), {"dropout": 1}), ("mlp", (3,), {"dropout": 1.1}), ("mlp", (3,), {"dropout": -0.1}),
            ("mlp", (3,), {"dropout": 0}), ("mlp", (3,), {"hidden": [1]}), ("mlp", (3,), {"hidden": [0]}),
            ("mlp", (3,), {"hidden": []}), ("mlp", (3,), {"hidden": "8"}), ("small_cnn", (1, 8, 8), {"width": 1}),
            ("small_cnn", (1, 8, 8), {"width": 0}), ("text_cnn", (9,), {"vocabulary": 2}),
            ("text_cnn", (9,), {"vocabulary": 1}), ("small_cnn", (3,), {}), ("mlp", (1, 2, 2), {}),
            ("text_cnn", (1, 8), {}),
        ),
        "classes of a model": lambda: _each(lambda n: confide.models.create("mlp", (3,), n), 1, 2),
        "holdout": _holdouts,
        "a graph": _graphs,
    }  # fmt: skip


def _holdouts() -> Any:
    from confide.integrations.sklearn import SelectiveClassifier

    def fitted(holdout: Any) -> Any:
        own = SelectiveClassifier(risk=0.3, holdout=holdout, random_state=0).fit(features("train"), labels("train"))
        return [own.operating_point_.threshold, own.operating_point_.n, own.predict(features("val"))[:9].tolist()]

    return _each(fitted, 0, 1, 0.5, 0.2)


def _graphs() -> Any:
    def run(**changes: Any) -> Any:
        usual = {"gpu": True, "graph": True, "size": 1, "resident": True, "momenta": None, "scaler": None, **changes}
        return SimpleNamespace(
            state=SimpleNamespace(device=SimpleNamespace(on_gpu=usual["gpu"]), scaler=usual["scaler"]),
            settings=SimpleNamespace(graph=usual["graph"]),
            world=SimpleNamespace(size=usual["size"]),
            feed=SimpleNamespace(resident=usual["resident"]),
            momenta=usual["momenta"],
        )

    cases: tuple[dict[str, Any], ...] = (
        {}, {"gpu": False}, {"graph": False}, {"size": 2}, {"resident": False}, {"momenta": [1.0]}, {"scaler": 1},
    )  # fmt: skip
    return [_reason_against(run(**case)) for case in cases]


# Files.


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


# Watches.


def _watches() -> dict[str, Callable[[], Any]]:
    def watch(**options: Any) -> Any:
        return monitor.Monitor(predictions(), file="w.jsonl", **options)

    def started(name: str, *values: Any) -> Callable[[], Any]:
        return lambda: _each(
            lambda value: monitor.Monitor(predictions(), file=f"{value}.jsonl", **{name: value}) and "taken", *values
        )

    def batch(start: int = 1000, split: str = "test", **changes: Any) -> Predictions:
        logits = predictions(split).logits
        return Predictions(logits, ids=np.arange(start, start + len(logits)), class_names=NAMES, **changes)

    def labelled(labels: Any, ids: Any = (1000, 1001, 1002), weights: Any = None, **options: Any) -> Any:
        own = monitor.Monitor(predictions(), file=f"{abs(hash(str((labels, ids, weights))))}.jsonl", **options)
        own.update(batch())
        before = [str(alarm) for alarm in own.labels(ids, labels, weights)]
        return [before, own.batches[0].labelled, own.batches[0].right]

    def many() -> Any:
        own = watch(risk=0.1)
        for k in range(3):
            own.update(batch(1000 * (k + 1), "test" if k else "val"), name=None if k else "first")
        again = own.update(batch(1000, "val"))
        own.labels(range(2000, 2100), (labels("test")[:100] + 1) % C)
        own.labels([9000], [1])
        late = monitor.Monitor(file="w.jsonl")
        late.update(Predictions(predictions("val").logits[:1], ids=[9000]))
        reports = [[b.name, b.n, b.accepted, b.labelled, b.right, b.gap, b.seen, list(b.drifted)] for b in late.batches]
        return [reports, again.name, [str(a) for a in late.alarms], late.alarmed, monitor.page.headline(late)]

    def pairs() -> Any:
        sure = np.linspace(0.3, 1, 60)
        own = monitor.Monitor(Predictions.from_pairs([1, 0, 1, 1, 0, 1] * 10, sure), file="p.jsonl")
        own.update(Predictions.from_pairs([1, 0, 1, 1, 0, 1] * 10, sure, ids=np.arange(100, 160)))
        told = _each(lambda k: [str(a) for a in own.labels([500 + k], [k])], 0, 1, 2, -1)
        return [told, own.batches[0].labelled, own.batches[0].right]

    return {
        "delta": started("delta", 0, 1, 0.5, -0.1),
        "risk": started("risk", 0, 1, 0.5),
        "most_weight": started("most_weight", 0, 1e-9),
        "labels": lambda: _each(
            labelled, [0, 1, 2], ["ant", "bee", "cat"], [0, 1, 4], [0, 1, -1], [0, 1, 3], [0, 1, 1.5], ["0", "1", "x"],
            [0, 1], 5, [None, 1, 2],
        ),
        "weights": lambda: _each(
            lambda w: labelled([0, 1, 2], weights=w, most_weight=2.0),
            [1, 1, 2], [1, 1, 2.01], [0, 1, 1], [1, 1], [[1, 1, 1]], [0.5, 1e-9, 2],
        ),
        "the same twice": lambda: _each(
            lambda own: labelled(own, ids=(1000, 1000, 1001)), [1, 1, 0], [1, 2, 0]
        ),
        "many": many,
        "pairs": pairs,
        "another promise": lambda: [watch(risk=0.1) and "taken", _or_line(lambda: watch(risk=0.2)),
                                    _or_line(lambda: watch(risk=0.1)) and "taken"],
        "an id again": lambda: [
            watch().update(batch()).n,
            _or_line(lambda: watch().update(batch(split="val"))),
        ],
        "no file": lambda: _or_line(lambda: monitor.Monitor(file="none.jsonl")),
        "nobody yet": lambda: [watch().alarmed, monitor.page.headline(watch())],
        "damaged": _damaged_watches,
        "wealth": _wealth,
        "drift": _drifts,
    }  # fmt: skip


def _damaged_watches() -> Any:
    """A watch whose reference or batch was changed to what cannot be."""
    monitor.Monitor(predictions(), file="w.jsonl").update(
        Predictions(predictions("test").logits, ids=np.arange(1000, 1000 + N))
    )
    header, batch = (json.loads(line) for line in Path("w.jsonl").read_text().splitlines())
    own, said = header["reference"], batch["predictions"]

    def read(change: Any) -> Any:
        head, line = json.loads(json.dumps(header)), json.loads(json.dumps(batch))
        change(head["reference"], line["predictions"])
        Path("d.jsonl").write_text(json.dumps(head) + "\n" + json.dumps(line) + "\n")
        watch = monitor.Monitor(file="d.jsonl")
        return [watch.batches[0].n, watch.batches[0].accepted]

    def of(name: str, value: Any) -> Callable[[Any, Any], None]:
        return lambda reference, _: reference.update({name: value})

    def in_batch(name: str, value: Any) -> Callable[[Any, Any], None]:
        return lambda _, batch: batch.update({name: value})

    first = next(iter(own["quantiles"]))
    more = [1.0000005, *said["confidence"][1:]]
    return _each(
        read,
        lambda *_: None, of("n", 0), of("n", 1), of("accuracy", 0), of("accuracy", 1), of("accuracy", 1.01),
        of("threshold", -0.01), of("quantiles", {**own["quantiles"], first: []}), of("tolerance", own["tolerance"][1:]),
        of("tolerance", [*own["tolerance"], 0.1]), of("class_counts", [0, 0, 0, 0]), of("class_counts", [-1, 1, 1, 1]),
        of("class_counts", [0, 1, 1, 1]), of("class_counts", []), in_batch("confidence", more),
        in_batch("confidence", [1.000002, *more[1:]]), in_batch("confidence", [-0.0000005, *more[1:]]),
        in_batch("confidence", said["confidence"][1:]), in_batch("classes", said["classes"][1:]),
        in_batch("classes", [-1, *said["classes"][1:]]), in_batch("classes", [True, *said["classes"][1:]]),
        in_batch("ids", said["ids"][1:]), in_batch("accepted", said["accepted"][1:]),
    )  # fmt: skip


def _drifts() -> Any:
    """Distances from a reference: of classes that are new, alone or gone, and of numbers at their quantiles."""
    from confide.monitor import estimates

    classes = [estimates._class_drift(*own) for own in (
        ((0, 1, 1), (5, 5)), ((0, 0), (5,)), ((0, 3), (5, 5)), ((0, 1, 2), (5, 5, 0, 7)), ((2,), (3, 3, 3)),
    )]  # fmt: skip
    known = tuple(np.linspace(0, 1, 11).tolist())
    numbers = [
        estimates._kolmogorov_smirnov("x", np.array(own), known, n)
        for own, n in (([0.5], 1), ([0.0, 1.0], 50), (list(known), 11), ([2.0] * 9, 100), ([-1.0] * 9, 100))
    ]
    rates = [[estimates._rate_error(*own), estimates._rate_logit(*own)] for own in ((0.0, 1), (1.0, 1), (0.5, 40))]
    counts = [estimates._entropy(np.array(own)) for own in ([1, 1], [5, 0], [1, 2, 3])]
    bounds = [vars(estimates._estimate("m", *own)) for own in ((0.5, 0.1), (0.99, 0.1), (0.01, 0.1))]
    return [[vars(d) for d in (*classes, *numbers)], rates, counts, bounds]


def _wealth() -> Any:
    """Wealth over blocks: one bet, the last of a block, the first of the next, and far beyond an alarm."""
    from confide.monitor.alarms import BLOCK, Wealth, calibration_bets, risk_bets

    told = []
    for n in (1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 2):
        for wrong in (0.0, 1.0):
            own = Wealth(1, 0.05)
            own.add(*risk_bets(np.full(n, wrong), 0.2, np.ones(n)))
            told.append([n, wrong, own.value, own.highest, own.alarm_at, own.alarmed, own.seen, len(own.history)])
    parts = Wealth(1, 0.05)
    for k in range(4):
        parts.add(*risk_bets(np.full(BLOCK // 2 + k, 1.0), 0.2, np.ones(BLOCK // 2 + k)))
    gains, lows = calibration_bets(
        np.array([1.0, 0.0, 1.0]), np.array([0.5, 0.75, 0.8]), np.array([0.5, 0.75]), np.array([0.1, 0.2, 0.3, 0.05]),
        np.array([1.0, 0.5, 2.0]), 2.0,
    )  # fmt: skip
    return [told, parts.value, parts.alarm_at, gains.tolist(), lows.tolist()]


# Networks and what they are fed.


def _networks() -> dict[str, Callable[[], Any]]:
    return {
        "feeds": _feeds,
        "preparations": _preparations,
        "devices": _devices,
        "weights of others": _weights_of_others,
        "sizes": lambda: [
            confide.models.parameter_count(confide.models.create("densenet121", shape, 3, growth=2))
            for shape in ((3, 63, 64), (3, 64, 64), (1, 64, 63))
        ],
        "long texts": lambda: [_network("text_cnn", (n,), {"filters": 4})["outputs"] for n in (9, 19, 44, 45)],
        "batches": lambda: [
            [list(map(int, b)) for b in preparation.rows_in_batches(*n)] for n in ((5, 2), (4, 2), (0, 3))
        ],
    }  # fmt: skip


def _split(inputs: Any, n: int) -> Any:
    return confide.data.Split(inputs, np.arange(n) % 3, np.array([f"s{k}" for k in range(n)]))


def _feeds() -> Any:
    """Batches as they come, whole in memory and read ahead, cut, flipped and mirrored."""
    pixels = np.random.default_rng(0).integers(0, 255, (9, 1, 5, 6)).astype(np.uint8)
    split, told = _split(pixels, 9), {}
    usual = preparation.Preparation("image", (1, 5, 6), (100.0,), (50.0,))
    batches = preparation.rows_in_batches(9, 2)
    for augment in ("none", "crop", "flip", "crop_flip"):
        if augment not in confide.training.settings.AUGMENTS:
            continue
        for budget in (0, 10**9):
            feed = preparation.Feed(split, usual, torch.device("cpu"), augment=augment, seed=3, memory_budget=budget)
            feed.start_epoch(2)
            rows = [(x.clone(), at) for x, at in feed.batches(batches)]
            told[f"{augment} {budget}"] = [
                feed.resident,
                feed.padding,
                torch.cat([x for x, _ in rows]).numpy(),
                torch.cat([at for _, at in rows]).tolist(),
            ]
    grown = preparation.Feed(split, usual, torch.device("cpu"), augment="crop_flip", memory_budget=9 * 13 * 14)
    small = preparation.Feed(split, usual, torch.device("cpu"), augment="crop_flip", memory_budget=9 * 13 * 14 - 1)
    empty = preparation.Feed(split.take(np.arange(0)), usual, torch.device("cpu"), memory_budget=0)
    return [told, grown.resident, small.resident, empty.resident, len(empty)]


def _preparations() -> Any:
    def dataset(inputs: Any, kind: str, n: int) -> Any:
        return confide.data.Dataset("made", kind, {"train": _split(inputs, n)}, ("a", "b", "c"))

    def shown(own: Any) -> Any:
        return [own.kind, list(own.shape), list(own.mean), list(own.std), list(own.words), own.tokenizer]

    texts = [f"word{k} the the, a" + " b" * (3 * k) for k in range(9)]
    texts_of = dataset(texts, "text", 9)
    pixels = np.random.default_rng(0).integers(0, 255, (9, 2, 3, 3)).astype(np.uint8)
    rows = np.random.default_rng(1).normal(size=(1203, 2)) * [1, 0] + [0, 4]
    told = [
        shown(preparation.fit_preparation(texts_of, texts_of.split("train"), model="text_cnn", vocabulary=6)),
        shown(preparation.fit_preparation(texts_of, texts_of.split("train"), model="hf:x")),
        *(
            shown(preparation.fit_preparation(own, own.split("train"), model=model))
            for own in (dataset(pixels, "image", 9), dataset(rows, "rows", 1203))
            for model in ("mlp", "features:x")
        ),
    ]
    usual = preparation.fit_preparation(texts_of, texts_of.split("train"), model="text_cnn", vocabulary=6)
    images = preparation.Preparation("image", (2, 3, 3), (0.0, 0.0), (1.0, 1.0))
    told += [
        usual.encode(["the word8 b b b", ""]).tolist(),
        preparation.Preparation.from_dict(json.loads(json.dumps(usual.as_dict()))) == usual,
        list(usual.blank(2).shape),
        str(usual.blank(2).dtype),
        str(images.blank(1).dtype),
        _or_line(lambda: usual.check(_split(pixels, 9), "it")),
        _or_line(lambda: usual.check(_split([], 0), "it")) or "taken",
        _or_line(lambda: images.check(_split(pixels, 9), "it")) or "taken",
        _or_line(lambda: images.check(_split(pixels[:, :1], 9), "it")),
        _or_line(lambda: preparation.fit_preparation(dataset(pixels, "image", 9), _split(pixels[:0], 0), model="x")),
        _or_line(lambda: shown(preparation.fit_preparation(
            dataset(np.array([[math.nan], [1.0]]), "rows", 2), _split(np.array([[math.nan], [1.0]]), 2), model="x"))),
        replace(usual, words=()).encode(["the"]).tolist(),
    ]  # fmt: skip
    return told


def _weights_of_others() -> Any:
    from confide.models.trained import build_model, load_weights

    rows = preparation.Preparation("rows", (3,), (0.0,) * 3, (1.0,) * 3)
    model = build_model("mlp", {"hidden": [2]}, rows, 2)
    own = dict(model.state_dict())
    first = next(iter(own))
    cases: tuple[Any, ...] = (own, {k: v for k, v in own.items() if k != first}, {**own, "more": own[first]},
                              {**own, first: own[first][:1]})  # fmt: skip
    texts = preparation.Preparation("text", (8,), words=("a", "b", "c"))
    read = build_model("text_cnn", {"filters": 2}, texts, 2)
    return [
        *_each(lambda weights: load_weights(model, weights), *cases),
        next(p.shape[0] for name, p in read.named_parameters() if "vectors" in name),
    ]


def _devices() -> Any:
    before = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
    told: list[Any] = _each(lambda word: str(Device.of(word).device), "cpu", "auto", "nowhere", "tpu:x")
    told += _each(lambda word: str(Device.of("cpu", word)), "auto", "float32", "bfloat16", "float16", "float8")
    told += [Device.for_prediction("cpu", word).precision for word in ("float16", "bfloat16", "float32", "auto")]
    for deterministic in (True, False):
        torch.manual_seed(7)
        with Device.of("cpu").seeded(3, deterministic):
            inside = torch.rand(1).item(), torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
        told += [*inside, torch.rand(1).item()]
    told.append((torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic) == before)
    told += [is_out_of_memory(RuntimeError(text)) for text in ("can't allocate memory: 1", "other")]
    for precision in ("float32", "bfloat16"):
        with Device.of("cpu", precision).autocast():
            told.append(str((torch.ones(2, 2) @ torch.ones(2, 2)).dtype))
    return told


# Data.


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


# Verbs of the command line, where what they call is not worked out or is not the same everywhere.


def _verbs() -> dict[str, Callable[[], Any]]:
    from confide.cli import doctor, main, result_tables
    from tests.kept.pages import _small

    def said(call: Callable[[], Any]) -> Any:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                status = call()
            except SystemExit as stop:
                status = stop.code
        return [status, out.getvalue().splitlines(), err.getvalue().splitlines()]

    def examined(core: dict[str, str | None], extras: dict[str, bool], json: bool = False) -> Any:
        report = {
            **{"confide": "1", "python": "3", "system": "S", "cores": 2, "accelerator": "none", "threads": 1},
            **{"neighbours": "own", "free_disk_gb": 7.6, "core": core},
            "extras": {name: {"installed": own, "brings": f"for {name}"} for name, own in extras.items()},
        }
        with patch.object(doctor, "examine", lambda: report):
            return said(lambda: doctor.run(SimpleNamespace(json=json)))

    def guarded(error: BaseException) -> Any:
        def run(_: Any) -> None:
            raise error

        try:
            return said(lambda: main.guarded(run, SimpleNamespace(quiet=True)))
        except RuntimeError as other:
            return f"raised: {other}"

    def explored(*words: str) -> Any:
        predictions().save("p.npz")

        def serve(layout: Any, say: Callable[[str], None], **options: Any) -> None:
            for line in ("reading", "explorer: http://here", "ready"):
                say(line)
            print(options)

        with patch.object(confide.explorer, "serve", serve):
            return said(lambda: main.main(["explore", "p.npz", *words]))

    def scored(*words: str) -> Any:
        asked: list[Any] = []

        def score_folder(job: Any) -> Any:
            asked.append({**vars(job), "source": str(job.source), "out": str(job.out)})
            raise confide.InputError("stopped here")

        np.savez("i.npz", images=np.zeros((4, 2, 2), np.uint8), labels=[0, 1, 0, 1])
        with patch("confide.scale.score_folder", score_folder):
            told = said(lambda: main.main(["score", "i.npz", "--engine", "ray", *words]))
        return [told, [str(own) for own in asked]]

    return {
        "doctor": lambda: [
            examined({"torch": "2"}, {"vision": True, "text": False}),
            examined({"torch": "2"}, {"vision": True}),
            examined({"torch": None, "numpy": "1", "scipy": None}, {"a": True, "longer": False}),
            examined({}, {}),
            examined({"torch": None}, {}, json=True),
        ],
        "guarded": lambda: _each(
            guarded, MemoryError("first\nsecond"), MemoryError(), RuntimeError("can't allocate memory"),
            RuntimeError("other"), OSError(28, "No space", "file"), OSError("plain"), confide.InputError("bad"),
            confide.checks.MissingExtra("a", "b", "c"),
        ),
        "no verb": lambda: [said(lambda: main.main([]))[0], said(lambda: main.main(["-x"]))[0],
                            said(lambda: main.main(["evalate"]))[2][-1:], said(lambda: main.main(["zzz"]))[0]],
        "explore": lambda: _each(
            lambda words: explored(*words.split()),
            "", "--json", "--quiet", "--no-token --port 0 --browser", "--top 3", "--export x.csv",
            "--export x.csv --top 3", "--export x.csv --top 0", "--export x.csv --top 1 --json", "--export x.txt",
            "--export x.parquet --top 2 --sort -confidence", "--export x.csv --sort nothing --top 2",
        ),
        "score on ray": lambda: _each(
            lambda words: scored(*words.split()),
            "-o s.parquet --features pixels", "-o s.parquet --features pixels --workers 0 --method prototype",
            "-o s.parquet --features pixels --workers 3 --batch-size 7 --method rmd --method rmd", "-o s.parquet",
        ),
        "run table": lambda: result_tables.run_table(_small()).splitlines(),
        "run table of odd rows": lambda: result_tables.run_table(
            replace(_small(), measurements=tuple(replace(m, p_value=0.05, bounds=None) for m in _small().measurements))
        ).splitlines(),
        "all fail": lambda: said(lambda: _trained_nothing(main.main)),
    }  # fmt: skip


def _trained_nothing(main: Callable[[list[str]], int]) -> int:
    """Trainings that fail, all and one of two; which does not matter here."""
    from confide.cli import train

    outcome = SimpleNamespace(error="no loss", folder="t/a")
    with patch.object(train, "_run_jobs", lambda *_: [outcome, outcome]):
        return main(["train", "none.npz", "--out", "t"])


# Classifiers of scikit-learn, and what other trainers log.


def _estimators() -> dict[str, Callable[[], Any]]:
    from sklearn.linear_model import LogisticRegression, Perceptron
    from sklearn.svm import LinearSVC
    from sklearn.tree import DecisionTreeClassifier

    from confide.integrations import sklearn as wrapped, torchmetrics
    from confide.integrations.epoch_log import logged_metrics

    x, y = features("train"), np.array(NAMES)[labels("train")]
    test = features("test")

    def lines(call: Callable[[], Any]) -> Any:
        try:
            return _shown(call())
        except (ValueError, AttributeError) as error:
            return str(error)[:160]

    def calibrated(estimator: Any = None, given: Any = y, **options: Any) -> Any:
        weights = options.pop("weights", None)
        own = wrapped.ConfideClassifier(estimator, **{"cv": 3, **options}).fit(x, given, weights)
        tags = own.__sklearn_tags__().input_tags
        return [own.predict_proba(test).round(2), own.predict(test)[:5].tolist(), list(map(str, own.classes_)),
                [tags.sparse, tags.pairwise, tags.allow_nan], getattr(own, "n_features_in_", None)]  # fmt: skip

    def fitted(kind: Any, given: Any = y, **options: Any) -> Any:
        own = kind(**{"random_state": 0, **options}).fit(x, given)
        told = own.predict_set(test) if kind is wrapped.SetClassifier else own.accept(test)
        return [told, [str(v) for v in own.predict(test)[:12]], own.predict_proba(test).round(2)]

    def transformed(inputs: str, given: Any, targets: Any) -> Any:
        own = wrapped.CalibratorTransformer("temperature", inputs).fit(given, targets)
        return [own.transform(given).round(3), own.predict(given)[:6].tolist(), own.get_feature_names_out().tolist()]

    probs = predictions().probabilities().double().numpy()
    numbers, rare = labels("train"), np.where(np.arange(N) < 2, "eel", y)
    before = LogisticRegression().fit(x, y)
    binary = (labels("train") > 0).astype(int)
    odd = np.where(labels("val") == 3, 2, labels("val"))
    return {
        "calibrated": lambda: [
            lines(lambda o=o: calibrated(**o))
            for o in ({}, {"estimator": LinearSVC(random_state=0)},
                      {"estimator": DecisionTreeClassifier(random_state=0)},
                      {"estimator": before, "cv": "prefit"}, {"given": numbers}, {"calibrator": "vector"},
                      {"given": binary}, {"given": rare, "cv": 5},
                      {"given": rare, "cv": 2}, {"given": np.zeros(N, int)}, {"weights": np.ones(N)})
        ],
        "weights": lambda: [
            lines(lambda w=w, e=e: calibrated(e, given=binary, weights=w))
            for e, w in ((None, binary * 1.0), (None, np.linspace(0, 1, N)), (Perceptron(), np.ones(N)),
                         (_Plain(), np.ones(N)))
        ],
        "selective": lambda: [
            lines(lambda o=o: fitted(wrapped.SelectiveClassifier, **{"risk": 0.3, **o}))
            for o in ({}, {"given": numbers}, {"given": numbers, "abstain": 9}, {"risk": 0.001}, {"holdout": 0.9},
                      {"estimator": before, "holdout": "prefit"},
                      {"estimator": before, "holdout": "prefit", "given": rare},
                      {"given": np.where(np.arange(N) == 0, "eel", y)}, {"ranked_by": "entropy"})
        ],
        "sets": lambda: [
            lines(lambda o=o: fitted(wrapped.SetClassifier, **o)) for o in ({}, {"coverage": 0.6, "method": "aps"})
        ],
        "transformed": lambda: [
            lines(lambda o=o: transformed(*o))
            for o in (("probs", probs, labels("val")), ("logits", np.log(probs + 1e-9), labels("val")),
                      ("probs", probs, np.array(NAMES)[labels("val")]), ("probs", probs, odd), ("odd", probs, odd),
                      ("probs", probs, np.array(NAMES)[odd]), ("probs", probs * 2, odd), ("probs", probs, odd - 1),
                      ("probs", probs, odd + 1), ("probs", probs, odd * 10))
        ],
        "logged": lambda: [
            logged_metrics(np.log(probs[:, None] + 1e-9), np.where(np.arange(N) < 3, -100, labels("val"))[:, None]),
            logged_metrics(np.log(probs + 1e-9), labels("val"), ["accuracy", "ece", "brier"]),
        ],
        "batched": lambda: [_batched(torchmetrics, word, probs) for word in ("ece", "accuracy", "auroc", "nll")],
        "names": lambda: [
            torchmetrics.class_name("classwise_ece"), len(dir(torchmetrics)), dir(torchmetrics)[:6],
            lines(lambda: torchmetrics.ECEE), lines(lambda: torchmetrics._ece), torchmetrics.ece.__name__,
        ],
    }  # fmt: skip


class _Plain:
    """A classifier that takes no weights."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {}

    def fit(self, x: Any, y: Any) -> _Plain:
        self.classes_ = np.unique(y)
        return self


def _batched(torchmetrics: Any, word: str, probs: Any) -> Any:
    metric = torchmetrics.metric_class(word)
    told: list[Any] = [metric.higher_is_better, metric.plot_lower_bound, metric.plot_upper_bound, metric.__name__]
    for outputs, options in ((probs, {"from_probs": True}), (np.log(probs + 1e-9), {}), (probs[:, 1] * 4 - 2, {})):
        truth = torch.as_tensor(labels("val") if outputs.ndim == 2 else (labels("val") == 1).astype(int))
        own = metric(**options)
        for part in np.array_split(np.arange(N), 3):
            own.update(torch.as_tensor(outputs[part]), truth[part])
        told.append(float(own.compute()))
    return told
