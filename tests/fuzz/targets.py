"""What is fuzzed: every reader of files, as a seed that is whole and a function that reads it.

A target either returns or refuses in one line (`InputError` and its like, or an `OSError`); everything else is a crash.
`mutated` damages a seed: bytes for any format, values for what holds values.
"""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import yaml
from PIL import Image

import confide
from confide import calibrators, data, difficulty, sets, trust
from confide.checks import InputError, MissingExtra, OptionError
from confide.config import load_config
from confide.evaluation import operating_point
from confide.files import formats
from confide.predictions import Predictions
from confide.records import Features, Scores
from confide.results import Evaluation, OperatingPoint
from confide.store import DataNote, read_manifest

REFUSALS = (InputError, OptionError, MissingExtra, OSError)
CORPUS = Path(__file__).parent / "corpus"
N, C = 24, 3


class Crash(AssertionError):
    """A file that neither was read nor refused in one line."""


@dataclass(frozen=True)
class Target:
    """A reader: the name of its file, how a whole one is made, and what reads it."""

    file: str
    make: Callable[[Path], object]
    read: Callable[[Path], object]

    @property
    def name(self) -> str:
        return self.file.replace("/", "_").replace(".", "_")


def _labels() -> Any:
    return torch.arange(N) % C


def _predictions(split: str = "val") -> Predictions:
    logits = torch.randn(N, C, generator=torch.Generator().manual_seed(0)) + 1.5 * torch.eye(C)[_labels()]
    words = np.array(["a", "b"])[np.arange(N) % 2]
    return Predictions(logits, _labels(), split=split, columns={"site": words}, class_names=("cat", "dog", "eel"))


def _features() -> Features:
    values = np.random.default_rng(0).normal(size=(N, 4)) + np.asarray(_labels())[:, None]
    return Features(values.astype(np.float32), np.asarray(_labels()), np.arange(N).astype(str), "made")


def _scores() -> Scores:
    return Scores(np.arange(N).astype(str), np.linspace(0, 1, N), "rmd", {}, np.asarray(_labels()))


def _arrays() -> dict[str, Any]:
    pictures = np.random.default_rng(0).integers(0, 255, (N, 1, 6, 6), dtype=np.uint8)
    return {"inputs": pictures, "labels": np.asarray(_labels())}


def _table(path: Path) -> None:
    texts = np.array([f"a text number {k}" for k in range(N)])
    formats.write_table(path, {"id": np.arange(N).astype(str), "text": texts, "label": np.asarray(_labels())})


def _json_lines(path: Path) -> None:
    rows = [{"text": f"a text number {k}", "label": ("cat", "dog", "eel")[k % 3]} for k in range(N)]
    path.write_text("\n".join(json.dumps(row) for row in rows))


def _config(path: Path) -> None:
    losses = ["cross_entropy", {"word": "focal", "name": "mine", "gamma": 2.0}]
    training = {"model": "small_cnn", "epochs": 1, "weight_options": {"normalize": "rank"}}
    options = {"title": "t", "data": "fashion-sample", "features": "cached", "difficulty": "rmd", "metrics": "core"}
    families = {"losses": losses, "calibrators": ["temperature"], "trust": ["mcp"]}
    path.write_text(yaml.safe_dump({**options, **families, "training": training, "seed": 3}))


def _pictures(path: Path) -> None:
    """A folder of two classes beside the picture that is damaged."""
    for split, label, name in product(("train", "val", "test"), ("cat", "dog"), ("a.png", "b.png")):
        other = path.parents[2] / split / label / name
        other.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (200, 10, 50)).save(other)
    Image.effect_noise((9, 9), 50).convert("RGB").save(path)


def _read_pictures(path: Path) -> None:
    for split in data.load_dataset(str(path.parents[2])).splits.values():
        for k in range(len(split)):
            split.inputs[k]


def _manifest(path: Path) -> None:
    stage = {"key": "a", "uses": {}, "after": [], "files": {"data.json": "0"}, "seconds": 1.0}
    formats.write_json(path, {"format": "run/2", "config": {"losses": []}, "versions": {}, "stages": {"data": stage}})


