"""What `confide train --recipe` takes from a recipe: settings, the difficulty that is asked for, the calibrator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confide.cli.calibrated import FITTED

if TYPE_CHECKING:
    from confide.config import Config
    from confide.core.records import Features
    from confide.training import Trained

BANDS, HARDNESS = "difficulty.parquet", "hardness.parquet"
"""Files in the run's folder: scores that make the loss's bands, and the difficulty of val that the calibrator reads."""


def recipe_settings(name: str) -> dict[str, Any]:
    """What a recipe says of training: its settings and its first loss."""
    from confide.config import load_config

    config = load_config(name)
    first = config.losses[0]
    return {**config.training, "loss": first.word, "loss_options": dict(first.options)}


def recipe_scores(dataset: Any, settings: Any, recipe: str, out: Path) -> Any:
    """The difficulty that the recipe's loss or calibrator asks for, made once, before training; the loss's scores."""
    from confide.config import load_config
    from confide.core.records import Scores
    from confide.training import band_scores, bands_of

    plan, kind = load_config(recipe), bands_of(settings)
    wanted = [name for name in (BANDS if kind else "", HARDNESS if _by_difficulty(plan) else "") if name]
    if not all((out / name).exists() for name in wanted):
        rows = _features(dataset, plan)
        if kind:
            band_scores(kind, plan.difficulty.word, rows, **plan.difficulty.options).save(out / BANDS)
        if HARDNESS in wanted and "val" in rows:
            _keep_difficulty(rows, plan, out)
    return Scores.load(out / BANDS) if kind else None


def _by_difficulty(plan: Config) -> bool:
    from confide.calibrators import DIFFICULTY

    return any(choice.options.get("by") == DIFFICULTY for choice in plan.calibrators[:1])


def _features(dataset: Any, plan: Config) -> dict[str, Features]:
    from confide import features

    word = features.usual(dataset) if plan.features.word == "auto" else plan.features.word
    splits = [split for split in ("train", "val") if split in dataset.splits]
    return {split: features.extract(word, dataset, split, **plan.features.options) for split in splits}


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
