"""What every metric shares: the registry with what a metric is called and means, the way from a number of a `View`
to a Measurement with its interval, and `create`, the same metric over batches.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from functools import cache, partial
from typing import Any, Protocol

import torch

from confide.checks import InputError
from confide.facts import ClassTable, Facts, join_facts
from confide.metrics import intervals
from confide.metrics.influence import Influence
from confide.metrics.resampling import RESAMPLES, Null
from confide.metrics.view import View, metric_samples, score_name
from confide.predictions import Predictions
from confide.registry import Method, MethodSpec, Registry
from confide.results import Better, Measurement, MetricInfo, MetricKind
from confide.types import Floats, JsonObject, Options

BINNINGS = ("width", "mass")
SCALES = {"%": 100.0, "pts": 100.0, "× 1000": 1000.0}
"""What a value is multiplied by to be shown in a unit; 1 in any other."""


@dataclass(frozen=True)
class Variant:
    """Another name under which values of a metric stand in a table, with what is told of them there.

    Args:
        word: the name.
        options: of the metric that make it this one; None where the name comes from elsewhere, such as `aupr_in`,
            which is `aupr_success` where "right" means of a known class.
    """

    word: str
    options: Options | None = None
    _: KW_ONLY
    title: str
    meaning: str
    short: str = ""
    tables: Mapping[str, int] = field(default_factory=dict)

    def info(self, metric: MetricInfo) -> MetricInfo:
        """The metric's facts with those of this name."""
        return replace(
            metric, word=self.word, title=self.title, meaning=self.meaning, short=self.short, tables=self.tables
        )


def _not_whole(*record: Any) -> Any:
    raise TypeError("only a metric of whole distributions has draws of its own")


@dataclass(frozen=True, kw_only=True)
class MetricSpec(MethodSpec):
    """What a metric is, beside its formula.

    `info` is what a reader is told, `variants` are further names of its values, `range` its smallest and largest value,
    `value` the formula over a `View`. `influence` gives its influence values, `bounds` an interval of its own, `chance`
    draws of a calibrated model's value. `rate`: a share of the samples, whose variance is known with it; `rare`: it
    counts rare errors; `debiased`: its expectation under perfect calibration is 0; `by_unit`: its `chance` counts what
    was drawn as one; `of_class`: it looks at one class against the rest. A `whole` metric needs every class probability
    and brings its own `resample` draws; `resampled_rows` bounds the rows these look at. `all_classes`: a
    mean of facts that only a whole distribution has. `from_class_table`: with its default options the sums of classes
    and bins suffice. `slow` is left out above a number of samples, `costly` gets fewer resamples. `jumping`: it is the
    largest of noisy values, for which no interval holds as often as it says.
    """

    info: MetricInfo
    range: tuple[float, float]
    value: Callable[..., float]
    variants: tuple[Variant, ...] = ()
    whole: bool = False
    debiased: bool = False
    by_unit: bool = False
    of_class: bool = False
    rate: bool = False
    all_classes: bool = False
    from_class_table: bool = False
    costly: bool = False
    slow: bool = False
    jumping: bool = False
    resampled_rows: int | None = None
    influence: Callable[..., Influence] | None = None
    rare: bool = False
    bounds: Callable[..., tuple[float, float]] | None = None
    chance: Callable[..., Floats] | None = None
    resample: Callable[..., Any] = _not_whole

    def as_dict(self) -> JsonObject:
        """Field -> value, for listings: what a reader is told stands among the other facts."""
        facts = super().as_dict()
        info = asdict(facts.pop("info"))
        del info["word"]
        names = [variant.word for variant in facts.pop("variants", ())]
        return {**info, **facts, **({"variants": names} if names else {})}


METRICS = Registry("metric", MetricSpec)


class Metric(Protocol):
    """What every metric word is: `(predictions, *, options) -> Measurement`."""

    def __call__(self, predictions: Predictions, **options: Any) -> Measurement: ...


