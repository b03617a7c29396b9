"""What a trust predictor is: the registry, the frozen `Trust` that `fit` returns, and its files.

A method is a function `(predictions, features, *, options) -> Scorer`; `fit` wraps what it returns into a `Trust`,
which checks what comes in once and remembers how it was made. High = safe, always.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from confide.checks import MOST_CLASSES, InputError, as_tensor, check_choice, check_finite, check_range, check_record
from confide.files import formats
from confide.files.fitted import FittedState, load_fitted, need_fields, save_fitted
from confide.predictions import Predictions, feature_rows
from confide.records import Features
from confide.registry import Method, MethodSpec, OptionSpec, Registry
from confide.types import JsonObject, Options, PerSample


def check_option_kinds(method: Method[MethodSpec], options: Options) -> None:
    """Refuse `alpha_neg="a"` and `folds=2.5` by name; an option without a default value may be anything."""
    kinds = {str: "a word", Integral: "a whole number", Real: "a number"}
    for name, value in options.items():
        kind = next((kind for kind in kinds if isinstance(method.options.get(name), kind)), None)
        if kind is not None and (isinstance(value, bool) or not isinstance(value, kind)):
            raise InputError(f"{name} of {method.family} '{method.word}' must be {kinds[kind]}, got {value!r}")


# What a method is, and what it says of itself.

ScorerState = tuple[JsonObject, dict[str, Tensor]]
"""Plain numbers and words for the JSON file, tensors for the safetensors file."""


@runtime_checkable
class Scorer(Protocol):
    """The fitted part of a method: `scorer(predictions, features) -> n`, and its state for the files.

    One that was fitted with a second opinion takes the rows of that as its third argument.
    """

    def __call__(self, predictions: Predictions, features: Tensor | None) -> PerSample: ...

    def state(self) -> ScorerState: ...


@dataclass(frozen=True, kw_only=True)
class TrustSpec(OptionSpec):
    """What is said of a predictor: whether it is `trained`; what it `wants` beside predictions (nothing, features,
    features if given, members); the `scale` of its values; its own `threshold`, if it has one; whether it
    `learns_errors` of the model; whether it is fitted on held-out samples or better on the training split
    (`fit_on`), where that is at hand; `restore` (numbers, tensors) -> the fitted scorer.
    """

    trained: bool
    wants: str
    scale: str
    threshold: float | None
    restore: Callable[..., Scorer]
    learns_errors: bool = False
    fit_on: Literal["held out", "training"] = "held out"


TRUST = Registry("trust predictor", TrustSpec)


@runtime_checkable
class ComposedScorer(Protocol):
    """A scorer made of parts that can tell what each adds."""

    def contributions(
        self, predictions: Predictions, features: Tensor | None, second: Tensor | None = None
    ) -> dict[str, PerSample]: ...


@dataclass(frozen=True)
class FittedOn:
    """What a trust predictor was fitted on: no samples (`n` is 0) where it learns nothing."""

    split: str | None = None
    n: int = 0
    errors: int = 0
    extractor: str | None = None
    second_extractor: str | None = None

    def as_record(self) -> JsonObject:
        """What is known, for a file."""
        record = {name: value for name, value in vars(self).items() if name != "second_extractor" or value is not None}
        return record if self.n else {}

    @classmethod
    def from_record(cls, record: JsonObject) -> FittedOn:
        """What a file tells, each field held against its kind."""
        return check_record(cls(**{own.name: record[own.name] for own in fields(cls) if own.name in record}))


@dataclass(frozen=True, eq=False)
class Trust:
    """A fitted trust predictor: `trust(predictions, features)` is one value per sample, high = safe.

    `threshold` is the method's own line, trust what lies above it (None: it has none); `scale` says what values are:
    `logit` or `probability` (of being right), `ratio` (above 0, 1 is even) or `score` (only the order counts).
    `about` tells what it was fitted on; `out_of_fold` are honest values on the fitting data where the method
    has them (they are not saved). `second_dim` is the width of the second opinion: features of another extractor,
    which are then needed in every call.
    """

    word: str
    scorer: Scorer
    threshold: float | None = None
    scale: str = "score"
    wants: str = "nothing"
    num_classes: int | None = None
    feature_dim: int | None = None
    options: Options = field(default_factory=dict)
    about: FittedOn = field(default_factory=FittedOn)
    out_of_fold: Tensor | None = None
    second_dim: int | None = None

    def __call__(self, predictions: Predictions, features: Any = None, second: Any = None) -> PerSample:
        inputs = self._inputs(predictions, features, second)
        with torch.no_grad():
            return self.scorer(predictions, *inputs)

    def _inputs(self, predictions: Predictions, features: Any, second: Any) -> tuple[Tensor | None, ...]:
        """What the scorer gets beside the predictions, checked: feature rows and, where fitted so, the second ones."""
        need_predictions(self.word, predictions)
        if self.num_classes is not None and predictions.num_classes != self.num_classes:
            raise InputError(
                f"trust predictor '{self.word}' was fitted for {self.num_classes} classes, got predictions of "
                f"{predictions.num_classes}; fit one for this classifier"
            )
        rows = matched_rows(self.word, self.wants, predictions, features)
        if self.feature_dim is not None and rows is not None and rows.shape[-1] != self.feature_dim:
            raise InputError(
                f"trust predictor '{self.word}' was fitted on {self.feature_dim} features a sample, "
                f"got {rows.shape[-1]}; use the same extractor"
            )
        if self.feature_dim is not None and rows is None:
            raise InputError(
                f"trust predictor '{self.word}' was fitted with features ({self.feature_dim} a sample) and needs them "
                "here too; pass them as the second argument"
            )
        opinion = self._second(predictions, second)
        return (rows,) if opinion is None else (rows, opinion)

    def _second(self, predictions: Predictions, second: Any) -> Tensor | None:
        if self.second_dim is None:
            if second is not None:
                raise InputError(f"trust predictor '{self.word}' was fitted without a second opinion; leave it out")
            return None
        of = f"features of '{self.about.second_extractor or 'another extractor'}', {self.second_dim} a sample"
        if second is None:
            raise InputError(
                f"trust predictor '{self.word}' was fitted with a second opinion ({of}) and needs it here too; "
                "pass it as `second`"
            )
        rows = matched_rows(self.word, "features", predictions, second, "second features")
        assert rows is not None
        if rows.shape[1] != self.second_dim:
            raise InputError(
                f"trust predictor '{self.word}' was fitted with a second opinion ({of}), got {rows.shape[1]} features "
                "a sample; use the same extractor"
            )
        return rows

    def add_to(self, predictions: Predictions, features: Any = None, second: Any = None) -> Predictions:
        """The same predictions with their column `trust` filled."""
        return predictions.replace(trust=self(predictions, features, second))

    def contributions(self, predictions: Predictions, features: Any = None, second: Any = None) -> dict[str, PerSample]:
        """What every part adds to the value of each sample, where the predictor is made of parts (`combined`)."""
        if not isinstance(self.scorer, ComposedScorer):
            raise InputError(f"trust predictor '{self.word}' is not made of parts; fit 'combined'")
        return self.scorer.contributions(predictions, *self._inputs(predictions, features, second))

    def save(self, path: str | Path) -> Path:
        """Write `trust.json` and, beside it, its safetensors; a path without .json is a folder."""
        target = Path(path) if Path(path).suffix == ".json" else Path(path) / "trust.json"
        numbers, tensors = self.scorer.state()
        options = {k: v for k, v in self.options.items() if isinstance(v, (str, int, float, bool, type(None)))}
        facts = ("threshold", "scale", "wants", "num_classes", "feature_dim", "second_dim")
        record = {"method": self.word, **{name: getattr(self, name) for name in facts}}
        record |= {"options": options, "about": self.about.as_record(), "state": numbers}
        return save_fitted(target, formats.TRUST, FittedState(record, tensors))


def fit(word: str, predictions: Predictions | None = None, features: Any = None, **options: Any) -> Trust:
    """Fit the trust predictor of that word on held-out predictions and, where it uses them, features of the samples.

    Args:
        word: the method, such as `mcp` or `combined`; `names()` lists them.
        predictions: what the classifier said on data it was not trained on; methods without training need none.
        features: a `Features` record or `n d` rows of the same samples; `s n c` logits for `ensemble`, `mc_dropout`.
        options: those of the method.

    Returns:
        A frozen `Trust`: called with predictions (and features) it gives one value per sample, high = safe.

    Raises:
        InputError: predictions of the test split, without a right and a wrong one to learn from,
            or features of other samples.

    Example:
        >>> import torch
        >>> i = torch.arange(60)
        >>> labels = i % 3
        >>> predicted = torch.where(i % 5 == 0, (labels + 1 + i % 2) % 3, labels)  # one in five is wrong
        >>> val = confide.Predictions((1.0 + i % 4)[:, None] * torch.eye(3)[predicted], labels, split="val")
        >>> noise = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        >>> rows = torch.eye(3)[labels] + 0.1 * noise
        >>> trust = confide.trust.fit("rmd", val, rows)
        >>> values = trust(val, rows)
        >>> bool(values[val.facts.correct].mean() > values[~val.facts.correct].mean())
        True
    """
    method = TRUST.get(word)
    options = method.checked(options)
    check_option_kinds(method, options)
    wants: str = method.spec.wants
    if predictions is None:
        if method.spec.trained:
            raise InputError(f"trust predictor '{word}' learns from predictions; pass those on 'val'")
        scorer = method.function(None, None, **options)
        return Trust(word, scorer, method.spec.threshold, method.spec.scale, wants, options=options)
    need_predictions(word, predictions)
    predictions.need_not_test(f"trust predictor '{word}'")
    predictions.need_unweighted(f"trust predictor '{word}'")
    if not len(predictions):
        raise InputError(f"trust predictor '{word}' needs at least one prediction, got none; pass those on 'val'")
    trained = bool(method.spec.trained)
    rows = matched_rows(word, wants, predictions, features) if trained else None
    second = options.get("second")
    opinion = None if second is None else matched_rows(word, "features", predictions, second, "second features")
    if method.spec.learns_errors:
        check_right_and_wrong(word, predictions)
    scorer = method.function(predictions, rows, **(options if opinion is None else {**options, "second": opinion}))
    about = FittedOn(
        predictions.split,
        len(predictions),
        len(predictions) - int(predictions.facts.correct.sum()),
        features.extractor if isinstance(features, Features) else None,
        second.extractor if isinstance(second, Features) else None,
    )
    return Trust(
        word,
        scorer,
        threshold=method.spec.threshold,
        scale=method.spec.scale,
        wants=wants,
        num_classes=predictions.num_classes if trained else None,
        feature_dim=int(rows.shape[-1]) if rows is not None and wants != "members" else None,
        options={**method.options, **options},
        about=about,
        out_of_fold=getattr(scorer, "out_of_fold", None),
        second_dim=None if opinion is None else int(opinion.shape[1]),
    )


def names() -> tuple[str, ...]:
    """All words.

    Returns:
        Every word that `fit` and `confide trust` take.

    Example:
        >>> "steep_slope" in confide.trust.names()
        True
    """
    return TRUST.names()


def need_predictions(word: str, predictions: Any) -> None:
    """Arrays are not enough: ids, labels and what the outputs are belong to them."""
    if not isinstance(predictions, Predictions):
        raise InputError(
            f"trust predictor '{word}' needs confide.Predictions, got {type(predictions).__name__}; "
            "make them from logits and labels"
        )


def matched_rows(
    word: str, wants: str, predictions: Predictions, features: Any, name: str = "features"
) -> Tensor | None:
    """Feature rows in the order of the predictions, or member logits `s n c`; None where the method takes none."""
    if wants == "members":
        return _members(word, predictions, features)
    if features is None or wants == "nothing":
        if wants == "features":
            raise InputError(
                f"trust predictor '{word}' needs features of the samples; pass them as the second argument"
            )
        return None
    return feature_rows(predictions, features, name)


def _members(word: str, predictions: Predictions, features: Any) -> Tensor:
    if features is None:
        raise InputError(
            f"trust predictor '{word}' needs the members' logits, s x n x c; pass them second, "
            "or by --members and --dropout"
        )
    members = as_tensor(features, "members' logits")
    n, c = len(predictions), predictions.num_classes
    if members.ndim != 3 or tuple(members.shape[1:]) != (n, c) or members.shape[0] < 2:
        raise InputError(f"members' logits must be s x {n} x {c} with s of 2 or more, got {tuple(members.shape)}")
    check_finite(members.transpose(0, 1), "members' logits")
    # Means and entropies in half precision would tie most samples.
    return members.to(torch.promote_types(members.dtype, torch.float32))


def check_right_and_wrong(word: str, predictions: Predictions) -> None:
    """A learned trust predictor needs examples of both: right and wrong predictions."""
    right = int(predictions.facts.correct.sum())
    wrong = len(predictions) - right
    if not right or not wrong:
        raise InputError(
            f"trust predictor '{word}' needs right and wrong predictions to learn from, got {right} right and "
            f"{wrong} wrong; fit on held-out or out-of-fold predictions (confide.trust.out_of_fold), or use 'mcp'"
        )


# Trust predictors from their files: trust.json and its safetensors, checked.

SCALES = ("logit", "probability", "ratio", "score")
FIELD_KINDS: dict[str, tuple[type, ...]] = {
    "threshold": (int, float, type(None)),
    "num_classes": (int, type(None)),
    "feature_dim": (int, type(None)),
    "wants": (str,),
    "options": (dict,),
    "about": (dict,),
    "state": (dict,),
}
"""Of what kind the fields of a saved predictor are."""


def load(path: str | Path) -> Trust:
    """Read what `Trust.save` wrote: trust.json, or the folder that holds it.

    Args:
        path: trust.json, or the folder that holds it.

    Returns:
        The `Trust` as it was fitted.

    Raises:
        InputError: the file is missing, damaged, no trust predictor, or of a newer confide.

    Example:
        >>> import torch
        >>> two = confide.Predictions(torch.tensor([[2.0, 0.0], [0.1, 0.0]]), torch.tensor([0, 1]))
        >>> path = confide.trust.fit("mcp").save("predictor")
        >>> confide.trust.load("predictor")(two).tolist() == confide.trust.fit("mcp")(two).tolist()
        True
    """
    source = Path(path) / "trust.json" if Path(path).is_dir() else Path(path)
    return load_fitted(source, formats.TRUST, _restored)


def _restored(state: FittedState) -> Trust:
    record = state.record
    method = TRUST.get(str(record["method"]))
    need_fields(record, FIELD_KINDS)
    check_choice(record["scale"], SCALES, "scale of a saved trust predictor")
    scorer = method.spec.restore(record["state"], state.tensors)
    plain = {name: record[name] for name in ("threshold", "scale", "wants", "num_classes", "feature_dim", "options")}
    about = FittedOn.from_record(record["about"])
    # Those saved before there were second opinions have no width of one.
    trust = Trust(method.word, scorer, **plain, about=about, second_dim=record.get("second_dim"))
    return _tried(trust, [str(name) for name in record["state"].get("columns", ())])


def _tried(trust: Trust, columns: list[str]) -> Trust:
    """A predictor read from a file, once it has judged two samples: a state that does not fit fails here, not later."""
    classes = 2 if trust.num_classes is None else trust.num_classes
    sizes = {"num_classes": classes, "feature_dim": trust.feature_dim or 0, "second_dim": trust.second_dim or 0}
    for name, size in sizes.items():
        check_range(size, name, 2 if name == "num_classes" else 0, MOST_CLASSES)
    logits = -torch.arange(float(classes)).expand(2, -1)
    two = Predictions(logits, torch.zeros(2, dtype=torch.int64), columns={name: np.ones(2) for name in columns})
    features = None if trust.feature_dim is None else torch.ones(2, trust.feature_dim)
    second = None if trust.second_dim is None else torch.ones(2, trust.second_dim)
    trust(two, torch.stack([logits, logits]) if trust.wants == "members" else features, second)
    return trust
