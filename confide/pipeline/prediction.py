"""What a trained model predicts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confide import training
from confide.predictions import Predictions


def predict(
    model: str | Path | training.Trained | Sequence[training.Trained], data: Any, split: str = "test", **options: Any
) -> Predictions:
    """Predictions of a trained model, or the mean of an ensemble's.

    Args:
        model: a trained model or its folder; the members of an ensemble, or their folder.
        data: a dataset or a split.
        split: to predict.
        options: passes, average, ood, batch_size, device, as in `training.predict`.

    Returns:
        Predictions with labels and ids.

    Example:
        >>> import numpy as np
        >>> from confide import pipeline, training
        >>> rows = {"x": np.random.default_rng(0).normal(size=(60, 2)), "y": np.arange(60) % 2}
        >>> np.savez("rows.npz", **rows)
        >>> dataset = pipeline.open_data("rows.npz")
        >>> model = training.fit(dataset, training.Settings(model="mlp", epochs=1, device="cpu"))
        >>> len(pipeline.predict(model, dataset)) == len(dataset.test)
        True
    """
    if isinstance(model, (str, Path)):
        members: Sequence[Any] = training.member_folders(model)
        if members:
            return training.predict_members(members, data, split, **options)
        return training.predict(model, data, split, **options)
    if isinstance(model, training.Trained):
        return training.predict(model, data, split, **options)
    if len(model) > 1:
        return training.predict_members(model, data, split, **options)
    return training.predict(model[0], data, split, **options)