def metric(
    word: str,
    *,
    paper: str,
    title: str,
    meaning: str,
    kind: MetricKind,
    better: Better,
    range: tuple[float, float],
    unit: str = "",
    scale: float | None = None,
    digits: int | None = None,
    short: str = "",
    tables: Mapping[str, int] | None = None,
    variants: tuple[Variant, ...] = (),
    corners: tuple[Options, ...] = (),
    **facts: Any,
) -> Callable[[Callable[..., float]], Metric]:
    """Decorator: makes `(view, *, options) -> float` the public metric of that word and registers it.

    Args:
        word: the name in measurements, configs and on the command line.
        paper: author, year and identifier of the source.
        title: the name in headings; `short` the one in narrow columns.
        meaning: one plain sentence.
        kind: "mean", "calibration" (bias-corrected interval, chance level, test), "ranking" or "separation".
        better: "higher", "lower", or "neither" where a value alone is neither good nor bad.
        range: the smallest and largest value it can take.
        unit: in which values are shown: "%", "pts", "× 1000", "nats", ...
        scale: of a value in that unit. Default: 100 for "%" and "pts", 1000 for "× 1000", else 1.
        digits: decimals that are shown. Default: 1 of scaled values, else 3.
        tables: table -> place of the metric's column in it. Tables: `core` (measured unless told otherwise), `models`
            and `headline` (the report's first table and its plots), `summary` (terminal and paired tests of a run),
            `calibrated` (before and after a calibrator), `confidence` (in core and calibrated, where only confidence
            and correctness are known), `trust`, `scores`, `decisions` (trust predictors), `shift`,
            `groups`, `ood`.
        variants: further names of its values, such as `ece_mass`.
        corners: option values at their limits; conformance tests run them all.
        facts: further fields of `MetricSpec`.
    """
    scale = SCALES.get(unit, 1.0) if scale is None else scale
    digits = (1 if scale > 1 else 3) if digits is None else digits
    info = MetricInfo(word, title, meaning, better, kind, unit, scale, digits, short, tables or {})

    def wrap(function: Callable[..., float]) -> Metric:
        def measured(predictions: Predictions, *rest: Any, **options: Any) -> Measurement:
            if rest:
                raise InputError(
                    f"{word} takes one record: confide.metrics.{word}(confide.Predictions(logits, labels))"
                )
            return measure(METRICS.get(word), predictions, options)

        signature = inspect.signature(function)
        first = inspect.Parameter("predictions", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        rest = list(signature.parameters.values())[1:]
        measured.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[first, *rest], return_annotation=Measurement
        )
        measured.__name__ = measured.__qualname__ = word
        measured.__doc__, measured.__module__ = _help(function, info), function.__module__
        METRICS.add(
            word, paper=paper, corners=corners, info=info, range=range, value=function, variants=variants, **facts
        )(measured)
        return measured

    return wrap


calibration_metric = partial(metric, kind="calibration", better="lower", range=(0.0, 1.0), unit="pts")
ranking_metric = partial(metric, kind="ranking", range=(0.0, 1.0), unit="%")


def _help(function: Callable[..., float], info: MetricInfo) -> str:
    """The docstring of a metric with what all metrics share: the record it takes, its score, what it returns."""
    text = inspect.cleandoc(function.__doc__ or "")
    head, _, example = text.partition("\nExample:\n")
    head, _, own = head.partition("\nArgs:\n")
    arguments = ["    predictions: what is measured; from logits, probabilities or the files of `confide predict`."]
    arguments += [own.rstrip()] if own else []
    if "score" in inspect.signature(function).parameters:
        words = "`msp`, `entropy`, `margin`, `max_logit`, `energy`, `trust`"
        arguments.append(f"    score: what is looked at, high = safe: {words}, or n values.")
    direction = f"{info.better} is better" if info.better != "neither" else "neither high nor low is better"
    returns = f"    The value with its 95 % interval (computed when first asked for); {direction}."
    raises = "    InputError: more than one record, or predictions that lack what it looks at."
    parts = [head.rstrip(), "\n".join(["Args:", *arguments]), f"Returns:\n{returns}", f"Raises:\n{raises}"]
    return "\n\n".join([*parts, *([f"Example:\n{example.rstrip()}"] if example else [])])


def names() -> tuple[str, ...]:
    """All words of the family, sorted.

    Returns:
        The words that `create`, `evaluate(metrics=...)` and the command line take.

    Example:
        >>> "ece" in confide.metrics.names()
        True
    """
    return METRICS.names()


def parse_metric(word: str) -> tuple[Method[MetricSpec], Options]:
    """A word of the table as a metric and its options: `ece_mass` is `ece` with binning="mass"."""
    if word not in METRICS:
        base, _, binning = word.rpartition("_")
        if binning in BINNINGS and base in METRICS and "binning" in METRICS.get(base).options:
            return METRICS.get(base), {"binning": binning}
    return METRICS.get(word), {}


