"""The whole story on one page: the river from data to report.

Every stage writes its record to the run folder. A second call skips what is done, a killed run goes on where it was,
and changing one option makes again only what depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from confide import calibrators, data, difficulty, features, training, trust
from confide.calibrators import DIFFICULTY
from confide.conclusion import PROMISE, Judged, calibrator_file, conclude, draw, judge
from confide.config import Choice, Config, load_config
from confide.core import files
from confide.core.predictions import Predictions
from confide.core.records import Dataset, Features, Scores
from confide.core.results import Evaluation
from confide.store import RunFolder


@dataclass(frozen=True)
class Outcome:
    """Where a run left its results: the folder, the evaluation, the report, and the stages made this time."""

    folder: Path
    evaluation: Evaluation
    report: Path
    made: tuple[str, ...]


def run(config: str | Path | Mapping[str, Any] | Config, out: str | Path | None = None, **changes: Any) -> Outcome:
    """Run an experiment from a config (file, recipe, mapping or Config), resumable in its run folder.

    Args:
        out: the run folder; `runs/<title>` when left out.
        changes: fields of the config to change.
    """
    plan = load_config(config, **changes)
    settings = {choice.name: settings_of(plan, choice) for choice in plan.losses}
    with RunFolder(out or Path("runs") / (plan.title or "run"), plan.as_dict(), plan.seed) as folder:
        dataset = open_data(folder, plan)
        rows = {split: extract(folder, plan, dataset, split) for split in dataset.splits}
        scores = {split: score(folder, plan, rows, split) for split in ("train", "test")}
        for kind in {training.bands_of(one) for one in settings.values()} - {""}:
            scores[kind] = bands(kind, folder, plan, rows)
        hardness = unlabelled(folder, plan, rows) if any(map(by_difficulty, plan.calibrators)) else None
        judged: dict[str, Judged] = {}
        for choice in plan.losses:
            said = train(folder, choice, settings[choice.name], dataset, scores)
            trusted = believe(folder, plan, choice, said, rows)
            for stage, spoken in calibrate(folder, plan, choice, said, hardness).items():
                believed = trusted if stage == "raw" else {}
                judged[f"{choice.name}/{stage}"] = judge(folder, plan, choice, stage, spoken, scores["test"], believed)
        verdict = conclude(folder, plan, dataset, judged, scores["test"])
        return Outcome(folder.path, verdict, draw(folder, verdict), tuple(folder.redone))


def settings_of(plan: Config, choice: Choice) -> training.Settings:
    """Training settings of one loss; unknown options are refused here, before any work."""
    chosen = {"loss": choice.word, "loss_options": dict(choice.options), "seed": plan.seed}
    return training.Settings.from_dict({**plan.training, **chosen})


def open_data(folder: RunFolder, plan: Config) -> Dataset:
    """The dataset with a part of val set apart for promises, and a note of where it came from."""
    dataset = data.load_dataset(plan.data, seed=plan.seed, **plan.data_options)
    if plan.promise:
        parts = data.cut(dataset.val, dataset.num_classes, {PROMISE: plan.promise}, plan.seed)
        dataset = replace(dataset, splits={**dataset.splits, "val": parts["train"], PROMISE: parts[PROMISE]})
    note = {
        "name": dataset.name,
        "class_names": list(dataset.class_names),
        "sizes": {name: len(split) for name, split in dataset.splits.items()},
        "provenance": dict(dataset.provenance),
        "set_aside": [{"id": i, "reason": reason} for i, reason in dataset.set_aside],
    }
    folder.stage(
        "data",
        uses={"data": plan.data, "options": dict(plan.data_options), "seed": plan.seed, "note": note},
        file="data.json",
        make=lambda: note,
        write=lambda record, path: files.write_json(path, record),
        read=files.read_json,
    )
    files.write_text(folder.path / "config.yaml", yaml.safe_dump(files.plain(plan.as_dict()), sort_keys=False))
    return dataset


def extract(folder: RunFolder, plan: Config, dataset: Dataset, split: str) -> Features:
    """Features of one split."""
    word = features.usual(dataset) if plan.features.word == "auto" else plan.features.word
    return folder.stage(
        f"features:{split}",
        uses={"features": word, **plan.features.options},
        after=("data",),
        file=f"features/{split}.npz",
        make=lambda: features.extract(word, dataset, split, **plan.features.options),
        write=Features.save,
        read=Features.load,
    )


def score(folder: RunFolder, plan: Config, rows: Mapping[str, Features], split: str) -> Scores:
    """Difficulty of one split, by a model fitted on the training split; on test also which labels look wrong."""

    def make() -> Scores:
        fitted = difficulty.fit(plan.difficulty.word, rows["train"], **plan.difficulty.options)
        scores = fitted.score(rows[split])
        if split != "test":
            return scores
        return difficulty.with_verdicts(scores, difficulty.verdicts(rows[split], scores=scores))

    return folder.stage(
        f"difficulty:{split}",
        uses={"difficulty": plan.difficulty.word, **plan.difficulty.options},
        after=("features:train", f"features:{split}"),
        file=f"scores/{split}.parquet",
        make=make,
        write=Scores.save,
        read=Scores.load,
    )


def bands(kind: str, folder: RunFolder, plan: Config, rows: Mapping[str, Features]) -> Scores:
    """The scores that bands are made of."""
    return folder.stage(
        f"difficulty:{kind}",
        uses={"difficulty": plan.difficulty.word, **plan.difficulty.options},
        after=("features:train", "features:val"),
        file=f"scores/{kind}.parquet",
        make=lambda: training.band_scores(kind, plan.difficulty.word, rows, **plan.difficulty.options),
        write=Scores.save,
        read=Scores.load,
    )


def by_difficulty(wanted: Choice) -> bool:
    """Whether a calibrator goes by the difficulty of a sample."""
    return wanted.options.get("by") == DIFFICULTY


def unlabelled(folder: RunFolder, plan: Config, rows: Mapping[str, Features]) -> Scores:
    """Difficulty to the likeliest class of every sample that is predicted: what calibrators may go by."""
    splits = [split for split in rows if split != "train"]

    def make() -> Scores:
        fitted = difficulty.fit(plan.difficulty.word, rows["train"], **plan.difficulty.options)
        return Scores.joined([fitted.score(rows[split], "predicted") for split in splits])

    return folder.stage(
        "difficulty:unlabelled",
        uses={"difficulty": plan.difficulty.word, **plan.difficulty.options},
        after=tuple(f"features:{split}" for split in rows),
        file="scores/unlabelled.parquet",
        make=make,
        write=Scores.save,
        read=Scores.load,
    )


def train(
    folder: RunFolder, choice: Choice, settings: training.Settings, dataset: Dataset, scores: Mapping[str, Scores]
) -> dict[str, Predictions]:
    """What a model trained with one loss says on every split but its own."""
    home = folder.path / "models" / choice.name
    used = training.bands_of(settings) or "train"
    history = training.SampleHistory(home / "history", dataset.split(settings.record).labels, settings.record)
    folder.stage(
        f"train:{choice.name}",
        uses=settings.as_dict(),
        after=("data", f"difficulty:{used}"),
        file=f"models/{choice.name}/model.safetensors",
        make=lambda: training.fit(
            dataset, settings, scores=scores[used], folder=home, recorder=history, if_other="restart"
        ),
        write=lambda trained, path: trained.save(path.parent),
        read=training.Trained.load,
        also=lambda: [home / "log.parquet", *history.finish(settings.epochs)],
    )

    def predict(split: str) -> Predictions:
        return folder.stage(
            f"predict:{choice.name}:{split}",
            uses={},
            after=(f"train:{choice.name}",),
            file=f"predictions/{choice.name}-{split}.parquet",
            make=lambda: training.predict(home, dataset, split),
            write=Predictions.save,
            read=Predictions.load,
        )

    return {split: predict(split) for split in dataset.splits if split != "train"}


def believe(
    folder: RunFolder, plan: Config, choice: Choice, said: Mapping[str, Predictions], rows: Mapping[str, Features]
) -> dict[str, Tensor]:
    """Trust in every test prediction, by each trust predictor fitted on val; kept for the explorer."""
    asked = said["test"]

    def fitted(wanted: Choice) -> trust.Trust:
        return folder.stage(
            f"trust:{choice.name}:{wanted.name}",
            uses={"trust": wanted.word, **wanted.options},
            after=(f"predict:{choice.name}:val", "features:val"),
            file=f"trust/{choice.name}-{wanted.name}.json",
            make=lambda: trust.fit(wanted.word, said["val"], rows["val"], **wanted.options),
            write=lambda record, path: record.save(path),
            read=trust.load,
        )

    def valued(wanted: Choice, predictor: trust.Trust) -> Tensor:
        return folder.stage(
            f"trusted:{choice.name}:{wanted.name}",
            uses={},
            after=(f"trust:{choice.name}:{wanted.name}", f"predict:{choice.name}:test", "features:test"),
            file=f"trust/{choice.name}-{wanted.name}-test.parquet",
            make=lambda: predictor(asked, rows["test"]),
            write=lambda values, path: files.write_table(path, {"id": asked.ids, "trust": values.cpu().numpy()}),
            read=lambda path: torch.tensor(files.read_table(path)[0]["trust"]),
        )

    return {wanted.name: valued(wanted, fitted(wanted)) for wanted in plan.trust}


def calibrate(
    folder: RunFolder, plan: Config, choice: Choice, said: Mapping[str, Predictions], hardness: Scores | None
) -> dict[str, dict[str, Predictions]]:
    """Predictions by stage: raw, and after each calibrator fitted on val; `hardness` is what these may go by."""
    known = dict(said)
    if hardness is not None:
        known = {split: one.with_column(DIFFICULTY, hardness.of(one.ids)) for split, one in said.items()}

    def fitted(wanted: Choice) -> calibrators.Calibrator:
        read = ("difficulty:unlabelled",) if by_difficulty(wanted) else ()
        return folder.stage(
            f"calibrate:{choice.name}:{wanted.name}",
            uses={"calibrator": wanted.word, **wanted.options},
            after=(f"predict:{choice.name}:val", *read),
            file=calibrator_file(folder, choice, wanted).relative_to(folder.path).as_posix(),
            make=lambda: calibrators.fit(wanted.word, known["val"], **wanted.options),
            write=lambda record, path: record.save(path),
            read=calibrators.load,
        )

    stages = {"raw": dict(said)}
    for wanted in plan.calibrators:
        calibrator = fitted(wanted)
        stages[wanted.name] = {split: calibrator(spoken) for split, spoken in known.items()}
    return stages