def _evaluation() -> Evaluation:
    return confide.evaluate(_predictions("test"), metrics=["accuracy", "ece"], intervals=False)


def _used(load: Callable[[Path], Any], apply: Callable[[Any], object]) -> Callable[[Path], object]:
    """Load, and use what was loaded: a file that loads must also work."""
    return lambda path: apply(load(path))


TARGETS = (
    *(
        Target(f"predictions.{e}", lambda p: _predictions().save(p), Predictions.load)
        for e in ("npz", "parquet", "csv")
    ),
    *(Target(f"features.{e}", lambda p: _features().save(p), Features.load) for e in ("npz", "parquet")),
    *(Target(f"scores.{e}", lambda p: _scores().save(p), Scores.load) for e in ("npz", "parquet", "csv")),
    Target("data.npz", lambda p: np.savez(p, **_arrays()), lambda p: data.load_dataset(str(p))),
    *(Target(f"data.{e}", _table, lambda p: data.load_dataset(str(p))) for e in ("csv", "parquet")),
    Target("data.jsonl", _json_lines, lambda p: data.load_dataset(str(p))),
    Target("pictures/train/cat/x.png", _pictures, _read_pictures),
    Target("pictures/train/cat/x.jpg", _pictures, _read_pictures),
    *(
        Target(
            f"{word}.{ending}",
            lambda p, word=word: calibrators.fit(word, _predictions()).save(p),
            _used(calibrators.load, lambda calibrator: calibrator(_predictions("test"))),
        )
        for word, ending in (
            ("temperature", "json"),
            ("matrix", "safetensors"),
            ("histogram", "json"),
            ("spline", "json"),
        )
    ),
    Target(
        "rmd.safetensors",
        lambda p: difficulty.fit("rmd", _features()).save(p),
        _used(difficulty.load, lambda fitted: fitted.score(_features())),
    ),
    Target(
        "trust.json",
        lambda p: trust.fit("mcp", _predictions()).save(p),
        _used(trust.load, lambda fitted: fitted(_predictions("test"))),
    ),
    Target("sets.json", lambda p: sets.fit("lac", _predictions()).save(p), sets.load),
    Target(
        "operating_point.json",
        lambda p: operating_point(_predictions(), coverage=0.8).save(p),
        OperatingPoint.load,
    ),
    Target("evaluation.json", lambda p: _evaluation().save(p), Evaluation.load),
    Target("config.yaml", _config, load_config),
    Target("run/manifest.json", _manifest, lambda p: read_manifest(p.parent)),
    Target("data.json", lambda p: formats.write_json(p, {"name": "a", "class_names": ["b"]}), DataNote.load),
)


