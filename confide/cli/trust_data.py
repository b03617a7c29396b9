"""What `confide trust` reads: predictions, features, a labelled reference, members' logits and options."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from confide.checks import InputError
from confide.cli.shared import load_predictions
from confide.files import formats
from confide.predictions import Predictions
from confide.records import Features, rows_of
from confide.trust.combined import shared_samples

ON_TRAINING = ("trust_score", "rmd", "knn")
MEMBERS = ("ensemble", "mc_dropout")


@dataclass(frozen=True, eq=False)
class TrustEvidence:
    """Predictions of both splits, and what predictors look at beside them."""

    fit_on: Predictions
    test: Predictions
    features: tuple[Features, Features] | None
    reference: Features | None
    members: Mapping[str, Any]
    second: tuple[Features, Features, Features] | None = None
    """Features of another extractor: of both splits, and of the labelled training split."""

    def beside_test(self, word: str) -> Any:
        """What the predictor of that word gets beside the test predictions."""
        if word in MEMBERS:
            return self.members.get(word)
        return self.features[1] if self.features else None

    def to_fit(self, word: str) -> tuple[Predictions, Any]:
        """What the predictor of that word is fitted on: neighbours and Gaussians on the training split if given."""
        if word in ON_TRAINING and self.reference is not None:
            return reference_predictions(self.reference, self.fit_on.num_classes), self.reference
        return self.fit_on, self.features[0] if self.features else None

    def second_test(self, word: str) -> Features | None:
        """The second opinion on the test predictions, for the predictor that takes one."""
        return self.second[1] if self.second and word == "combined" else None


def read_evidence(args: argparse.Namespace) -> TrustEvidence:
    """All files named on the command line."""
    fit_on, test = load_predictions(args.fit), load_predictions(args.test)
    fit_on.need_not_test("trust predictors")
    if fit_on.num_classes != test.num_classes and fit_on.outputs.num_classes is not None:
        raise InputError(
            f"{args.fit} and {args.test} must be of one classifier, got {fit_on.num_classes} and "
            f"{test.num_classes} classes; pass two splits of the same predictions"
        )
    check_different_samples(fit_on, test, args)
    features = read_feature_pair(args.features, fit_on, test) if args.features else None
    reference = read_reference(args.reference) if args.reference else None
    if features and reference is not None:
        check_one_width((*args.features, args.reference), (*features, reference))
        check_no_test_sample(args.reference, reference, features[1])
    second = None
    if args.second:
        second = (*read_feature_pair(args.second[:2], fit_on, test), read_reference(args.second[2]))
        check_one_width(args.second, second)
        check_no_test_sample(args.second[2], second[2], second[1])
    named = zip(MEMBERS, (args.members, args.dropout), strict=True)
    members = {word: read_members(word, paths, test) for word, paths in named if paths}
    return TrustEvidence(fit_on, test, features, reference, members, second)


def read_feature_pair(paths: Sequence[str], fit_on: Predictions, test: Predictions) -> tuple[Features, Features]:
    """Features of both splits."""
    first, second = (
        Features.load(path, ids=p.ids, labels=p.labels.cpu().numpy())
        for path, p in zip(paths, (fit_on, test), strict=True)
    )
    for found, p, path in zip((first, second), (fit_on, test), paths, strict=True):
        rows_of(p.ids, found.ids, f"features of {path}")
    check_one_width(paths, (first, second))
    return first, second


def check_different_samples(fit_on: Predictions, test: Predictions, args: argparse.Namespace) -> None:
    """What a predictor has learned by heart says nothing about what it knows."""
    if not (fit_on.outputs.all_classes and test.outputs.all_classes):
        return
    both = shared_samples(fit_on.ids, fit_on.logits.cpu().float(), test.ids, test.logits.cpu().float())
    if both:
        raise InputError(
            f"{args.fit} and {args.test} must hold different samples, but {both} are in both; "
            "predictors are fitted on the first and compared on the second"
        )


def check_one_width(paths: Sequence[str], records: Sequence[Features]) -> None:
    """Features of all splits must be of one extractor."""
    for path, record in zip(paths, records, strict=True):
        if record.dim != records[0].dim:
            raise InputError(
                f"features of {path} must be {records[0].dim} a sample as those of {paths[0]} are, got {record.dim}; "
                "use the same extractor"
            )


def check_no_test_sample(path: str, reference: Features, test: Features) -> None:
    """A sample that is in the reference lies at distance 0 of itself, in the class of its label."""
    both = shared_samples(test.ids, test.values, reference.ids, reference.values)
    if both:
        raise InputError(f"{path} must hold no test sample, but {both} are in it; pass the features of 'train'")


def read_reference(path: str) -> Features:
    """Features with labels, of any split but test."""
    reference = Features.load(path)
    if (reference.labels < 0).any():
        raise InputError(f"{path} must have a column 'label'; the reference is the labelled training split")
    if reference.split == "test":
        raise InputError("the reference must not be the test split; pass the features of 'train'")
    return reference


def reference_predictions(reference: Features, num_classes: int) -> Predictions:
    """The labels of a reference in the shape of predictions; only the labels are looked at."""
    labels = torch.as_tensor(reference.labels)
    if len(labels) and int(labels.max()) >= num_classes:
        raise InputError(f"the reference has label {int(labels.max())}, but the predictions have {num_classes} classes")
    return Predictions(torch.nn.functional.one_hot(labels, num_classes).float(), labels, reference.ids, "train")


def read_members(word: str, paths: Sequence[str], test: Predictions) -> Any:
    """Logits s x n x c of an ensemble or of passes with dropout: one array, or a file of predictions for each."""
    if len(paths) == 1 and Path(paths[0]).suffix == ".npz":
        columns, _ = formats.read_table(paths[0])
        if "logits" not in columns:
            raise InputError(f"{paths[0]} must hold `logits` of shape s x n x c, got {', '.join(columns)}; rename it")
        if columns["logits"].ndim == 3:
            return columns["logits"]
    if word == "ensemble" and len(paths) == 1:
        raise InputError(f"{paths[0]} is one member; pass a file of predictions for each, or one array s x n x c")
    # What `predict --passes` wrote is the average of its passes already: that of it and itself is the same.
    chosen = paths if len(paths) > 1 else [paths[0], paths[0]]
    return torch.stack([member_logits(path, test) for path in chosen])


def member_logits(path: str, test: Predictions) -> torch.Tensor:
    """Logits n x c of one member, in the order of the test predictions."""
    found = load_predictions(path)
    rows = rows_of(test.ids, found.ids, f"predictions of {path}")
    if found.num_classes != test.num_classes:
        raise InputError(
            f"{path} must be of the {test.num_classes} classes of the test predictions, got {found.num_classes}"
        )
    return found.need_logits(f"{path}, a member,")[torch.from_numpy(rows)].float()