def _variants() -> dict[str, tuple[Method[MetricSpec], Variant]]:
    return {variant.word: (method, variant) for method in METRICS for variant in method.spec.variants}


def metric_name(method: Method[MetricSpec], options: Options) -> str:
    """The name of a measurement: the word, with `_mass` or `_width` where the bins are not the default ones."""
    default = method.options.get("binning")
    chosen = options.get("binning", default)
    return f"{method.word}_{chosen}" if chosen != default else method.word


def explain(words: Iterable[str]) -> dict[str, MetricInfo]:
    """What a reader is told about these metrics, by word; words that no metric has are left out.

    Args:
        words: names of measurements, such as `ece` or `ece_mass`.

    Returns:
        Word -> title, unit, scale, decimals, direction, meaning and place in tables.

    Example:
        >>> info = confide.metrics.explain(["ece_mass"])["ece_mass"]
        >>> info.title, info.unit, info.better
        ('ECE, equal mass', 'pts', 'lower')
    """
    variants = _variants()

    def named(word: str) -> MetricInfo | None:
        if word in METRICS:
            return METRICS.get(word).spec.info
        method, variant = variants.get(word, (None, None))
        return None if method is None or variant is None else variant.info(method.spec.info)

    infos = {}
    for word in words:
        base, _, binning = word.rpartition("_")
        if info := named(word):
            infos[word] = info
        elif binning in BINNINGS and (info := named(base)):
            infos[word] = replace(info, word=word, title=f"{info.title}, equal {binning}", short="", tables={})
    return infos


def table_words(table: str) -> tuple[str, ...]:
    """The metrics that have a column in a table, in the order of their places; of `all`, every one there is.

    Args:
        table: a key of `MetricInfo.tables`, such as "core", or "all".

    Returns:
        Words that `evaluate(metrics=...)` takes.

    Example:
        >>> confide.metrics.table_words("groups")
        ('accuracy', 'confidence_gap', 'ece_mass', 'f_beta', 'average_precision')
    """
    variants = [variant for method in METRICS for variant in method.spec.variants]
    if table == "all":
        return (*METRICS.names(), *(variant.word for variant in variants if variant.options is not None))
    places = {method.word: method.spec.info.tables for method in METRICS} | {v.word: v.tables for v in variants}
    own = [word for word, tables in places.items() if table in tables]
    return tuple(sorted(own, key=lambda word: places[word][table]))


def value_of(method: Method[MetricSpec], view: View, options: Options) -> float:
    """The number of a metric on weighted samples."""
    return float(method.spec.value(view, **options))


def measure_many(predictions: Predictions, words: Sequence[str]) -> dict[str, float]:
    """Values of several metrics from one pass over the predictions, without intervals.

    Args:
        predictions: what is measured.
        words: metrics by word; `ece_mass` is `ece` in bins of equal mass, `auroc:entropy` ranks by that score.

    Returns:
        Word -> value, in the order of the words.

    Example:
        >>> predictions = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.5, 0.0]], [0, 1, 1])
        >>> measured = confide.metrics.measure_many(predictions, ["accuracy", "aurc:entropy"])
        >>> {word: round(value, 3) for word, value in measured.items()}
        {'accuracy': 0.667, 'aurc:entropy': 0.278}
    """
    view = View(metric_samples(predictions))
    values = {}
    for word in words:
        metric_word, _, score = word.partition(":")
        method, options = parse_metric(metric_word)
        values[word] = value_of(method, view, {**options, "score": score} if score else options)
    return values


def measure(method: Method[MetricSpec], predictions: Predictions, options: Options) -> Measurement:
    """A metric's measurement; interval and chance level are computed when they are first asked for."""
    method.check_options(options)
    missing = [name for name in method.needs if name not in options]
    if missing:
        raise InputError(f"metric '{method.word}' needs {missing[0]}=; give it")
    view = View(metric_samples(predictions))
    value = value_of(method, view, options)
    return Measurement(
        metric=metric_name(method, options),
        value=value,
        n=len(predictions),
        split=predictions.split,
        score=score_name(options.get("score", method.options["score"])) if "score" in method.options else None,
        note=note_of(method, options, view),
        interval=cache(partial(_interval, method, view, options, value)),
    )


