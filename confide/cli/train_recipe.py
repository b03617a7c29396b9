"""What `confide train --recipe` takes from a recipe: settings, the difficulty that is asked for, the calibrator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confide.cli.calibrated import FITTED

if TYPE_CHECKING:
    from confide.config import Config
    from confide.core.records import Features, Scores
    from confide.training import Trained

BANDS, HARDNESS = "difficulty.parquet", "hardness.parquet"
"""Files in the run's folder: scores that make the loss's bands, and the difficulty of val that the calibrator reads."""


def recipe_settings(name: str) -> dict[str, Any]:
    """What a recipe says of training: its settings and its first loss."""
    from confide.config import load_config

    config = load_config(name)
    first = config.losses[0]
    return {**config.training, "loss": first.word, "loss_options": dict(first.options)}


def recipe_scores(job: Mapping[str, Any], dataset: Any, settings: Any, given: Scores | None) -> Scores | None:
    """What the loss reads, given or made by the recipe; what the calibrator goes by is made before training too."""
    from confide.config import load_config
    from confide.core.records import Scores
    from confide.training import band_scores, bands_of

    plan, out = load_config(job["recipe"]), Path(job["out"])
    kind = bands_of(settings) if given is None else ""
    wanted = [name for name in (BANDS if kind else "", HARDNESS if _by_difficulty(plan) else "") if name]
    if not all((out / name).exists() for name in wanted) or _of_others(out / FITTED, job.get("features")):
        rows = _features(dataset, plan, job.get("features"))
        if kind:
            band_scores(kind, plan.difficulty.word, rows, **plan.difficulty.options).save(out / BANDS)
        if HARDNESS in wanted and "val" in rows:
            _keep_difficulty(rows, plan, out)
    return Scores.load(out / BANDS) if kind else given


def _by_difficulty(plan: Config) -> bool:
    from confide.calibrators import DIFFICULTY

    return any(choice.options.get("by") == DIFFICULTY for choice in plan.calibrators[:1])


def _of_others(path: Path, asked: str | None) -> bool:
    """Whether a difficulty that was fitted before is one of other features than are asked for now."""
    from confide import difficulty

    return asked is not None and path.exists() and difficulty.load(path).source.get("extractor") != asked


def _features(dataset: Any, plan: Config, asked: str | None) -> dict[str, Features]:
    from confide import features

    word, options = (asked, {}) if asked else (plan.features.word, plan.features.options)
    word = features.usual(dataset) if word == "auto" else word
    splits = [split for split in ("train", "val") if split in dataset.splits]
    return {split: features.extract(word, dataset, split, **options) for split in splits}


def _keep_difficulty(rows: dict[str, Features], plan: Config, out: Path) -> None:
    """The fitted difficulty, by which later samples are scored, and what it says of val without its labels."""
    from confide import difficulty

    fitted = difficulty.fit(plan.difficulty.word, rows["train"], **plan.difficulty.options)
    fitted.save(out / FITTED)
    fitted.score(rows["val"], "predicted").save(out / HARDNESS)


def recipe_calibrator(trained: Sequence[Trained], dataset: Any, recipe: str, out: Path) -> None:
    """The recipe's calibrator, fitted on what model or ensemble says on val, as calibrator.json in the run's folder."""
    from confide import calibrators
    from confide.config import load_config
    from confide.core.records import Scores
    from confide.training import predict, predict_members

    plan = load_config(recipe)
    for choice in plan.calibrators[:1]:
        said = predict_members(trained, dataset, "val") if len(trained) > 1 else predict(trained[0], dataset, "val")
        if _by_difficulty(plan):
            said = said.with_column(calibrators.DIFFICULTY, Scores.load(out / HARDNESS).of(said.ids))
        calibrators.fit(choice.word, said, **choice.options).save(out / "calibrator.json")
