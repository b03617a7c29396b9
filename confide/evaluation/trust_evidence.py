"""Trust predictors fitted on one split and compared on another: what they look at is read from files, every predictor
that it allows is fitted, and all are held against max-softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from confide import metrics, trust
from confide.checks import InputError
from confide.evaluation.trust import TrustValues, compare_trust, rates_at_same_tpr
from confide.files import formats
from confide.predictions import Predictions
from confide.records import Features, rows_of
from confide.results import About, Curve, Evaluation
from confide.trust.combined import shared_samples
from confide.types import AnyArray, Options

__all__ = ["TrustComparison", "TrustEvidence", "TrustFiles", "fit_and_compare", "read_evidence"]

BASELINE = "mcp"
SWEEP = (0.5, 1.0, 2.0, 3.0, 5.0, 10.0)
"""Values of alpha_neg over which steep_slope is shown."""


@dataclass(frozen=True)
class TrustFiles:
    """Files that trust predictors are fitted and compared on.

    Args:
        fit: predictions to learn from, on data that the classifier was not trained on.
        test: predictions to compare on.
        features: of both: files, or folders of shards.
        reference: features and labels of the training split.
        second: features of another extractor: of both splits, and of the labelled training split.
        members: predictions of each member of an ensemble on the test split, or one array `s n c`.
        dropout: the same of passes with dropout.
    """

    fit: str
    test: str
    features: tuple[str, str] | None = None
    reference: str | None = None
    second: tuple[str, str, str] | None = None
    members: tuple[str, ...] = ()
    dropout: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class TrustEvidence:
    """Predictions of both splits, and what predictors look at beside them."""

    fit_on: Predictions
    test: Predictions
    features: tuple[Features, Features] | None = None
    reference: Features | None = None
    members: Mapping[str, AnyArray] = field(default_factory=dict)
    second: tuple[Features, Features, Features] | None = None
    """Features of another extractor: of both splits, and of the labelled training split."""

    def test_inputs(self, word: str) -> tuple[Any, Features | None]:
        """What the predictor of that word gets beside the test predictions: features or members; a second opinion."""
        method = trust.TRUST.get(word)
        second = self.second[1] if self.second and "second" in method.options else None
        if method.spec.wants == "members":
            return self.members.get(word), second
        return self.features[1] if self.features else None, second

    def to_fit(self, word: str) -> tuple[Predictions, Any]:
        """What the predictor of that word is fitted on: neighbours and Gaussians on the training split if given."""
        if trust.TRUST.get(word).spec.fit_on == "training" and self.reference is not None:
            return reference_predictions(self.reference, self.fit_on.num_classes), self.reference
        return self.fit_on, self.features[0] if self.features else None


@dataclass(frozen=True, eq=False)
class TrustComparison:
    """Fitted predictors, their values on the test predictions, and what was measured on these."""

    evaluation: Evaluation
    fitted: Mapping[str, trust.Trust]
    values: Mapping[str, TrustValues]
    baseline_tnr: Mapping[str, float]
    """TNR of max-softmax at the TPR of each predictor's own threshold."""
    chosen: str
    """The predictor to use: the one asked for, else combined, else max-softmax."""
    trusted: Predictions
    """The test predictions with its column `trust`."""


