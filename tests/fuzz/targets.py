"""What is fuzzed: every reader of files, as a seed that is whole and a function that reads it.

A target either returns or refuses in one line (`InputError` and its like, or an `OSError`); everything else is a crash.
`mutated` damages a seed: bytes for any format, values for what holds values.
"""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import yaml
from PIL import Image

import confide
from confide import answers, calibrators, data, decisions, difficulty, monitor, sets, trust
from confide.calibrators import CALIBRATORS
from confide.checks import InputError, MissingExtra, OptionError
from confide.config import load_config
from confide.evaluation import LabelThresholds, Sketch, label_thresholds, operating_point, sketch_of
from confide.files import formats
from confide.predictions import Predictions
from confide.records import Features, Scores
from confide.report import render_report
from confide.results import Evaluation, OperatingPoint
from confide.store import DataNote, read_manifest
from tests.report.conftest import make_evaluation

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
    beside: bool = False
    """Whether making it leaves other files that are read with it."""

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
    """Every section of a report, and of each shape of row one."""
    whole = make_evaluation(60, pictures=False)
    rows = {(m.metric, m.stage, m.score, m.group is None): m for m in whole.measurements if m.model == "cross_entropy"}
    return replace(
        whole,
        measurements=tuple(rows.values()),
        curves=tuple({curve.kind: curve for curve in reversed(whole.curves)}.values()),
        samples=whole.samples[:1],
        operating_points=whole.operating_points[:1],
        comparisons=whole.comparisons[:1],
    )


def _shown(evaluation: Evaluation) -> None:
    repr(evaluation)
    render_report(evaluation)
    json.dumps(formats.plain(evaluation.to_dict()))


def _save_calibrator(word: str, path: Path) -> None:
    calibrators.fit(word, _predictions(), **_beside(word, fitted=_features())).save(path)


def _use_calibrator(path: Path) -> None:
    calibrator = calibrators.load(path)
    calibrator(_predictions("test"), **_beside(calibrator.word))


def _beside(word: str, **fitted: Any) -> dict[str, Any]:
    """The features that a calibrator looks at, if it does."""
    looks = word in CALIBRATORS and CALIBRATORS.get(word).spec.wants != "nothing"
    return {"features": _features(), **fitted} if looks else {}


def _save_trust(word: str, options: dict[str, Any], path: Path) -> None:
    trust.fit(word, _predictions(), _features(), **options).save(path)


def _use_trust(path: Path) -> None:
    trust.load(path)(_predictions("test"), _features())


def _save_sets(options: dict[str, Any], path: Path) -> None:
    sets.fit("lac", _predictions(), 0.6, **options).save(path)


def _use_sets(fitted: sets.PredictionSets) -> None:
    fitted(_predictions("test"))


def _save_point(options: dict[str, Any], path: Path) -> None:
    operating_point(_predictions(), **options).save(path)


def _use_point(point: OperatingPoint) -> None:
    confide.apply_operating_point(point, _predictions("test"))
    json.dumps(formats.plain(point.to_dict()))


def _watch(path: Path) -> None:
    long = Predictions(_predictions().logits.repeat(3, 1), _predictions().labels.repeat(3), split="val")
    watch = monitor.Monitor(long, risk=0.5, file=path, point=operating_point(long, coverage=0.8))
    week = _predictions("test").replace(ids=np.arange(100, 100 + N))
    watch.update(week, "week")
    watch.labels(week.ids[:5], week.labels[:5])


def _read_watch(path: Path) -> None:
    """What is written to a watch is added to it: the file is read from a copy of its own."""
    watch = monitor.Monitor(file=path)
    watch.batches, watch.alarms  # noqa: B018
    monitor.write_page(watch, path.with_suffix(".html"))


def _used(load: Callable[[Path], Any], apply: Callable[[Any], object]) -> Callable[[Path], object]:
    """Load, and use what was loaded: a file that loads must also work."""
    return lambda path: apply(load(path))


# Answers, labels, pixels, boxes and counted cells.


