"""Before training: open data, extract features, fit and score difficulty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from confide import data, difficulty, features, training
from confide.config import MethodChoice
from confide.records import Dataset, Features, Scores

THRESHOLD_SPLIT = "promise"
"""The part of val that nothing is fitted on, so that thresholds chosen on it can be promised."""
PREDICTED_CLASS = "predicted_class"
"""Scores over several splits: to the likeliest class or to the label's, by which a loss groups; by which calibrators
go."""


def open_data(source: Any, *, threshold_share: float = 0.0, seed: int = 0, **options: Any) -> Dataset:
    """The dataset, with a part of val set apart for thresholds that are promised.

    Args:
        source: a dataset's word or path, or arrays.
        threshold_share: of val; 0 sets none apart.
        seed: of splits that the data do not have.
        options: of the dataset.

    Returns:
        The dataset; the part is its split `promise`.

    Example:
        >>> from confide import pipeline
        >>> dataset = pipeline.open_data("fashion-sample", threshold_share=0.25)
        >>> len(dataset.val), len(dataset.split("promise"))
        (1500, 500)
    """
    dataset = data.load_dataset(source, seed=seed, **options)
    if not threshold_share:
        return dataset
    parts = data.cut(dataset.val, {THRESHOLD_SPLIT: threshold_share}, seed)
    splits = {**dataset.splits, "val": parts["train"], THRESHOLD_SPLIT: parts[THRESHOLD_SPLIT]}
    return replace(dataset, splits=splits)


def extractor_word(dataset: Dataset, choice: MethodChoice) -> str:
    """The extractor that is meant by a choice: for `auto` the usual one of such data."""
    return features.usual(dataset) if choice.word == "auto" else choice.word


def extract(dataset: Dataset, choice: str | MethodChoice = "auto", split: str = "train", **run: Any) -> Features:
    """Features of one split.

    Args:
        dataset: with that split.
        choice: an extractor's word or a choice with its options; `auto` takes the usual one of such data, `cached`
            the features that the data carry.
        split: to look at.
        run: how it is done: out, batch_size, device, workers.

    Returns:
        Features of every sample, with labels and ids.

    Example:
        >>> from confide import pipeline
        >>> pipeline.extract(pipeline.open_data("fashion-sample"), "cached", "val").dim
        64
    """
    choice = MethodChoice(choice) if isinstance(choice, str) else choice
    return features.extract(extractor_word(dataset, choice), dataset, split, **run, **choice.options)


def fit_difficulty(choice: str | MethodChoice, rows: Features) -> difficulty.FittedDifficulty:
    """A difficulty fitted on the features of the training split, once for all that is scored by it.

    Args:
        choice: a difficulty's word, or a choice with its options.
        rows: features of the training split.

    Returns:
        The fitted difficulty.

    Example:
        >>> from confide import pipeline
        >>> dataset = pipeline.open_data("fashion-sample")
        >>> rows = {split: pipeline.extract(dataset, "cached", split) for split in ("train", "val")}
        >>> fitted = pipeline.fit_difficulty("prototype", rows["train"])
        >>> len(pipeline.score_split(fitted, rows["val"])), len(pipeline.score_predicted_class(fitted, rows))
        (2000, 2000)
    """
    choice = MethodChoice(choice) if isinstance(choice, str) else choice
    return difficulty.fit(choice.word, rows, **choice.options)


def score_split(fitted: difficulty.FittedDifficulty, rows: Features, *, judge_labels: bool = False) -> Scores:
    """Difficulty of one split, to the class of each label.

    Args:
        fitted: on the training split.
        rows: features of the split.
        judge_labels: also tell which labels look wrong.

    Returns:
        Scores; with `judge_labels` they have a column `verdict`.

    Example:
        >>> from confide import pipeline
        >>> rows = pipeline.extract(pipeline.open_data("fashion-sample"), "cached", "val")
        >>> scores = pipeline.score_split(pipeline.fit_difficulty("prototype", rows), rows, judge_labels=True)
        >>> "verdict" in scores.columns
        True
    """
    scores = fitted.score(rows)
    return difficulty.with_verdicts(scores, difficulty.verdicts(rows, scores=scores)) if judge_labels else scores


def score_predicted_class(fitted: difficulty.FittedDifficulty, rows: Mapping[str, Features]) -> Scores:
    """Difficulty to the likeliest class, known without labels, of all splits but the training split.

    Args:
        fitted: on the training split.
        rows: features by split.

    Returns:
        Scores of the splits together: what calibrators may go by.

    Example:
        >>> from confide import pipeline
        >>> rows = {"val": pipeline.extract(pipeline.open_data("fashion-sample"), "cached", "val")}
        >>> len(pipeline.score_predicted_class(pipeline.fit_difficulty("prototype", rows["val"]), rows))
        2000
    """
    return Scores.joined([fitted.score(part, "predicted") for split, part in rows.items() if split != "train"])


def score_groups(kind: str, fitted: difficulty.FittedDifficulty, rows: Mapping[str, Features]) -> Scores:
    """Difficulty of train and val by which a loss groups its samples.

    A difficulty that knows the label puts misread samples into the hard group, which then looks too sure even where
    the network is calibrated; benchmarks/results/findings.md tells what came of either.

    Args:
        kind: `groups` for the difficulty to the likeliest class, `label_groups` for that to the label's.
        fitted: on the training split.
        rows: features by split.

    Returns:
        Scores of both splits.

    Example:
        >>> from confide import pipeline
        >>> rows = {"train": pipeline.extract(pipeline.open_data("fashion-sample"), "cached", "val")}
        >>> len(pipeline.score_groups("groups", pipeline.fit_difficulty("prototype", rows["train"]), rows))
        2000
    """
    labels = None if kind == training.LABEL_GROUPS else "predicted"
    return Scores.joined([fitted.score(rows[split], labels) for split in ("train", "val") if split in rows])