def _interval(method: Method[MetricSpec], view: View, options: Options, value: float) -> tuple[float, float]:
    chance = intervals.chance_of(method, view, options, value)
    return intervals.interval_of(method, view, options, value, chance)


def note_of(method: Method[MetricSpec], options: Options, view: View) -> str | None:
    """Options that differ from the defaults, what was resampled only in part, and too few errors, in words."""
    shown_elsewhere = ("score", "binning")
    changed = {k: v for k, v in options.items() if k not in shown_elsewhere and v != method.options.get(k)}
    words = [f"{k} {v}" for k, v in changed.items()]
    n = view.base.n
    most = method.spec.resampled_rows or n
    if n > most:
        words.append(f"interval from resamples of {most:,} of {n:,} rows")
    words += filter(None, [intervals.too_few(method, view)])
    words += ["no interval: the largest gap jumps from bin to bin"] * intervals.jumps(method, options)
    return ", ".join(words) or None


def calibration_test(
    predictions: Predictions, metric: str = "ece_mass", *, resamples: int = RESAMPLES, seed: int = 0, **options: Any
) -> Null:
    """What a perfectly calibrated model with these confidences would show, and the p-value of being one.

    Args:
        predictions: what is tested.
        metric: the calibration error to test with.
        resamples: draws of correctness from the confidences; the smallest p-value is 1 / (resamples + 1). Class-wise
            and kernel errors draw labels 200 and 99 times.
        seed: of the draws.
        options: of the metric, such as `bins`.

    Returns:
        Mean and 95 % quantile of the error by chance, the p-value, and the draws.

    Raises:
        InputError: the metric is no calibration error, or needs probabilities that are not in memory.

    Example:
        >>> predictions = confide.Predictions.from_top1([0] * 50, [0] * 25 + [1] * 25, [0.95] * 50)
        >>> confide.metrics.calibration_test(predictions, "ece", resamples=99).p_value
        0.01
    """
    method, extra = parse_metric(metric)
    if method.spec.info.kind != "calibration":
        raise InputError(f"metric '{metric}' is no calibration error, so it has no calibration test")
    options = {**extra, **options}
    method.check_options(options)
    view = View(metric_samples(predictions))
    if view.base.design.single:
        raise InputError(
            f"a calibration test counts what was drawn, but all {len(predictions):,} samples lie in one "
            f"'{predictions.unit}'; give several"
        )
    chance = intervals.chance_of(method, view, options, value_of(method, view, options), draws=resamples, seed=seed)
    if chance is None:
        raise InputError(f"the calibration test of '{metric}' needs all probabilities in memory")
    return chance


# Metrics in someone else's loop: update batch by batch, compute, reset, merge across processes.


