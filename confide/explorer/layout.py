"""Which files the explorer shows: those of a run folder, or one file of scores or predictions alone."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from confide.checks import InputError
from confide.files import formats
from confide.files.columns import column_roles
from confide.files.formats import reading
from confide.results import RAW
from confide.store import DataNote, Manifest, RunPaths, read_manifest, seed_name
from confide.types import JsonObject, Options

SPLIT_ORDER = ("test", "val", "promise", "train")
"""Splits in the order they are shown: what a model is judged on comes first."""


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
    options: Options = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True)
class Layout:
    """Files by what they hold; `path` is what was opened, `tags` where tags are kept, `map` where their map is.

    Example:
        >>> from pathlib import Path
        >>> layout = Layout(path=Path("run"), title="run", tags=Path("run/tags.sqlite"),
        ...     scores={"train": Path("a.parquet")}, predictions={"focal": {"test": Path("b.parquet")}})
        >>> layout.splits
        ('test', 'train')
        >>> layout.stages("focal")
        ('raw',)
    """

    path: Path
    title: str
    tags: Path
    scores: Mapping[str, Path] = field(default_factory=dict)
    predictions: Mapping[str, Mapping[str, Path]] = field(default_factory=dict)  # model -> split -> file
    calibrators: Mapping[str, Mapping[str, Path]] = field(default_factory=dict)  # model -> stage -> file
    trust: Mapping[str, Mapping[str, Path]] = field(default_factory=dict)  # model -> split -> file
    trust_name: str = ""
    features: Mapping[str, Path] = field(default_factory=dict)
    difficulty: Path | None = None  # fitted on the training split
    predicted_class_scores: Path | None = None  # known without labels, what a calibrator may go by
    history: Mapping[str, Path] = field(default_factory=dict)  # model -> folder
    columns: Path | None = None
    class_names: tuple[str, ...] = ()
    data: DataSource | Missing | None = None
    rerun: str = ""
    map: Path = Path("map.npz")
    evaluation: Path | None = None
    missing: tuple[Missing, ...] = ()

    @property
    def splits(self) -> tuple[str, ...]:
        """All splits that a file is of, what a model is judged on first."""
        names = {split for by_split in self.predictions.values() for split in by_split} | set(self.scores)
        known = [split for split in SPLIT_ORDER if split in names]
        return (*known, *sorted(names - set(known)))

    def stages(self, model: str) -> tuple[str, ...]:
        """`raw`, then the calibrators of a model."""
        return (RAW, *self.calibrators.get(model, {}))

    def opening_stage(self, model: str) -> str:
        """The stage to look at first, the one that the report speaks of: the first calibrator where there is one."""
        return next(iter(self.calibrators.get(model, {})), RAW)


def open_layout(
    path: str | Path, *, data: str | None = None, features: str | None = None, columns: str | None = None
) -> Layout:
    """The files to show of a run folder, or of a file of scores or predictions.

    Args:
        path: a run folder, finished or not, or a file; a folder of parquet files is read as one file of scores, one
            of predictions in shards has a split a shard.
        data: dataset word or path to take pictures and texts from. Default: the one the run names, where this user
            made the run; one that someone else's folder names is not opened.
        features: of a file alone, its features; of a run folder, those of the training split.
        columns: a table with `id` and further columns to filter by.

    Returns:
        The layout, for `serve` and `export_tags`; nothing is read but names.

    Raises:
        InputError: where the path holds neither scores nor predictions.

    Example:
        >>> import torch
        >>> from confide.explorer import open_layout
        >>> confide.Predictions(torch.eye(3), torch.arange(3)).save("val.parquet")
        >>> open_layout("val.parquet").predictions["val"]["samples"].name
        'val.parquet'
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path} must be a run folder or a file of scores or predictions, but it does not exist")
    layout = _shards_layout(path) if path.is_dir() and _is_alone(path) else None
    layout = layout or (_folder_layout(path) if path.is_dir() and not _is_scores_folder(path) else _file_layout(path))
    if data is not None:
        run = layout.data if isinstance(layout.data, DataSource) else DataSource("")
        options = run.options if run.source == data else {}
        layout = replace(layout, data=DataSource(data, options, run.seed))
    if features is not None:
        split = "train" if path.is_dir() else layout.splits[0]
        layout = replace(layout, features={**layout.features, split: Path(features)})
    return layout if columns is None else replace(layout, columns=Path(columns))


