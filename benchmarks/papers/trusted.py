"""Oracles of Luo et al. (2021) on one classifier: its features kept, four losses, clean and spoilt test images.

A classifier is trained; oracles learn on validation data which of its predictions are right. What is measured is kept
in OUT/trust, a file per training, so the tables and figures of that paper share them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.lib.cells import provenance
from benchmarks.lib.grid import SHORT
from benchmarks.lib.items import Study
from benchmarks.lib.sources import Sources
from benchmarks.lib.values import Value
from confide import Dataset, Predictions, Split, files, metrics, shift, trust
from confide.evaluation import TrustValues
from confide.models import Device
from confide.training import Settings, Trained, fit, penultimate, predict

LOSSES = ("binary_cross_entropy", "binary_focal", "tcp", "steep_slope")
BROADCAST = {"binary_cross_entropy, released": "binary_cross_entropy", "binary_focal, released": "binary_focal"}
RANKING = ("fpr95", "aupr_error", "aupr_success", "auroc", "separability_kl")
ALPHAS = (1.0, 2.0, 3.0, 4.0, 5.0)
PREDICTORS = ("mcp", *LOSSES, *BROADCAST, *(f"steep_slope, alpha- {a:g}" for a in ALPHAS))


def rows(study: Study, *, spoilt: bool = False) -> list[dict[str, Any]]:
    """What was measured, by seed, domain and predictor; made where the data is at hand.

    Args:
        spoilt: of trainings that were also shown spoilt images, and oracles with other alpha-; else also of those that
            `benchmarks/papers/trust_table.py --collect` measured on clean ones.
    """
    path = study.folder / "trust" / "rows.json"
    if study.scale == "lite" and not path.exists() and list(path.parent.glob("scores-*.npz")):
        files.write_json(path, from_table(path.parent))
    if study.scale == "lite" and not spoilt and path.exists():
        return list(files.read_json(path)["rows"])
    return [row for path in _spoilt_files(study) for row in files.read_json(path)["rows"]]


def _spoilt_files(study: Study) -> list[Path]:
    """A file per training, made where it is not there and the data is."""
    paths = []
    for dataset, settings in _trainings(study):
        model = settings.model.replace(":", "-")
        path = study.folder / "trust" / f"spoilt-{dataset}-{model}-s{settings.seed}.json"
        if not path.exists() and (dataset in study.data or study.scale == "smoke"):
            began = time.monotonic()
            read = Sources(study.data, study.results.prepared, study.limit).dataset(dataset)
            rows = [{"dataset": dataset, **row} for row in one_classifier(read, settings)]
            origin = {**provenance(), "seconds": {"all": time.monotonic() - began}, "settings": settings.as_dict()}
            files.write_json(path, {"origin": origin, "rows": rows})
        paths += [path] if path.exists() else []
    return paths


def _trainings(study: Study) -> list[tuple[str, Settings]]:
    """(dataset, settings) of every classifier of a study."""
    if study.scale == "smoke":
        return [("fashion-sample", Settings(model="small_cnn", epochs=3, batch_size=64, learning_rate=0.05, seed=0))]
    if study.scale == "lite":
        return [("cifar10", Settings.from_dict({**SHORT, "model": "resnet18", "seed": seed})) for seed in range(3)]
    return [
        (item.dataset, Settings.from_dict({**item.training, "model": item.model, "seed": seed}))
        for item in study.paper
        for seed in range(item.seeds)
    ]


def from_table(folder: Path) -> dict[str, Any]:
    """The same from what `benchmarks/papers/trust_table.py --collect` left in OUT/trust: clean test images only."""
    about = files.read_json(folder / "machine.json")
    rows = []
    for path in sorted(folder.glob("scores-*.npz")):
        seed = int(path.stem.rpartition("-")[2])
        predictions = Predictions.load(folder / f"test-{seed}.parquet")
        columns, _ = files.read_table(path)
        for name in PREDICTORS:
            stored = name.replace(", released", ", broadcast")
            if stored in columns:
                line = columns.get(f"{stored}|threshold")
                order = columns.get(f"{stored}|order")
                trust = TrustValues(columns[stored], None if line is None else float(line), order)
                rows.append({"seed": seed, "domain": "clean", "predictor": name, **measured(predictions, trust)})
    commit = about.get("commit") or provenance()["commit"]
    origin = {"hardware": about["device"], "commit": commit, "command": about["command"], "seconds": {}}
    return {"origin": origin, "rows": rows}


def origin(study: Study) -> list[Mapping[str, Any]]:
    """Commit, hardware and time of the run whose clean images are shown."""
    path = study.folder / "trust" / "rows.json"
    if study.scale == "lite" and path.exists():
        return [files.read_json(path)["origin"]]
    return origin_spoilt(study)


def origin_spoilt(study: Study) -> list[Mapping[str, Any]]:
    """Commit, hardware and time of the trainings that were shown spoilt images."""
    return [files.read_json(path)["origin"] for path in _spoilt_files(study)]


def one_classifier(dataset: Dataset, settings: Settings) -> list[dict[str, Any]]:
    """Train a classifier and its oracles; measure them on clean and spoilt test images."""
    trained = fit(dataset, settings)
    val, features = predict(trained, dataset, "val"), penultimate(trained, dataset, "val")
    oracles = {"mcp": trust.fit("mcp")}
    seed = {"seed": settings.seed}
    oracles |= {word: trust.fit(word, val, features, **seed) for word in LOSSES}
    oracles |= {name: trust.fit(word, val, features, form="released", **seed) for name, word in BROADCAST.items()}
    for alpha in ALPHAS:
        oracles[f"steep_slope, alpha- {alpha:g}"] = trust.fit("steep_slope", val, features, alpha_neg=alpha, **seed)
    rows = []
    for domain, split in domains(trained, dataset.test).items():
        predictions, rows_of_split = predict(trained, split, "test"), penultimate(trained, split, "test")
        for name, oracle in oracles.items():
            values = oracle(predictions, rows_of_split) if name != "mcp" else oracle(predictions)
            trusted = TrustValues.of(torch.as_tensor(values), oracle.threshold, oracle.scale)
            rows.append({"seed": settings.seed, "domain": domain, "predictor": name, **measured(predictions, trusted)})
    return rows


def measured(predictions: Any, trust: TrustValues) -> dict[str, Any]:
    """Ranking, decisions at the predictor's own line, and what the figures show."""
    values: dict[str, Any] = {"accuracy": float(predictions.facts.correct.double().mean())}
    values |= {word: float(getattr(metrics, word)(predictions, score=trust.ranking)) for word in RANKING}
    if trust.threshold is not None:
        values |= {
            word: float(getattr(metrics, word)(predictions, score=trust.values, threshold=trust.threshold))
            for word in ("tpr", "tnr")
        }
    correct = predictions.facts.correct.numpy()
    order = np.argsort(-trust.ranking, kind="stable")
    risks = 1 - np.cumsum(correct[order]) / np.arange(1, len(order) + 1)
    values["risk"] = [float(risks[max(0, round(len(order) * k / 10) - 1)]) for k in range(1, 11)]
    for name, some in (("right", trust.values[correct]), ("wrong", trust.values[~correct])):
        counts = np.histogram(np.clip(some, 0, 1), bins=10, range=(0, 1))[0]
        values[name] = (counts / max(len(some), 1)).tolist()
    return values