@cache
def seed_of(target: Target) -> bytes:
    """A whole file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / target.file
        path.parent.mkdir(parents=True, exist_ok=True)
        target.make(path)
        target.read(path)
        return path.read_bytes()


def tried(target: Target, content: bytes, folder: Path) -> bool:
    """Read a file with this content: whether it was read; a crash is raised."""
    path = folder / target.file
    path.parent.mkdir(parents=True, exist_ok=True)
    if target.file.startswith("pictures"):
        target.make(path)
    path.write_bytes(content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.read(path)
        return True
    except REFUSALS as error:
        if "\n" in str(error).strip():
            raise Crash(f"{target.name}: the refusal must be one line, got {str(error)!r}") from error
        return False
    except Exception as error:
        raise Crash(f"{target.name}: {type(error).__name__}: {str(error)[:200]}") from error


# Damage.

VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        -1,
        0,
        1,
        10**23,
        1e308,
        -1e308,
        "",
        "x",
        "\ud800",
        "²",
        [],
        {},
        [[]],
        {"a": {}},
        [1, "a"],
        "9" * 5000,
    ),
    *(["a", "b"], [1e999], {"": None}, 2**31, 2**63, -(2**63), 0.5),
)


def mutations(target: Target, seed: int) -> Iterator[bytes]:
    """Endless damaged files."""
    draws, whole = random.Random(f"{target.name} {seed}"), seed_of(target)
    by_value = _mutated_json if target.file.endswith("json") else None
    by_value = _mutated_yaml if target.file.endswith("yaml") else by_value
    by_value = _mutated_columns if target.file in COLUMN_FILES else by_value
    while True:
        if by_value is not None and draws.random() < 0.7:
            yield by_value(whole, draws, Path(target.file).suffix)
        else:
            yield _mutated_bytes(whole, draws)


def _mutated_bytes(whole: bytes, draws: random.Random) -> bytes:
    content = bytearray(whole)
    for _ in range(draws.choice((1, 1, 2, 5))):
        place = draws.randrange(len(content) + 1)
        match draws.randrange(6):
            case 0:
                content[place : place + 1] = bytes([draws.randrange(256)])
            case 1:
                del content[place : place + draws.choice((1, 4, 64))]
            case 2:
                content[place:place] = draws.choice((b"\x00", b"\xff\xff\xff\xff", b"9" * 40, b'"', b"\n", b","))
            case 3:
                content = content[:place]
            case 4:
                content[place : place + 8] = draws.choice((0, 1, 2**31, 2**63 - 1, 2**64 - 1)).to_bytes(8, "little")
            case 5:
                other = draws.randrange(len(content) + 1)
                content[place:place] = content[other : other + 40]
        if not content:
            break
    return bytes(content)


def _mutated_value(value: Any, draws: random.Random) -> Any:
    """One value somewhere inside becomes another one, or goes, or comes twice."""
    if isinstance(value, dict) and value and draws.random() < 0.9:
        key = draws.choice(list(value))
        if draws.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: _mutated_value(value[key], draws)}
    if isinstance(value, list) and value and draws.random() < 0.7:
        place = draws.randrange(len(value))
        if draws.random() < 0.2:
            return value[:place] + value[place + 1 :]
        return [*value[:place], _mutated_value(value[place], draws), *value[place + 1 :]]
    return draws.choice(VALUES)


def _mutated_json(whole: bytes, draws: random.Random, _: str) -> bytes:
    return json.dumps(_mutated_value(json.loads(whole), draws)).encode("utf-8", "surrogatepass")


def _mutated_yaml(whole: bytes, draws: random.Random, _: str) -> bytes:
    return yaml.safe_dump(_mutated_value(yaml.safe_load(whole), draws), allow_unicode=True).encode("utf-8", "replace")


COLUMN_FILES = ("predictions.npz", "predictions.parquet", "scores.parquet", "features.npz", "data.npz", "data.parquet")
TYPES = (
    "float16",
    "float64",
    ">f8",
    "int8",
    "uint64",
    ">i4",
    "bool",
    "str",
    "complex64",
    "datetime64[s]",
    "longdouble",
)


def _mutated_columns(whole: bytes, draws: random.Random, ending: str) -> bytes:
    """One column of another type or shape, with odd values, renamed, gone or longer."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"whole{ending}"
        path.write_bytes(whole)
        columns, notes = formats.read_table(path)
        name = draws.choice(list(columns))
        values = np.asarray(columns[name])
        match draws.randrange(7):
            case 0:
                kind = draws.choice(TYPES)
                values = values.astype(str) if kind == "str" else np.zeros(values.shape).astype(kind)
            case 1 if values.dtype.kind in "fi" and values.size:
                odd = (np.nan, np.inf, -np.inf, 1e300, 1e-300) if values.dtype.kind == "f" else (-1, 127, C)
                values = values.copy()
                with np.errstate(over="ignore"):
                    values.reshape(-1)[draws.randrange(values.size)] = draws.choice(odd)
            case 2:
                values = values[: draws.randrange(len(values))]
            case 3:
                values = values.reshape(len(values), -1)[:, : draws.randrange(3)]
            case 4:
                columns[draws.choice(("label", "labels", "probs", "trust", "id", "", "confidence"))] = values
            case 5:
                notes = {
                    **notes,
                    draws.choice(("class_names", "options", "format", "split")): draws.choice(("5", "[", "x")),
                }
            case _:
                del columns[name]
        if name in columns:
            columns[name] = values
        try:
            formats.write_table(path, columns, notes)
        except Exception:  # some of these no format can hold
            return _mutated_bytes(whole, draws)
        return path.read_bytes()
