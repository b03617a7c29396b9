"""Records and what is joined, read and written of them: streams, frames, files of evidence, pictures, expectations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import confide
from confide import calibrators, difficulty, sets
from confide.calibrators.groups import label_folds
from confide.difficulty.harden import export
from confide.evaluation import TrustFiles, compare, fit_and_compare, read_evidence
from confide.evaluation.compare import holm, mcnemar
from confide.evaluation.gallery import map_picture
from confide.evaluation.seeds import compare_groups
from confide.predictions import Predictions
from confide.records import Dataset, Features, OtherFiles, Provenance, Scores, Split
from confide.results import Evaluation, PromisedRisk
from confide.sets import measure, merged, set_columns
from confide.trust.cross_fitting import augmented
from tests.kept import entries
from tests.kept.edges import or_line


def record_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    pairs = ((0, 0), (1, 4), (4, 1), (5000, 5000), (5001, 5000), (5200, 4801), (10000, 1))
    yield "mcnemar", lambda: [mcnemar(*pair) for pair in pairs]
    yield "holm", lambda: [holm(p) for p in ([0.01, 0.04, 0.03], [0.5, math.nan, 0.02], [], [0.9, 0.8])]
    yield "map", _pictures
    for rows in (7, 40, 160, 1000):
        yield f"stream {rows}", lambda rows=rows: _streamed(rows)
    yield "stream exact", lambda: vars(calibrators.fit_stream("temperature", _shards(), rows=50, exact=True))["values"]
    yield (
        "stream refused",
        lambda: [
            or_line(lambda: calibrators.fit_stream("vector", _shards(), exact=True)),
            or_line(lambda: calibrators.fit_stream("temperature", _shards(), exact=True, by="site")),
            or_line(lambda: calibrators.fit_stream("temperature", iter(_shards()), exact=True)),
            or_line(lambda: calibrators.sample_stream(iter([]))),
        ],
    )
    yield "joined", _joined
    yield "label folds", _label_folds
    yield "choices", _choices
    for word, by in (("lac", None), ("aps", "class"), ("lac", "site"), ("lac", "cluster")):
        yield f"merged {word} {by}", lambda word=word, by=by: _merged(word, by)
    yield "frames", _frames
    yield "scores as confidence", _score_tables
    yield "evidence", _evidence
    yield "hard", _hard
    yield "provenance", _provenance
    yield "scores joined", _scores
    yield "expectations", _expected
    yield (
        "risks",
        lambda: [
            PromisedRisk("error", "error", 0.1, at_least, events, n).rate
            for at_least in (False, True)
            for events, n in ((3, 12), (0, 0), (5, 5))
        ],
    )
    yield (
        "augmented",
        lambda: [
            *augmented(_twice, torch.eye(3)[torch.arange(7) % 3], torch.arange(7) % 3, _noisy, times=2, batch=3)[1:],
        ],
    )
    others = [Predictions(p * entries.predictions().logits, entries.predictions().labels) for p in (0.5, 0.8, 1.4)]
    yield "groups unpaired", lambda: compare_groups(others[:2], others, metrics=["nll", "ece", "accuracy"])
    yield "compared", lambda: [compare(others[0], others[2], metrics="all"), compare(others[0], others[0])]


def _pairs(unit: str | None = None) -> Predictions:
    right = entries.labels("val") == entries.labels("test")
    return Predictions.from_pairs(right, np.linspace(0.05, 0.95, 160), unit=unit, visit=np.arange(160) // 4)


def _label_folds() -> Any:
    plain = entries.predictions()
    renamed = Predictions(plain.logits[:, [2, 0, 3, 1]], torch.tensor([1, 3, 0, 2])[plain.labels], ids=plain.ids)
    records = (
        plain,
        renamed,
        entries.by_unit(),
        _pairs(),
        _pairs("visit"),
        plain.replace(ids=[f"s{k}" for k in range(160)]),
    )
    folds = [label_folds(record, 3, 5, renamed_alike=alike) for record in records for alike in (False, True)]
    return [[fold[:24].tolist(), np.bincount(fold).tolist()] for fold in folds]


def _choices() -> Any:
    words = ["temperature", "histogram"]
    one_visit = entries.predictions().replace(columns={"visit": np.zeros(160)}, unit="visit")
    told = [
        or_line(lambda: calibrators.choose(entries.predictions(), words, folds=3, by="site")),
        or_line(lambda: calibrators.choose(entries.by_unit(), words, folds=3)),
        or_line(lambda: calibrators.choose(_pairs(), ["temperature", "histogram"], folds=3)),
        or_line(lambda: calibrators.choose(entries.predictions().take(np.arange(6)), words, folds=3)),
        or_line(lambda: calibrators.choose(entries.predictions().take(np.arange(5)), words, folds=3)),
        or_line(lambda: calibrators.choose(one_visit, words, folds=3)),
    ]
    return [one if isinstance(one, str) else [one.word, [[c.word, c.score] for c in one.candidates]] for one in told]


def _twice(inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return inputs, 2 * inputs


def _noisy(inputs: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return inputs + torch.randn(inputs.shape, generator=generator)


def _pictures() -> Any:
    draw = np.random.default_rng(0)
    confidence = draw.random((30, 20))
    wrong = (draw.random((30, 20)) < 0.2).astype(float)
    sparse = np.where(draw.random((30, 20)) < 0.1, confidence, np.nan)
    few = np.full((200, 170), np.nan)
    few[::2, ::3] = 0.25
    return [
        map_picture(confidence, wrong),
        map_picture(confidence, wrong, (0, 19)),
        map_picture(sparse, wrong, (29, 3)),
        map_picture(few, np.zeros(few.shape)),
        map_picture(np.full((3, 3), np.nan), np.zeros((3, 3))),
    ]


def _shards() -> list[Predictions]:
    whole = entries.weighted()
    return [whole.take(np.arange(start, min(start + 37, 160))) for start in range(0, 160, 37)]


def _streamed(rows: int) -> Any:
    drawn, total = calibrators.sample_stream(_shards(), rows=rows, seed=3)
    fitted = calibrators.fit_stream("temperature", _shards(), rows=rows, seed=3) if rows > 7 else None
    return [drawn.ids, total, drawn.weights, fitted.temperature if fitted else None]


def _joined() -> Any:
    one, two = (entries.predictions(split).take(np.arange(5)) for split in ("val", "val"))
    plain = calibrators.joined([one, two.replace(ids=np.arange(100, 105))])
    pairs = Predictions.from_pairs([1, 0, 1], [0.5, 0.6, 0.7])
    return {
        "ids": plain.ids,
        "again": calibrators.joined([one, two]).ids,
        "columns": calibrators.joined([one, two.replace(columns={"age": two.columns["age"]})]).columns,
        "pairs": calibrators.joined([pairs, pairs]).facts.confidence,
        "trust": calibrators.joined([one.replace(trust=torch.arange(5.0)), two.replace(trust=torch.ones(5))]).trust,
        "lacking": str(calibrators.joined([one.replace(trust=torch.arange(5.0)), two]).trust),
        "other": [
            or_line(lambda other=other: calibrators.joined([one, other]))
            for other in (pairs, two.replace(split="test"), two.replace(class_names=None), two.replace(unit="age"))
        ],
    }


def _merged(word: str, by: str | None) -> Any:
    found = sets.fit(word, entries.predictions(), 0.8, by=by)
    whole = entries.predictions("test")
    parts = [whole.take(np.arange(0, 70)), whole.take(np.arange(70, 160)), whole.take(np.arange(3))]
    bare = [
        Predictions(part.logits, ids=part.ids, columns=part.columns, class_names=part.class_names) for part in parts
    ]
    return {
        "merged": merged(found, [measure(found, part) for part in parts]),
        "without labels": merged(found, [measure(found, part) for part in bare]),
        "columns": set_columns(found, parts[2]),
    }


def _frames() -> Any:
    class Frame(dict[str, Any]):
        """Columns by name, as a data frame has them."""

    base = {"cat": [0.9, 0.2, 0.6], "dog": [0.1, 0.8, 0.4], "label": ["cat", "cat", "dog"], "site": ["A", "B", "B"]}
    cases: dict[str, dict[str, Any]] = {
        "probs": {"probs": ["cat", "dog"]},
        "logits": {"logits": ["cat", "dog"], "label": "label"},
        "named": {"probs": ["cat", "dog"], "class_names": ["cat", "dog"]},
        "one": {"probs": "cat", "label": "hit"},
        "top": {"prediction": "label", "confidence": "cat", "label": "truth"},
        "pairs": {"correct": "hit", "confidence": "cat"},
        "weight": {"probs": ["cat", "dog"], "weight": "hit2", "id": "site2"},
        "absent": {"probs": ["cat", "cow"]},
    }
    more = {"hit": [1, 0, 1], "hit2": [1, 2, 3], "site2": ["x", "y", "z"], "truth": ["dog", "cat", "dog"]}
    found = {}
    for name, options in cases.items():
        frame = {**base, **{k: v for k, v in more.items() if k in options.values()}}
        record = or_line(lambda frame=frame, options=options: Predictions.from_frame(Frame(frame), **options))
        found[name] = record if isinstance(record, str) else _told(record)
    return found


def _told(record: Predictions) -> Any:
    return {
        "confidence": record.facts.confidence,
        "right": record.facts.right,
        "names": record.class_names,
        "columns": record.columns,
        "weights": record.weights,
        "ids": record.ids,
    }


def _score_tables() -> Any:
    texts = {
        "three": "label,prediction,score\na,a,0.9\nb,c,0.4\nc,c,0.7\n",
        "two": "label,prediction,score\na,a,0.9\nb,a,0.4\n",
        "several": "label,prediction,score,p\na,a,0.9,1\nb,c,0.4,1\nc,c,0.7,1\n",
        "none": "label,prediction,other\na,a,0.9\n",
        "unlabelled": "prediction,score\na,0.9\nb,0.4\nc,0.6\n",
        "judged": "label,prediction,confidence,correct\n0,0,0.9,1\n1,0,0.4,0\n",
        "misjudged": "label,prediction,confidence,correct\n0,0,0.9,1\n1,0,0.4,1\n",
    }
    return {name: entries._read(f"{name}.csv", text) for name, text in texts.items()}


def _evidence() -> Any:
    with TemporaryDirectory() as name:
        folder = Path(name)
        for split in ("val", "test"):
            entries.predictions(split).save(folder / f"{split}.npz")
            rows = Features(
                entries.features(split), entries.labels(split), entries.predictions(split).ids, "drawn", split
            )
            rows.save(folder / f"{split}_rows.npz")
        train = Features(entries.features("train"), entries.labels("train"), np.arange(1000, 1160), "drawn", "train")
        train.save(folder / "train_rows.npz")
        Features(entries.features("train")[:, :3], entries.labels("train"), np.arange(160), "drawn").save(
            folder / "thin.npz"
        )
        test = entries.predictions("test").logits.numpy()
        np.savez(folder / "members.npz", logits=np.stack([test, 0.5 * test, test[:, ::-1]]))
        np.savez(folder / "flat.npz", other=test)
        paths = {"fit": f"{folder}/val.npz", "test": f"{folder}/test.npz"}
        rows = (f"{folder}/val_rows.npz", f"{folder}/test_rows.npz")
        beside = {"features": rows, "reference": f"{folder}/train_rows.npz"}
        cases: dict[str, dict[str, Any]] = {
            "plain": {},
            "features": {"features": rows},
            "reference": beside,
            "members": {"members": (f"{folder}/members.npz",)},
            "files": {"members": (paths["test"], paths["test"])},
            "passes": {"dropout": (paths["test"],)},
            "second": {**beside, "second": (*rows, f"{folder}/train_rows.npz")},
            "one member": {"members": (paths["test"],)},
            "flat": {"members": (f"{folder}/flat.npz",)},
            "thin": {"features": rows, "reference": f"{folder}/thin.npz"},
            "test as reference": {"features": rows, "reference": rows[1]},
            "same": {"test": paths["fit"]},
        }
        only = {"reference": ("knn", "trust_score", "rmd"), "features": ("knn",), "members": ("ensemble",)}
        only |= {"files": ("ensemble",), "passes": ("mc_dropout",), "second": ("rmd",), "plain": ("entropy", "margin")}
        found: dict[str, Any] = {}
        for case, options in cases.items():
            evidence = or_line(lambda options=options: read_evidence(TrustFiles(**{**paths, **options})))
            if isinstance(evidence, str):
                found[case] = evidence.replace(name, "FOLDER")
                continue
            told = fit_and_compare(evidence, only=only[case], intervals=False)
            found[case] = {
                "values": {word: own.values for word, own in told.values.items()},
                "chosen": told.chosen,
                "baseline": dict(told.baseline_tnr),
                "rows": entries.rows(told.evaluation)["rows"],
            }
        return found


def _hard() -> Any:
    images = (np.random.default_rng(0).random((12, 3, 4, 4)) * 255).astype(np.uint8)
    labels, ids = np.arange(12) % 3, np.array([f"s{k:02d}" for k in range(12)])
    scores = Scores(ids, np.random.default_rng(1).normal(size=12), "rmd", {}, labels)
    hard = difficulty.harden(scores, fraction=0.4)
    kinds = {"image": images, "text": [f"text {k}" for k in range(12)], "rows": np.arange(24.0).reshape(12, 2)}
    found: dict[str, Any] = {}
    for kind, inputs in kinds.items():
        dataset = Dataset("drawn", kind, {"test": Split(inputs, labels, ids)}, ("a", "b/c", "ü d"))
        for ending in ("", ".parquet", ".csv"):
            with TemporaryDirectory() as name:
                out = Path(name) / f"hard{ending}"

                def write(out: Path = out, dataset: Dataset = dataset) -> str:
                    export(out, dataset, "test", hard, "card")
                    return ""

                said = or_line(lambda: [write(), write()])
                said = said.replace(name, "FOLDER") if isinstance(said, str) else said
                files = sorted(
                    p.relative_to(name).as_posix() for p in Path(name).rglob("*") if not p.name.startswith(".")
                )
                tables = sorted(Path(name).rglob("*.csv"))
                found[f"{kind}{ending}"] = [said, files, [p.read_text().splitlines() for p in tables]]
    return found


def _provenance() -> Any:
    whole = Provenance(
        "folder", {"a": 1}, "place", versions={"train": "x"}, other_files=OtherFiles(3, ("a.txt",)),
        image_size=(8, 9), split_seed=0, classes_without_samples={"test": ("ant",)}, fingerprint="f",
    )  # fmt: skip
    again = Provenance.from_dict({**whole.as_dict(), "unknown": 1})
    return [whole.as_dict(), Provenance().as_dict(), again == whole, again.as_dict()]


def _scores() -> Any:
    first = Scores(np.array(["a", "b"]), np.array([1.0, 2.0]), "rmd", {}, np.array([0, 1]), {"x": np.arange(2)})
    number = Scores(np.array([3, 4]), np.array([3.0, 4.0]), "rmd", {}, None, {"x": np.arange(2), "y": np.arange(2)})
    joined = Scores.joined([first, number])
    return {
        "joined": [joined.ids, joined.values, joined.labels, joined.columns],
        "labels": Scores.joined([first, Scores(np.array(["c"]), np.ones(1), "rmd", {}, np.array([2]))]).labels,
        "alone": Scores.joined([first]) is first,
        "refused": [
            or_line(lambda: Scores.joined([first, Scores(np.array(["c"]), np.ones(1), "md")])),
            or_line(lambda: Scores.joined([])),
            or_line(lambda: Scores.joined([first, first])),
        ],
        "of": joined.of(["4", "a"]),
    }


def _expected() -> Any:
    evaluation = confide.evaluate(entries.predictions(), by="site")
    asked = (
        "accuracy >= 0.9",
        "ece < 0.05",
        "nll <= 10",
        "accuracy[site=north] > 0.99",
        "ece <= 0.102",
        "auroc >= 0.8",
    )
    told = {text: [[str(b) for b in evaluation.expect(text, surely=sure)] for sure in (False, True)] for text in asked}
    saved = Evaluation.from_dict(evaluation.to_dict())
    wrong = [or_line(lambda text=text: evaluation.expect(text)) for text in ("accuracy", "x > 1", "ece > many", "")]
    return {
        "told": told,
        "wrong": wrong,
        "same": saved.to_dict() == evaluation.to_dict(),
        "html": len(evaluation._repr_html_()) > 100,
        "find": [
            or_line(lambda: str(evaluation.find("accuracy", group="site=south"))),
            or_line(lambda: str(evaluation.find("x"))),
        ],
        "columns": [[c.word for c in evaluation.columns(table)] for table in ("metrics", "models")],
    }