# A file alone.


def _is_alone(path: Path) -> bool:
    """Whether a folder is no run's."""
    return not (RunPaths(path).manifest.exists() or (path / "predictions").is_dir() or (path / "scores").is_dir())


def _is_scores_folder(path: Path) -> bool:
    return not RunPaths(path).manifest.exists() and any(path.glob("*.parquet"))


def _shards_layout(folder: Path) -> Layout | None:
    """A folder of predictions in shards, each a split by the name of its file; None where the first holds none."""
    from confide.evaluation.streaming import shard_paths  # brings torch, which names of files need not

    try:
        shards = shard_paths(folder)
    except InputError:
        return None  # told as a folder that is no run
    first, beside = _file_layout(shards[0]), folder.with_name
    if not first.predictions:
        return None
    return replace(
        first,
        path=folder,
        title=folder.name,
        tags=beside(folder.name + ".tags.sqlite"),
        map=beside(folder.name + ".map.npz"),
        predictions={folder.name: {path.stem: path for path in shards}},
    )


def _file_layout(path: Path) -> Layout:
    """Scores (a file, or a folder of parquet files) or predictions alone."""
    with reading(path):
        names = formats.column_names(path)
    beside = path.with_name
    layout = Layout(
        path=path, title=path.name, tags=beside(path.name + ".tags.sqlite"), map=beside(path.name + ".map.npz")
    )
    if "score" in names:
        method = "confide score DATA --method rmd -o scores.parquet"
        absent = Missing("Predictions", "A file of scores holds no predictions; open a run folder.", "confide run")
        verdicts = Missing("Verdicts", "These scores were made without a look at the labels.", method)
        missing = (absent,) if "verdict" in names else (absent, verdicts)
        return replace(layout, scores={"samples": path}, missing=missing)
    if column_roles(names, str(path)).are_predictions:
        absent = Missing("Difficulty", "A file of predictions holds no difficulty.", "confide score DATA")
        model = path.name.split(".")[0]
        return replace(layout, predictions={model: {"samples": path}}, missing=(absent,))
    raise InputError(
        f"{path} must hold scores (column 'score') or predictions ('logits', 'probs', or 'pred_label' and "
        f"'confidence'), got {', '.join(names[:8]) or 'no column'}; rename the column, or rewrite predictions with "
        f"confide.Predictions.load({path.name!r}).save('{path.stem}.parquet')"
    )


# A run folder, finished or not.