def domains(trained: Trained, test: Split) -> dict[str, Split]:
    """Test images as they are, stylised, attacked and out of focus."""
    where = Device.of(trained.settings.device, trained.settings.precision)
    images = torch.from_numpy(np.ascontiguousarray(test.inputs)).to(where.device)
    model = where.place(trained.model).eval()
    mean, std = (
        torch.tensor(values, device=where.device)[:, None, None] / 255
        for values in (trained.preparation.mean, trained.preparation.std)
    )
    word = "recolour" if images.shape[1] == 3 else "fgsm"
    attacked = shift.attack(lambda x: model((x - mean) / std), images, test.labels, word, ids=test.ids)
    images_by_domain = {
        "clean": images,
        "stylised": shift.corrupt(images, "stylised", 3, ids=test.ids),
        "attacked": attacked,
        "defocus_blur": shift.corrupt(images, "defocus_blur", 5, ids=test.ids),
    }
    return {name: Split(pixels.cpu().numpy(), test.labels, test.ids) for name, pixels in images_by_domain.items()}


def name_of(row: Mapping[str, Any]) -> str:
    """The dataset of a row, with its domain where the images are spoilt."""
    dataset = str(row.get("dataset", "cifar10"))
    return dataset if row["domain"] == "clean" else f"{dataset}, {row['domain']}"


def table(
    study: Study, domains: tuple[str, ...], predictors: tuple[str, ...] = PREDICTORS, *, spoilt: bool = False
) -> list[Value]:
    """The numbers of a table, in percent; the dataset's name carries the domain."""
    quantities = ("accuracy", "fpr95", "aupr_error", "aupr_success", "auroc", "tpr", "tnr")
    return [
        Value(name_of(row), row["predictor"], word, row["seed"], 100 * row[word])
        for row in rows(study, spoilt=spoilt)
        if row["domain"] in domains and row["predictor"] in predictors
        for word in quantities
        if row.get(word) is not None
    ]