def fit_and_compare(
    evidence: TrustEvidence,
    *,
    only: Sequence[str] = (),
    options: Mapping[str, Options] | None = None,
    keep: str | None = None,
    sweep: Sequence[float] | None = None,
    intervals: bool = True,
    seed: int = 0,
    about: About | None = None,
) -> TrustComparison:
    """Fit every trust predictor that the evidence allows, and compare all on the test predictions.

    Args:
        evidence: predictions of both splits, and what predictors look at beside them.
        only: words of predictors; by default all that can be had. Max-softmax is always among them.
        options: of predictors, by word.
        keep: the predictor to use afterwards.
        sweep: values of alpha_neg over which steep_slope is shown; empty takes the usual ones, None leaves it out.
        intervals: with intervals and paired tests.
        seed: of oracles, folds and resamples.
        about: what else a report tells.

    Returns:
        The fitted predictors, their values, and the evaluation; its warnings say what was left out, and why.

    Raises:
        InputError: where a predictor that was asked for cannot be had.

    Example:
        >>> import torch
        >>> from confide import Predictions
        >>> from confide.evaluation import TrustEvidence, fit_and_compare
        >>> logits = 2 * torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
        >>> labels = torch.arange(80) % 3
        >>> evidence = TrustEvidence(
        ...     Predictions(logits[:40], labels[:40], split="val"), Predictions(logits[40:], labels[40:], split="test"))
        >>> comparison = fit_and_compare(evidence, only=("entropy",), intervals=False)
        >>> sorted(comparison.values), comparison.chosen
        (['entropy', 'mcp'], 'mcp')
    """
    options = options or {}
    fitted, values, left_out = _fit_all(evidence, only, options, keep, seed)
    evaluation = compare_trust(evidence.test, values, intervals=intervals, seed=seed, about=about)
    curves = list(evaluation.curves)
    # Without errors to learn from there is no oracle to sweep; the warnings say so.
    if sweep is not None and ("steep_slope" in fitted or only):
        curves.append(_sweep(evidence, sweep or SWEEP, options.get("steep_slope", {}), seed))
    evaluation = replace(evaluation, curves=tuple(curves), warnings=(*evaluation.warnings, *left_out))
    baseline_tnr = {
        word: rates_at_same_tpr(evidence.test, own, values[BASELINE])[2]
        for word, own in values.items()
        if own.threshold is not None
    }
    chosen = keep or ("combined" if "combined" in fitted else BASELINE)
    trusted = fitted[chosen].add_to(evidence.test, *evidence.test_inputs(chosen))
    return TrustComparison(evaluation, fitted, values, baseline_tnr, chosen, trusted)


def _fit_all(
    evidence: TrustEvidence, only: Sequence[str], options: Mapping[str, Options], keep: str | None, seed: int
) -> tuple[dict[str, trust.Trust], dict[str, TrustValues], list[str]]:
    """Every predictor that the evidence allows, max-softmax first, and its values; what was left out, and why."""
    for word in (*only, *options, *([keep] if keep else ())):
        trust.TRUST.get(word)
    # What was asked for must not be left out: by name, by an option, or by a file that only it takes.
    needed = {BASELINE, keep, *only, *options, *evidence.members, *(["combined"] if evidence.second else ())}
    fitted, values, left_out = {}, {}, []
    for word in dict.fromkeys([BASELINE, *(only or trust.names()), *([keep] if keep else ())]):
        try:
            predictor = _fit_one(word, evidence, options.get(word, {}), seed)
            trusts = predictor(evidence.test, *evidence.test_inputs(word))
        except InputError as error:
            if word in needed:
                raise
            left_out.append(f"{word} was left out: {error}")
            continue
        fitted[word], values[word] = predictor, TrustValues.of(trusts, predictor.threshold, predictor.scale)
    return fitted, {**values, **_second_alone(evidence)}, left_out


def _fit_one(word: str, evidence: TrustEvidence, options: Options, seed: int) -> trust.Trust:
    """One predictor, fitted on what it should be fitted on."""
    method = trust.TRUST.get(word)
    if not method.spec.trained:
        return trust.fit(word, **options)
    own: Options = {"seed": seed} if "seed" in method.options else {}
    if "reference" in method.options and evidence.reference is not None and evidence.features:
        own["reference"] = evidence.reference
    if "second" in method.options and evidence.second is not None:
        own |= {"second": evidence.second[0], "second_reference": evidence.second[2]}
    predictions, rows = evidence.to_fit(word)
    return trust.fit(word, predictions, rows, **{**own, **options})


def _second_alone(evidence: TrustEvidence) -> dict[str, TrustValues]:
    """What the second opinion is worth by itself: RMD and TrustScore of the predicted class in its space."""
    if evidence.second is None:
        return {}
    _, rows, reference = evidence.second
    values = {}
    for word in ("rmd", "trust_score"):
        fitted = trust.fit(word, reference_predictions(reference, evidence.test.num_classes), reference)
        values[f"{word}, second"] = TrustValues.of(fitted(evidence.test, rows), fitted.threshold, fitted.scale)
    return values