class Accumulator:
    """One metric over batches: `update(logits, labels)`, `compute()`, `reset()`, `merge(other)`, `sync()`.

    Keeps a few numbers per sample (facts), the class-wise sums for class-wise ECE, or the whole batches where a
    metric needs all probabilities at once.
    """

    def __init__(self, method: Method[MetricSpec], options: Options) -> None:
        self.method, self.options = method, options
        self.reset()

    def reset(self) -> None:
        """Forget all batches."""
        self._facts: list[Facts] = []
        self._labels: list[torch.Tensor] = []
        self._trust: list[torch.Tensor] = []
        self._weights: list[torch.Tensor] = []
        self._whole: list[Predictions] = []
        self._table: ClassTable | None = None
        self._classes = 0
        self._from_probabilities = False

    def __len__(self) -> int:
        return sum(len(labels) for labels in self._labels) + sum(len(record) for record in self._whole)

    def update(self, predictions: Any, labels: Any = None, *, from_probs: bool = False) -> None:
        """Add a batch: Predictions, or logits (probabilities if said so) and labels."""
        record = predictions if isinstance(predictions, Predictions) else self._record(predictions, labels, from_probs)
        record = record.counted()
        if not len(record):
            return
        if (record.weights is not None) != bool(self._weights) and len(self):
            raise InputError("every batch must have weights, or none; give weights of 1 to those that have none")
        if record.weights is not None:
            self._weights.append(torch.from_numpy(record.weights))
        if self._classes and record.outputs.num_classes is not None and record.num_classes != self._classes:
            raise InputError(f"every batch must have {self._classes} classes, got {record.num_classes}")
        self._classes = max(self._classes, record.num_classes)
        self._from_probabilities |= record.from_probabilities
        if self._needs_everything:
            record.need_logits(f"metric '{self.method.word}'")
            self._whole.append(record)
            return
        if self.method.spec.whole:
            table = record.class_table()
            if record.weights is not None:
                table = table.scaled(float(record.weights.mean()))
            self._table = table if self._table is None else self._table + table
        self._facts.append(record.facts)
        self._labels.append(record.labels.cpu())
        if record.trust is not None:
            self._trust.append(record.trust)

    @staticmethod
    def _record(values: Any, labels: Any, from_probs: bool) -> Predictions:
        if labels is None:
            raise InputError("update needs Predictions, or logits and labels; give both")
        return Predictions.from_probs(values, labels) if from_probs else Predictions(values, labels)

    @property
    def _needs_everything(self) -> bool:
        standard = self.method.spec.from_class_table and all(
            self.options.get(name, default) == default for name, default in self.method.options.items()
        )
        return (
            bool(self.method.spec.whole or self.method.spec.of_class or self.options.get("of") == "classes")
            and not standard
        )

    def compute(self) -> Measurement:
        """The measurement of all batches so far."""
        if not len(self):
            raise InputError(f"metric '{self.method.word}' has no samples yet; call update first")
        return measure(self.method, self._joined(), self.options)

    def _joined(self) -> Predictions:
        weights = torch.cat(self._weights) if self._weights else None
        if self._whole:
            labels = torch.cat([r.labels for r in self._whole])
            if self._from_probabilities:
                probs = torch.cat([r.probabilities() for r in self._whole])
                return Predictions.from_probs(probs, labels, weights=weights)
            return Predictions(torch.cat([r.logits for r in self._whole]), labels, weights=weights)
        labels = torch.cat(self._labels)
        complete = sum(map(len, self._trust)) == len(labels)
        table = self._table
        if table is not None and weights is not None:
            table = table.scaled(1 / float(weights.mean()))
        return Predictions.from_facts(
            join_facts(self._facts),
            labels,
            max(self._classes, int(labels.max()) + 1),
            table,
            weights=weights,
            trust=torch.cat(self._trust) if complete and self._trust else None,
            from_probabilities=self._from_probabilities,
        )

    def merge(self, other: Accumulator) -> None:
        """Add the batches of another accumulator of the same metric, such as that of another process."""
        if other.method.word != self.method.word or other.options != self.options:
            raise InputError(f"cannot merge metric '{other.method.word}' into '{self.method.word}'; they must be alike")
        if self._classes and other._classes and self._classes != other._classes and self._table is not None:
            raise InputError(f"merge needs {self._classes} classes on both sides, got {other._classes}")
        if len(self) and len(other) and bool(self._weights) != bool(other._weights):
            raise InputError("merge needs weights on both sides, or on none; give weights of 1 to those without")
        self._facts += other._facts
        self._labels += other._labels
        self._trust += other._trust
        self._weights += other._weights
        self._whole += other._whole
        if other._table is not None:
            self._table = other._table if self._table is None else self._table + other._table
        self._classes = max(self._classes, other._classes)
        self._from_probabilities |= other._from_probabilities

    def __getstate__(self) -> Options:
        state = dict(self.__dict__)
        state["method"] = self.method.word
        return state

    def __setstate__(self, state: Options) -> None:
        self.__dict__.update(state)
        self.method = parse_metric(state["method"])[0]

    def sync(self) -> None:
        """In a torch.distributed group: every process afterwards holds the batches of all, in the order of ranks."""
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return
        parts: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(parts, self)
        self.reset()
        for part in parts:
            self.merge(part)


def create(word: str, **options: Any) -> Accumulator:
    """An accumulator of that metric: `update(logits, labels)`, `compute()`, `reset()`, `merge(other)`.

    Args:
        word: the metric; `ece_mass` is `ece` in bins of equal mass.
        options: of the metric, such as `bins`.

    Returns:
        The accumulator, empty.

    Example:
        >>> accuracy = confide.metrics.create("accuracy")
        >>> accuracy.update([[2.0, 0.0], [0.0, 1.0]], [0, 1])
        >>> accuracy.update([[1.0, 0.0]], [1])
        >>> round(float(accuracy.compute()), 3)
        0.667
    """
    method, extra = parse_metric(word)
    method.check_options(options)
    return Accumulator(method, {**extra, **options})