def _folder_layout(folder: Path) -> Layout:
    paths = RunPaths(folder)
    with reading(paths.manifest):
        manifest = _manifest(folder)
        config = manifest.config
        losses, calibrators, trust = (_names(config, family) for family in ("losses", "calibrators", "trust"))
        models = [seed_name(loss, int(seed)) for loss in losses for seed in config.get("seeds") or ()] or losses
        data = _data(manifest, folder)
    with reading(paths.data):
        note = DataNote.load(paths.data) if paths.data.exists() else DataNote("")
    predictions = _predictions(paths, models)
    scores = paths.scored_splits()
    if not predictions and not scores:
        raise InputError(
            f"run folder {folder} must hold predictions/ or scores/, but neither is there yet; "
            f"finish it with: {paths.finish_command}"
        )
    predicted_class_scores = paths.existing(paths.scores("predicted_class"))
    histories = {model: paths.history(model) for model in predictions}
    return Layout(
        path=folder,
        title=str(config.get("title") or note.name or folder.name),
        tags=paths.tags,
        map=paths.map,
        evaluation=paths.evaluation if paths.evaluation.exists() else None,
        scores=scores,
        predictions=predictions,
        calibrators={
            model: {name: path for name in calibrators if (path := paths.calibrator(model, name)).exists()}
            for model in predictions
        },
        trust={
            model: {split: path for split in by_split if (path := paths.trust_values(model, trust[0], split)).exists()}
            for model, by_split in predictions.items()
        }
        if trust
        else {},
        trust_name=trust[0] if trust else "",
        features={path.stem: path for path in sorted(paths.features("*").parent.glob("*.npz"))},
        difficulty=paths.difficulty if paths.difficulty.exists() else None,
        predicted_class_scores=predicted_class_scores if predicted_class_scores.exists() else None,
        history={model: path for model, path in histories.items() if any(path.glob("*.parquet"))},
        class_names=note.class_names,
        data=data,
        rerun=paths.finish_command,
        missing=_missing(paths, predictions, scores, models),
    )


def _manifest(folder: Path) -> Manifest:
    """The manifest of a run folder; an empty one where there is none, but files that a run leaves."""
    if not RunPaths(folder).manifest.exists():
        if (folder / "predictions").is_dir() or (folder / "scores").is_dir():
            return Manifest()
        raise InputError(
            f"{folder} must be a run folder, but it has no manifest.json; make one with: confide demo --out {folder}"
        )
    return read_manifest(folder)


def _names(config: JsonObject, family: str) -> list[str]:
    names = [choice["name"] for choice in config.get(family, [])]
    for name in names:
        if not isinstance(name, str) or not name.isprintable() or set(name) & set("/\\") or len(name) > 200:
            raise ValueError(f"names of {family} must be plain words, got {name!r}")
    return names


def _predictions(paths: RunPaths, models: list[str]) -> dict[str, dict[str, Path]]:
    """Files by model and split; the config knows the models, without one the last hyphen of a name divides."""
    by_model: dict[str, dict[str, Path]] = {}
    for path in sorted(paths.predictions("*", "*").parent.glob("*.parquet")):
        owners = [model for model in models if path.stem.startswith(model + "-")]
        model = max(owners, key=len) if owners else path.stem.rpartition("-")[0] or path.stem
        by_model.setdefault(model, {})[path.stem[len(model) + 1 :] or "samples"] = path
    order = [model for model in models if model in by_model] + [model for model in by_model if model not in models]
    return {model: by_model[model] for model in order}


def _data(manifest: Manifest, folder: Path) -> DataSource | Missing | None:
    """The dataset the run names, where this user made the run; a folder of someone else may name anything."""
    config = manifest.config
    if not config.get("data"):
        return None
    source = str(config["data"])
    if not manifest.signed_here:
        why = f"the run folder names the dataset '{source}', but it was not made by you on this machine"
        return Missing("Pictures", why, shlex.join(["confide", "explore", str(folder), "--data", source]))
    # Where the run found it, should the word have been a path relative to another folder.
    stage = manifest.stages.get("data")
    where = "" if stage is None else DataNote.from_dict(stage.uses.get("note", {})).provenance.where
    if where and not Path(source).exists() and Path(where).exists():
        source = where
    return DataSource(source, dict(config.get("data_options") or {}), int(config.get("seed", 0)))


def _missing(
    paths: RunPaths, predictions: Collection[str], scores: Mapping[str, Path], models: list[str]
) -> tuple[Missing, ...]:
    missing = []
    if not predictions:
        missing.append(Missing("Predictions", "No model of this run has predicted yet.", paths.finish_command))
    elif absent := [model for model in models if model not in predictions]:
        missing.append(Missing("Models", f"The run stopped before {', '.join(absent)}.", paths.finish_command))
    if not scores:
        missing.append(Missing("Difficulty", "The run stopped before its samples were scored.", paths.finish_command))
    return tuple(missing)