def _lines(rows: list[dict[str, Any]], path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


CHOICES = [
    {
        "doc_id": k,
        "doc": {"subject": "a"},
        "target": str(k % 2),
        "filtered_resps": [["-3.1", "False"], ["-0.4", "True"]],
    }
    for k in range(4)
]
GENERATED = [
    {
        "doc_id": k,
        "doc": {"subject": "a", "question": "b"},
        "target": "Paris",
        "resps": [["Paris, confidence 90 %"]],
        "filtered_resps": ["Paris"],
        "metrics": ["exact_match"],
        "exact_match": float(k % 2),
    }
    for k in range(4)
]
SAMPLED = [
    {**row, "resps": [["Paris", "Rome", "Paris"]], "filtered_resps": ["Paris", "Rome", "Paris"]} for row in GENERATED
]
TABLE = [
    {"id": f"q{k}", "said": "85 %", "right": k % 2, "tried": ["a", "b", "a"], "logs": [-1.0, -2.0, -0.5], "gold": "a"}
    for k in range(6)
]


def _read_table_of_answers(path: Path) -> None:
    for options in ({"stated": "said", "correct": "right"}, {"samples": "tried", "reference": "gold"}):
        answers.from_table(path, **options)
    answers.from_table(path, log_probs="logs", label="right")


def _uqlm(path: Path) -> None:
    rows = {"response": np.array(["Paris", "Rome"] * 6), "noncontradiction": np.linspace(0, 1, 12)}
    formats.write_table(path, {**rows, "graded": np.arange(12) % 2, "gold": np.array(["Paris"] * 12)})


def _read_uqlm(path: Path) -> None:
    answers.from_uqlm(path, "noncontradiction", correct="graded")
    answers.from_uqlm(path, "noncontradiction", references="gold")


def _polygraph(path: Path) -> None:
    values = {("sequence", "Perplexity"): [0.1, 2.0, 0.5]}, {("sequence", "EM"): [1, 0, 1]}
    texts = {"greedy_texts": ["a", "b", "c"]}
    torch.save({"estimations": values[0], "gen_metrics": values[1], "stats": texts}, path)


def _coco(path: Path) -> None:
    box = {"image_id": 7, "category_id": 3, "bbox": [0, 0, 10, 10]}
    found = [{**box, "score": 0.8}, {**box, "bbox": [2, 3, 9, 9.5], "score": 0.3}, {**box, "image_id": 8, "score": 0.4}]
    formats.write_json(path.with_name("coco_results.json"), found)
    known = {"annotations": [{**box, "iscrowd": 0}], "categories": [{"id": 3, "name": "cup"}]}
    formats.write_json(path.with_name("coco_annotations.json"), known)


def _read_coco(path: Path) -> None:
    confide.dense.from_coco(path.with_name("coco_results.json"), path.with_name("coco_annotations.json"))


def _images(path: Path) -> None:
    draws = np.random.default_rng(0)
    np.savez(path, logits=draws.normal(size=(2, 3, 4, 5)).astype(np.float32), labels=draws.integers(0, 3, (2, 4, 5)))


def _read_images(path: Path) -> None:
    outputs, labels, kind = confide.dense.read_images(path)
    confide.dense.pixels(**{kind: outputs}, labels=labels)


def _multilabel(split: str = "val") -> Predictions:
    labels = np.random.default_rng(1).integers(0, 2, (N, C))
    logits = np.random.default_rng(0).normal(size=(N, C)) + labels
    return Predictions.multilabel(logits, labels, split=split, label_names=("cat", "dog", "eel"))


def _weighted() -> Predictions:
    return _predictions().weighted(np.linspace(0.5, 2.0, N))


def _measured(predictions: Predictions) -> None:
    """A file that loads must also be counted."""
    if predictions.labels is not None:
        confide.metrics.accuracy(predictions)


def _sketch_used(sketch: Any) -> None:
    confide.evaluation.evaluate_sketch(sketch)


TARGETS = (
    *(
        Target(f"samples_{name}_2024-05-01T10-00-00.jsonl", partial(_lines, rows), answers.from_lm_eval)
        for name, rows in (("choice", CHOICES), ("generated", GENERATED), ("sampled", SAMPLED))
    ),
    Target("answers.jsonl", partial(_lines, TABLE), _read_table_of_answers),
    *(Target(f"uqlm.{e}", _uqlm, _read_uqlm) for e in ("csv", "parquet")),
    Target("polygraph.man", _polygraph, lambda p: answers.from_lm_polygraph(p, "Perplexity", "EM")),
    *(Target(f"coco_{name}.json", _coco, _read_coco, beside=True) for name in ("results", "annotations")),
    Target("images.npz", _images, _read_images),
    *(
        Target(f"{name}.{e}", lambda p, make=make: make().save(p), _used(Predictions.load, _measured))
        for name, make in (("multilabel", _multilabel), ("weighted", _weighted))
        for e in ("npz", "parquet", "csv")
    ),
    *(
        Target(
            f"label_thresholds_{name}.json",
            lambda p, options=options: label_thresholds(_multilabel(), **options).save(p),
            _used(LabelThresholds.load, lambda limits: limits(_multilabel("test"))),
        )
        for name, options in (("costs", {"costs": {"miss": 3, "false_alarm": 1}}), ("precision", {"precision": 0.5}))
    ),
    Target("sketch.npz", lambda p: sketch_of(_predictions()).save(p), _used(Sketch.load, _sketch_used)),
    *(
        Target(f"predictions.{e}", lambda p: _predictions().save(p), Predictions.load)
        for e in ("npz", "parquet", "csv")
    ),
    *(Target(f"features.{e}", lambda p: _features().save(p), Features.load) for e in ("npz", "parquet")),
    *(Target(f"scores.{e}", lambda p: _scores().save(p), Scores.load) for e in ("npz", "parquet", "csv")),
    Target("data.npz", lambda p: np.savez(p, **_arrays()), lambda p: data.load_dataset(str(p))),
    *(Target(f"data.{e}", _table, lambda p: data.load_dataset(str(p))) for e in ("csv", "parquet")),
    Target("data.jsonl", _json_lines, lambda p: data.load_dataset(str(p))),
    Target("pictures/train/cat/x.png", _pictures, _read_pictures, beside=True),
    Target("pictures/train/cat/x.jpg", _pictures, _read_pictures, beside=True),
    *(Target(f"calibrator_{m.word}.json", partial(_save_calibrator, m.word), _use_calibrator) for m in CALIBRATORS),
    Target("calibrator_matrix.safetensors", partial(_save_calibrator, "matrix"), _use_calibrator),
    Target(
        "rmd.safetensors",
        lambda p: difficulty.fit("rmd", _features()).save(p),
        _used(difficulty.load, lambda fitted: fitted.score(_features())),
    ),
    *(
        Target(f"trust_{word}.json", partial(_save_trust, word, options), _use_trust, beside=True)
        for word, options in (
            ("mcp", {}),
            ("knn", {}),
            ("combined", {"oracle": "none"}),
            ("steep_slope", {"epochs": 1}),
        )
    ),
    *(
        Target(
            f"sets_{name}.json",
            partial(_save_sets, options),
            _used(sets.load, lambda fitted: fitted(_predictions("test"))),
        )
        for name, options in (("all", {}), ("class", {"by": "class"}), ("column", {"by": "site"}))
    ),
    *(
        Target(f"operating_point_{name}.json", partial(_save_point, options), _used(OperatingPoint.load, _use_point))
        for name, options in (
            ("coverage", {"coverage": 0.8}),
            ("class", {"coverage": 0.8, "per_class": True}),
            ("risks", {"risk": {"error": 0.6, "fpr[cat]": 0.9}}),
        )
    ),
    Target(
        "decisions.json",
        lambda p: decisions.decide(_predictions("test"), [1, 5, 2], capacity=3).rule.save(p),
        _used(decisions.load, lambda rule: rule(_predictions("test"))),
    ),
    Target("watch.jsonl", _watch, _read_watch),
    Target("evaluation.json", lambda p: _evaluation().save(p), _used(Evaluation.load, _shown)),
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
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.read(path)
        return path.read_bytes()


def tried(target: Target, content: bytes, folder: Path) -> bool:
    """Read a file with this content: whether it was read; a crash is raised."""
    path = folder / target.file
    path.parent.mkdir(parents=True, exist_ok=True)
    if target.beside and not path.exists():
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
    by_value = _mutated_json if target.file.endswith(".json") else None
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


ODD: tuple[Any, ...] = (None, True, -1, 0.5, 1e308, 10**400, "x", "", [], [1], {}, {"a": 1})
LEFT_OUT = object()


def changes_by_hand(target: Target, most: int | None = None) -> Iterator[bytes]:
    """The file with each of its fields left out, or replaced by something else; of a list, its first part.

    Args:
        most: only so many of them, always the same.
    """
    lines = seed_of(target).splitlines(keepends=True) if target.file.endswith("l") else [seed_of(target)]
    records = [json.loads(line) for line in lines]
    changes = [
        (k, *change) for k, record in enumerate(records) for change in product(_places(record), (*ODD, LEFT_OUT))
    ]
    if most is not None:
        changes = random.Random(0).sample(changes, min(most, len(changes)))
    for k, place, value in changes:
        new = json.dumps(_with(records[k], place, value)).encode() + b"\n"
        yield b"".join((*lines[:k], new, *lines[k + 1 :]))


def _places(value: Any) -> Iterator[tuple[Any, ...]]:
    for key in list(value)[:40] if isinstance(value, dict) else [0] if isinstance(value, list) and value else []:
        yield (key,)
        yield from ((key, *inner) for inner in _places(value[key]))


def _with(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value at that place."""
    copy = dict(value) if isinstance(value, dict) else list(value)
    key, *inner = place
    if not inner and new is LEFT_OUT:
        del copy[key]
    else:
        copy[key] = _with(copy[key], tuple(inner), new) if inner else new
    return copy


def _mutated_json(whole: bytes, draws: random.Random, _: str) -> bytes:
    return json.dumps(_mutated_value(json.loads(whole), draws)).encode("utf-8", "surrogatepass")


def _mutated_yaml(whole: bytes, draws: random.Random, _: str) -> bytes:
    return yaml.safe_dump(_mutated_value(yaml.safe_load(whole), draws), allow_unicode=True).encode("utf-8", "replace")


COLUMN_FILES = (
    *("predictions.npz", "predictions.parquet", "scores.parquet", "features.npz", "data.npz", "data.parquet"),
    *("multilabel.npz", "multilabel.parquet", "weighted.npz", "weighted.parquet"),
    *("uqlm.parquet", "images.npz", "sketch.npz"),
)
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
