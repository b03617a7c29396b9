"""What lies where: the files of a run folder, or of scores or predictions alone, that the explorer shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confide import store
from confide.checks import InputError
from confide.files import formats
from confide.files.columns import column_roles

SPLIT_ORDER = ("test", "val", "promise", "train")
"""Splits in the order they are shown: what a model is judged on comes first."""
RAW = "raw"


@dataclass(frozen=True)
class Missing:
    """Something the explorer could show but the folder lacks: what, why, and the command that makes it."""

    what: str
    why: str
    command: str


@dataclass(frozen=True)
class DataSource:
    """How to load the pictures or texts again: word or path, options, seed."""

    source: str
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True)
class Layout:
    """Files by what they hold; `path` is what was opened, `tags` where tags are kept."""

    path: Path
    title: str
    tags: Path
    scores: Mapping[str, Path] = field(default_factory=dict)
    predictions: Mapping[str, Mapping[str, Path]] = field(default_factory=dict)  # model -> split -> file
    calibrators: Mapping[str, Mapping[str, Path]] = field(default_factory=dict)  # model -> stage -> file
    trust: Mapping[str, Mapping[str, Path]] = field(default_factory=dict)  # model -> split -> file
    trust_name: str = ""
    features: Mapping[str, Path] = field(default_factory=dict)
    history: Mapping[str, Path] = field(default_factory=dict)  # model -> folder
    columns: Path | None = None
    class_names: tuple[str, ...] = ()
    data: DataSource | None = None
    rerun: str = ""
    missing: tuple[Missing, ...] = ()

    @property
    def splits(self) -> tuple[str, ...]:
        """All splits that a file speaks of, those with predictions first."""
        found = {s for by_split in self.predictions.values() for s in by_split} | set(self.scores)
        known = [s for s in SPLIT_ORDER if s in found]
        return (*known, *sorted(found - set(known)))

    def stages(self, model: str) -> tuple[str, ...]:
        """`raw`, then the calibrators of a model."""
        return (RAW, *self.calibrators.get(model, {}))


def open_layout(
    path: str | Path, *, data: str | None = None, features: str | None = None, columns: str | None = None
) -> Layout:
    """Look at a run folder, or at a file of scores or predictions.

    Args:
        data: dataset word or path to take pictures and texts from, instead of the one the run names.
        features: of a file alone, its features; of a run folder, those of the training split.
        columns: a table with `id` and further columns to filter by.
    """
    place = Path(path)
    if not place.exists():
        raise InputError(f"{place} must be a run folder or a file of scores or predictions, but it does not exist")
    found = _folder(place) if place.is_dir() and not _is_scores_folder(place) else _file(place)
    changes: dict[str, Any] = {}
    if data is not None:
        old = found.data
        changes["data"] = DataSource(data, old.options if old and old.source == data else {}, old.seed if old else 0)
    if features is not None:
        changes["features"] = {**found.features, "train" if place.is_dir() else found.splits[0]: Path(features)}
    if columns is not None:
        changes["columns"] = Path(columns)
    return Layout(**{**found.__dict__, **changes})


def _is_scores_folder(place: Path) -> bool:
    return not (place / "manifest.json").exists() and any(place.glob("*.parquet"))


def _file(place: Path) -> Layout:
    """Scores (a file, or a folder of parquet files) or predictions alone."""
    names = formats.column_names(place)
    tags = place.with_name(place.name + ".tags.sqlite")
    common = {"path": place, "title": place.name, "tags": tags}
    if "score" in names:
        method = "confide score DATA --method rmd -o scores.parquet"
        absent = Missing("Predictions", "A file of scores holds no predictions; open a run folder.", "confide run")
        verdicts = Missing("Verdicts", "These scores were made without a look at the labels.", method)
        missing = (absent,) if "verdict" in names else (absent, verdicts)
        return Layout(**common, scores={"samples": place}, missing=missing)  # type: ignore[arg-type]
    if column_roles(names, str(place)).are_predictions:
        absent = Missing("Difficulty", "A file of predictions holds no difficulty.", "confide score DATA")
        model = place.name.split(".")[0]
        return Layout(**common, predictions={model: {"samples": place}}, missing=(absent,))  # type: ignore[arg-type]
    raise InputError(
        f"{place} must hold scores (column 'score') or predictions ('logits', 'probs', or 'pred_label' and "
        f"'confidence'), got {', '.join(names[:8]) or 'no column'}; rename the column, or rewrite predictions with "
        f"confide.Predictions.load({place.name!r}).save('{place.stem}.parquet')"
    )


def _folder(place: Path) -> Layout:
    """A run folder, finished or not."""
    manifest = _manifest(place)
    config: dict[str, Any] = dict(manifest.config)
    note = formats.read_json(place / "data.json") if (place / "data.json").exists() else {}
    models = [c["name"] for c in config.get("losses", [])]
    said = {p.stem: p for p in sorted((place / "predictions").glob("*.parquet"))}
    predictions = _by_model(said, models)
    scores = {p.stem: p for p in sorted((place / "scores").glob("*.parquet"))}
    if not predictions and not scores:
        raise InputError(
            f"run folder {place} must hold predictions/ or scores/, but neither is there yet; "
            f"finish it with: {_rerun(place)}"
        )
    trusts = [c["name"] for c in config.get("trust", [])]
    histories = {m: place / "models" / m / "history" for m in predictions}
    return Layout(
        path=place,
        title=config.get("title") or note.get("name") or place.name,
        tags=place / "tags.sqlite",
        scores=scores,
        predictions=predictions,
        calibrators={m: _calibrators(place, m, config) for m in predictions},
        trust={m: _trust(place, m, trusts[:1]) for m in predictions},
        trust_name=trusts[0] if trusts else "",
        features={p.stem: p for p in sorted((place / "features").glob("*.npz"))},
        history={m: p for m, p in histories.items() if any(p.glob("*.parquet"))},
        class_names=tuple(str(name) for name in note.get("class_names", ())),
        data=_data(config, note),
        rerun=_rerun(place),
        missing=_missing(place, predictions, scores, models),
    )


def _manifest(place: Path) -> store.Manifest:
    """The manifest of a run folder; an empty one where there is none, but files that a run leaves."""
    if not store.RunPaths(place).manifest.exists():
        if (place / "predictions").is_dir() or (place / "scores").is_dir():
            return store.Manifest()
        raise InputError(
            f"{place} must be a run folder, but it has no manifest.json; make one with: confide demo --out {place}"
        )
    return store.read_manifest(place)


def _by_model(said: Mapping[str, Path], models: list[str]) -> dict[str, dict[str, Path]]:
    """`model-split` by model and split; the config knows the models, else the last hyphen divides."""
    found: dict[str, dict[str, Path]] = {}
    for stem, path in said.items():
        owners = [m for m in models if stem.startswith(m + "-")]
        model = max(owners, key=len) if owners else stem.rpartition("-")[0] or stem
        found.setdefault(model, {})[stem[len(model) + 1 :] or "samples"] = path
    order = [m for m in models if m in found] + [m for m in found if m not in models]
    return {m: found[m] for m in order}


def _calibrators(place: Path, model: str, config: Mapping[str, Any]) -> dict[str, Path]:
    names = [c["name"] for c in config.get("calibrators", [])]
    paths = {name: place / "calibrators" / f"{model}-{name}.json" for name in names}
    return {name: path for name, path in paths.items() if path.exists()}


def _trust(place: Path, model: str, names: list[str]) -> dict[str, Path]:
    if not names:
        return {}
    prefix = f"{model}-{names[0]}-"
    return {p.stem[len(prefix) :]: p for p in sorted((place / "trust").glob("*.parquet")) if p.stem.startswith(prefix)}


def _data(config: Mapping[str, Any], note: Mapping[str, Any]) -> DataSource | None:
    if not config.get("data"):
        return None
    # Where the run found it, should the word have been a path relative to another folder.
    where = note.get("provenance", {}).get("where")
    source = config["data"]
    if where and not Path(source).exists() and Path(str(where)).exists():
        source = str(where)
    return DataSource(source, dict(config.get("data_options") or {}), int(config.get("seed", 0)))


def _rerun(place: Path) -> str:
    return f"confide run {place / 'config.yaml'} --out {place}"


def _missing(
    place: Path, predictions: Mapping[str, Any], scores: Mapping[str, Path], models: list[str]
) -> tuple[Missing, ...]:
    missing = []
    if not predictions:
        missing.append(Missing("Predictions", "No model of this run has predicted yet.", _rerun(place)))
    elif absent := [m for m in models if m not in predictions]:
        missing.append(Missing("Models", f"The run stopped before {', '.join(absent)}.", _rerun(place)))
    if not scores:
        missing.append(Missing("Difficulty", "The run stopped before its samples were scored.", _rerun(place)))
    return tuple(missing)