def _sweep(evidence: TrustEvidence, alphas: Sequence[float], options: Options, seed: int) -> Curve:
    """Steep slope with several alpha_neg: which share of right predictions it keeps, of wrong ones it catches."""
    columns: dict[str, list[float]] = {"alpha_neg": [], "tpr": [], "tnr": [], "auroc": []}
    for alpha in alphas:
        fitted = _fit_one("steep_slope", evidence, {**options, "alpha_neg": alpha}, seed)
        values = fitted(evidence.test, *evidence.test_inputs("steep_slope"))
        columns["alpha_neg"].append(alpha)
        columns["tpr"].append(float(metrics.tpr(evidence.test, threshold=0.0, score=values)))
        columns["tnr"].append(float(metrics.tnr(evidence.test, threshold=0.0, score=values)))
        columns["auroc"].append(float(metrics.auroc(evidence.test, score=values)))
    return Curve.of("alpha_sweep", columns, split=evidence.test.split, score="trust:steep_slope")


# What predictors look at, from files.


def read_evidence(files: TrustFiles, load: Callable[[str], Predictions] = Predictions.load) -> TrustEvidence:
    """Read and check all files: one classifier, different samples, one extractor for all splits.

    Args:
        files: which.
        load: reads a file of predictions.

    Returns:
        What predictors are fitted and compared on.

    Raises:
        InputError: where files do not go together.

    Example:
        >>> import torch
        >>> from confide import Predictions
        >>> from confide.evaluation import TrustFiles, read_evidence
        >>> logits = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
        >>> for split, rows in (("val", slice(0, 10)), ("test", slice(10, 20))):
        ...     path = Predictions(logits[rows], torch.arange(10) % 3, range(20)[rows], split).save(f"{split}.npz")
        >>> len(read_evidence(TrustFiles("val.npz", "test.npz")).test)
        10
    """
    fit_on, test = load(files.fit), load(files.test)
    fit_on.need_not_test("trust predictors")
    if fit_on.num_classes != test.num_classes and fit_on.outputs.num_classes is not None:
        raise InputError(
            f"{files.fit} and {files.test} must be of one classifier, got {fit_on.num_classes} and "
            f"{test.num_classes} classes; pass two splits of the same predictions"
        )
    check_different_samples(fit_on, test, files)
    features = read_feature_pair(files.features, fit_on, test) if files.features else None
    reference = read_reference(files.reference) if files.reference else None
    if files.features and features and files.reference and reference is not None:
        check_one_width((*files.features, files.reference), (*features, reference))
        check_no_test_sample(files.reference, reference, features[1])
    second = None
    if files.second:
        second = (*read_feature_pair(files.second[:2], fit_on, test), read_reference(files.second[2]))
        check_one_width(files.second, second)
        check_no_test_sample(files.second[2], second[2], second[1])
    named = {"ensemble": files.members, "mc_dropout": files.dropout}.items()
    members = {word: read_members(word, paths, test, load) for word, paths in named if paths}
    return TrustEvidence(fit_on, test, features, reference, members, second)


def read_feature_pair(paths: Sequence[str], fit_on: Predictions, test: Predictions) -> tuple[Features, Features]:
    """Features of both splits."""
    pair = []
    for path, predictions in zip(paths, (fit_on, test), strict=True):
        rows = Features.load(path, ids=predictions.ids, labels=predictions.labels.cpu().numpy())
        rows_of(predictions.ids, rows.ids, f"features of {path}")
        pair.append(rows)
    check_one_width(paths, pair)
    return pair[0], pair[1]


def check_different_samples(fit_on: Predictions, test: Predictions, files: TrustFiles) -> None:
    """What a predictor has learned by heart says nothing about what it knows."""
    if not (fit_on.outputs.all_classes and test.outputs.all_classes):
        return
    both = shared_samples(fit_on.ids, fit_on.logits.cpu().float(), test.ids, test.logits.cpu().float())
    if both:
        raise InputError(
            f"{files.fit} and {files.test} must hold different samples, but {both} are in both; "
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


def read_members(word: str, paths: Sequence[str], test: Predictions, load: Callable[[str], Predictions]) -> Any:
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
    return torch.stack([member_logits(path, test, load) for path in chosen])


def member_logits(path: str, test: Predictions, load: Callable[[str], Predictions]) -> torch.Tensor:
    """Logits n x c of one member, in the order of the test predictions."""
    member = load(path)
    rows = rows_of(test.ids, member.ids, f"predictions of {path}")
    if member.num_classes != test.num_classes:
        raise InputError(
            f"{path} must be of the {test.num_classes} classes of the test predictions, got {member.num_classes}"
        )
    return member.need_logits(f"{path}, a member,")[torch.from_numpy(rows)].float()
