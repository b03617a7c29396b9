"""What `confide train --recipe` takes from a recipe: settings, the difficulty its loss asks for, the calibrator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confide.training import Trained


def recipe_settings(name: str) -> dict[str, Any]:
    """What a recipe says of training: its settings and its first loss."""
    from confide.config import load_config

    config = load_config(name)
    first = config.losses[0]
    return {**config.training, "loss": first.word, "loss_options": dict(first.options)}


def recipe_scores(dataset: Any, settings: Any, recipe: str, out: Path) -> Any:
    """The difficulty that the recipe's loss asks for, made once and kept in the run's folder."""
    from confide import features
    from confide.config import load_config
    from confide.core.records import Scores
    from confide.training import band_scores, bands_of

    kind = bands_of(settings)
    if not kind:
        return None
    kept, plan = out / "difficulty.parquet", load_config(recipe)
    if not kept.exists():
        word = features.usual(dataset) if plan.features.word == "auto" else plan.features.word
        splits = [split for split in ("train", "val") if split in dataset.splits]
        rows = {split: features.extract(word, dataset, split, **plan.features.options) for split in splits}
        band_scores(kind, plan.difficulty.word, rows, **plan.difficulty.options).save(kept)
    return Scores.load(kept)


def recipe_calibrator(trained: Sequence[Trained], dataset: Any, recipe: str, out: Path) -> None:
    """The recipe's calibrator, fitted on what model or ensemble says on val, as calibrator.json in the run's folder."""
    from confide import calibrators
    from confide.config import load_config
    from confide.training import predict, predict_members

    for choice in load_config(recipe).calibrators[:1]:
        said = predict_members(trained, dataset, "val") if len(trained) > 1 else predict(trained[0], dataset, "val")
        calibrators.fit(choice.word, said, **choice.options).save(out / "calibrator.json")
