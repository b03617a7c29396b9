"""Known or foreign on the command line: every model on its test split and on each foreign set."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confide.core.records import Dataset, Split
    from confide.core.results import Evaluation
    from confide.training import Trained


def foreign_samples(args: argparse.Namespace, dataset: Dataset, models: dict[str, Trained], source: str) -> Split:
    """The samples of a foreign set, in the shape that the models take."""
    from confide.cli.foreign_data import load_foreign

    shape = next(iter(models.values())).preparation.shape if dataset.kind == "image" else None
    return load_foreign(source, dataset, args.data, shape, most=args.samples)


def against_foreign(
    args: argparse.Namespace, dataset: Dataset, test: Any, models: dict[str, Trained], source: str, foreign: Split
) -> list[Evaluation]:
    """Known against foreign samples, for every model."""
    from confide.cli.foreign_data import short_name
    from confide.core.records import Split
    from confide.evaluation import Side, ood
    from confide.shift.foreign import named_ids
    from confide.training import penultimate, predict

    known = Split(test.inputs, test.labels, named_ids(test.ids, dataset.name))
    train = _spread(dataset.train) if "train" in dataset.splits else None  # without it no md, rmd and knn
    found = []
    for name, trained in models.items():
        sides = [
            Side(
                predict(trained, part, "test", foreign=part is foreign, batch_size=args.batch_size, device=args.device),
                penultimate(trained, part, "test", batch_size=args.batch_size).values,
            )
            for part in (known, foreign)
        ]
        reference = None if train is None else penultimate(trained, train, "train", batch_size=args.batch_size)
        found.append(
            ood(
                *sides,
                name=short_name(source),
                reference=reference,
                trust_predictors=_predictors(args, trained, dataset),
                model=name,
                intervals=not args.no_intervals,
                seed=args.seed,
            )
        )
    return found


def _predictors(args: argparse.Namespace, trained: Trained, dataset: Dataset) -> dict[str, Any]:
    """Trust predictors by word, fitted on the clean validation split where they learn."""
    from confide import trust
    from confide.cli.shift_subjects import fitted_trust
    from confide.training import penultimate, predict

    if not any(trust.TRUST.get(word).facts["trained"] for word in args.trust):
        return {word: fitted_trust(word, None, None, args.seed) for word in args.trust}
    val = predict(trained, dataset, "val", batch_size=args.batch_size, device=args.device)
    features = penultimate(trained, dataset, "val", batch_size=args.batch_size)
    return {word: fitted_trust(word, val, features, args.seed) for word in args.trust}


def _spread(train: Any) -> Any:
    import numpy as np

    from confide.cli.shift_subjects import MOST_REFERENCE

    return train.take(np.linspace(0, len(train) - 1, min(len(train), MOST_REFERENCE)).round().astype(np.int64))


def clean_evaluations(args: argparse.Namespace, test: Split, models: dict[str, Trained]) -> list[Evaluation]:
    """Every model on the clean test split, for reports without a grid."""
    from confide.evaluation import evaluate
    from confide.training import predict

    return [
        evaluate(
            predict(trained, test, "test", batch_size=args.batch_size, device=args.device),
            "core",
            not args.no_intervals,
            model=name,
            seed=args.seed,
        )
        for name, trained in models.items()
    ]
