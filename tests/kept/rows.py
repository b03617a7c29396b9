"""Features, scores and ids of files: what is read of them, what stands for what is lacking, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from confide.files import formats
from confide.records import Features, FeatureSource, Scores, as_numbers, class_indices, rows_of
from tests.kept.edges import or_line

VALUES = np.arange(8.0).reshape(4, 2)


def row_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    tables: dict[str, dict[str, Any]] = {
        "bare": {"features": VALUES},
        "embeddings": {"embeddings": VALUES},
        "full": {"features": VALUES, "id": np.array(list("abcd")), "label": np.array([0, 1, 1, -1])},
        "ids": {"features": VALUES, "ids": np.array([3, 1, 2, 0]), "labels": np.array([0.0, 1.0, 2.0, 1.0])},
        "fractions": {"features": VALUES, "label": np.array([0.5, 1, 2, 1])},
        "words": {"features": VALUES, "label": np.array(list("abca"))},
        "flags": {"features": VALUES, "label": np.array([True, False, True, True])},
        "flat": {"features": np.arange(4.0)},
        "none": {"other": VALUES},
        "twice": {"features": VALUES, "id": np.array(list("aacd"))},
    }
    for name, columns in tables.items():
        yield f"features {name}", lambda c=columns: _features(c, {})
    beside: dict[str, dict[str, Any]] = {
        "given": {"ids": ["w", "x", "y", "z"], "labels": [1, 0, 1, 0]},
        "few ids": {"ids": ["w", "x", "y"]},
        "few labels": {"labels": [1, 0, 1]},
        "word labels": {"labels": ["1", "0", "1", "0"]},
    }
    for name, options in beside.items():
        yield f"features beside {name}", lambda o=options: _features({"features": VALUES}, o)
        yield f"features over {name}", lambda o=options: _features(tables["full"], o)
    abouts = (
        {},
        {"extractor": "net", "split": "val"},
        {"split": ""},
        {"options": '{"size": 3}'},
        {"options": "[1]"},
        {"options": "{"},
    )
    yield "features about", lambda: [_features(tables["full"], {}, about) for about in abouts]
    shapes: tuple[tuple[Any, Any, Any], ...] = (
        (VALUES, np.zeros(4, int), np.arange(4)),
        (VALUES, np.zeros(3, int), np.arange(4)),
        (VALUES, np.zeros(4, int), np.arange(3)),
        (VALUES[0], np.zeros(2, int), np.arange(2)),
        (VALUES, np.zeros((4, 1), int), np.arange(4)),
        ([[1, 2], [3]], np.zeros(2, int), np.arange(2)),
        (VALUES, np.array([0.5, 1, 1, 1]), np.arange(4)),
        (VALUES, np.array([0.0, 1, 1, 1]), np.arange(4)),
    )
    yield "features made", lambda: [or_line(lambda s=s: _shown(Features(*s, "net"))) for s in shapes]
    yield "sources", _sources
    scored: dict[str, dict[str, Any]] = {
        "bare": {"score": np.arange(3.0)},
        "full": {
            "id": np.array(list("abc")),
            "label": np.array([0, 1, 0]),
            "score": np.array([1, 2, 3]),
            "age": np.arange(3),
        },
        "ids": {"ids": np.array([5, 6, 7]), "score": np.arange(3.0)},
        "both": {"id": np.array(list("abc")), "ids": np.array([5, 6, 7]), "score": np.arange(3.0)},
        "words": {"score": np.array(list("abc"))},
        "digits": {"score": np.array(["1", "2", "3"])},
        "none": {"id": np.arange(3)},
        "twice": {"id": np.array([1, 1, 2]), "score": np.arange(3.0)},
        "labels": {"label": np.array([0.5, 1, 2]), "score": np.arange(3.0)},
    }
    for name, columns in scored.items():
        yield f"scores {name}", lambda c=columns: _scores(c, {})
    notes = ({"method": "rmd", "options": '{"k": 3}', "notes": '["few", 5]'}, {"notes": "few"}, {"options": "5"})
    yield "scores about", lambda: [_scores(scored["full"], about) for about in notes]
    yield "written", _written
    known: dict[str, Any] = {
        "numbers": np.array([5, 3, 9]),
        "words": np.array(["5", "3", "9"]),
        "none": np.array([], dtype=np.int64),
    }
    asked: tuple[Any, ...] = ([3, 5], ["3", "9"], [], [4], [3, 10, 2], [9, 9])
    yield (
        "rows",
        lambda: [or_line(lambda i=i, k=k: rows_of(i, k, "rows").tolist()) for i in asked for k in known.values()],
    )
    kinds = ([1, 2], [1.0, 2.0], [1.5], ["1"], [True], [], [-1], [np.nan])
    yield "indices", lambda: [or_line(lambda v=v: class_indices(v, "here").tolist()) for v in kinds]
    yield (
        "numbers",
        lambda: [or_line(lambda v=v: as_numbers(np.array(v), "it").tolist()) for v in ([1, 2], ["1.5"], ["a"], [None])],
    )


def _shown(rows: Features) -> Any:
    return [
        np.asarray(rows.values[:]),
        rows.labels,
        [str(i) for i in rows.ids],
        rows.extractor,
        rows.split,
        dict(rows.options),
        rows.dim,
        len(rows),
        vars(rows.source),
    ]


def _features(columns: dict[str, Any], options: dict[str, Any], about: dict[str, str] | None = None) -> Any:
    with TemporaryDirectory() as name:
        path = Path(name) / "rows.npz"
        formats.write_table(path, columns, about or {})
        found = or_line(lambda: _shown(Features.load(path, **options)))
        return found.replace(name, "FOLDER") if isinstance(found, str) else found


def _scores(columns: dict[str, Any], about: dict[str, str]) -> Any:
    with TemporaryDirectory() as name:
        path = Path(name) / "scores.npz"
        formats.write_table(path, columns, about)
        found = or_line(lambda: vars(Scores.load(path)))
        return found.replace(name, "FOLDER") if isinstance(found, str) else found


def _sources() -> Any:
    told = (
        FeatureSource(),
        FeatureSource("net", {"size": 3}),
        FeatureSource("net", {}, "val", ("a", "b")),
        FeatureSource(None, {"size": 3}, "val"),
    )
    rows = [
        Features(VALUES, np.zeros(4, int), np.arange(4), e, s)
        for e in ("", "unknown", "net")
        for s in (None, "", "val")
    ]
    return [
        [own.as_record() for own in told],
        [FeatureSource.from_record(own.as_record()) == own for own in told],
        [vars(own.source) for own in rows],
        [
            or_line(lambda r=r: vars(FeatureSource.from_record(r)))
            for r in ({"extractor": 5}, {"class_names": ["a"], "x": 1})
        ],
    ]


def _written() -> Any:
    with TemporaryDirectory() as name:
        told = []
        for labels in (None, np.array([0, 1, 0])):
            columns = {"age": np.arange(3), "id": np.ones(3), "score": np.zeros(3)}
            scores = Scores(np.array(list("abc")), np.arange(3.0), "rmd", {"k": 3}, labels, columns, notes=("few",))
            for ending in (".npz", ".csv", ".parquet"):
                scores.save(Path(name) / f"scores{ending}")
                told.append(vars(Scores.load(Path(name) / f"scores{ending}")))
        rows = Features(VALUES, np.zeros(4, int), np.arange(4), "net", "val", {"size": 3})
        for ending in (".npz", ".parquet", ".csv"):
            path = Path(name) / f"rows{ending}"
            said = or_line(lambda path=path: rows.save(path))
            told.append(said.replace(name, "FOLDER") if said else _shown(Features.load(path)))
        return told
