"""How hard is every sample of a dataset: its features are extracted, scored by one method or several, and its labels
judged. `score_data` does what a `ScoringRequest` says; `confide score` prints what comes of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide import data, difficulty, features
from confide.checks import InputError, OptionError, check_range, did_you_mean
from confide.difficulty.base import DifficultySpec
from confide.difficulty.explain import ClassWords
from confide.difficulty.harden import HardBenchmark, export
from confide.difficulty.label_errors import VERDICTS, Verdicts
from confide.difficulty.weights import Agreement
from confide.evaluation.gallery import gallery, picture
from confide.features.extraction import MOST_PIXELS, POOLED, split_word
from confide.files import formats
from confide.predictions import Predictions
from confide.records import Dataset, Features, Ids, Scores, Split, rows_of
from confide.registry import Method
from confide.results import Sample
from confide.types import JsonObject, Options

__all__ = [
    "ScoredData",
    "ScoringRequest",
    "Suspect",
    "export_hard",
    "fitted_extractor",
    "is_features",
    "load_split",
    "score_data",
]

SHOWN_TEXT = 280


@dataclass(frozen=True)
class ScoringRequest:
    """How samples are scored.

    Args:
        methods: difficulty words; the first is the main one. Default: rmd.
        options: of these methods; each takes those it has.
        split: to score: a name, or `all` of data without splits. Default: train, and all with `fitted`.
        fit_split: to fit on. Default: the one that is scored.
        labels: the class to measure to: `given`, `predicted` or `min`.
        fitted: file of a fit that was saved; nothing is fitted then.
        extractor: word. Default: what the data carries, else the usual one for its kind; the fit's own with `fitted`.
        extractor_options: of the extractor.
        cache: folder for shards of features. Default: they stay in memory.
        device: cpu or cuda. Default: a GPU where there is one.
        batch_size: inputs per batch of the extractor.
        workers: processes that decode inputs.
        augment_runs: fit on so many augmentation runs (the paper: 5).
        log: folder of a `difficulty.Recorder`, for confusion, correctness, loss and entropy.
        predictions: of these samples: a log of one epoch, and what verdicts look at (out of fold).
        keep_features: extract them also where no method reads them.
        judge: whether labels are judged. Default: where all is fitted here and there are two classes or more.
        max_fdr: most labels, as a share of those called wrong, that may be right after all, as estimated.
        vocabulary: words that hard samples are explained in, by an extractor with a text side.
    """

    methods: tuple[str, ...] = ()
    options: Options = field(default_factory=dict)
    split: str | None = None
    fit_split: str | None = None
    labels: str = "given"
    fitted: str | Path | None = None
    extractor: str | None = None
    extractor_options: Options = field(default_factory=dict)
    cache: Path | None = None
    device: str | None = None
    batch_size: int = 64
    workers: int = 0
    augment_runs: int = 0
    log: str | Path | None = None
    predictions: Predictions | None = None
    keep_features: bool = False
    judge: bool | None = None
    max_fdr: float = 0.2
    vocabulary: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_range(self.augment_runs, "augment_runs", 0, 1000)
        unused = ("methods", "options", "fit_split", "augment_runs", "log")
        if self.fitted and (named := [name for name in unused if getattr(self, name)]):
            raise InputError(f"a fit that is made takes no {', '.join(named)}; leave it out")


@dataclass(frozen=True)
class Suspect:
    """A sample whose label looks wrong: another class fits better, by `suspicion` in log odds."""

    id: str
    label: str
    suggested: str
    suspicion: float
    picture: str | None
    text: str | None


@dataclass(frozen=True, eq=False)
class ScoredData:
    """Samples with their difficulty: `scores` are the main method's, with verdicts and other methods as columns."""

    name: str
    scores: Scores
    by_method: tuple[Scores, ...]
    class_names: tuple[str, ...] = ()
    split: Split | None = None
    inputs: Any = None
    features: Features | None = None
    fitted: difficulty.FittedDifficulty | None = None
    verdicts: Verdicts | None = None
    agreement: tuple[Agreement, ...] = ()
    explanations: tuple[ClassWords, ...] = ()
    notes: tuple[str, ...] = ()

    def class_name(self, label: int) -> str:
        """Name of a class, or its number."""
        return self.class_names[label] if label < len(self.class_names) else str(label)

    def verdict_counts(self) -> dict[str, int]:
        """How many samples look like what; empty where labels were not judged."""
        if self.verdicts is None:
            return {}
        return {word: int((self.verdicts.verdict == word).sum()) for word in VERDICTS}

    def suspect_table(self) -> dict[str, NDArray[Any]]:
        """Labels that look wrong, the clearest first: a table with ids, labels and what is suggested instead.

        `false_chance` is the estimated chance of each to be right; its mean is the list's rate of false discoveries.
        """
        if self.verdicts is None:
            raise InputError("labels were not judged; score with judge=True")
        rows, fit = self.verdicts.suspects(), self.verdicts.fit
        table: dict[str, NDArray[Any]] = {
            "id": self.verdicts.ids[rows],
            "label": self.verdicts.labels[rows],
            "suggested": fit.suggested[rows],
            "suspicion": fit.suspicion[rows],
            "self_confidence": fit.self_confidence[rows],
            "false_chance": fit.false_chance[rows],
        }
        for column in ("label", "suggested") if self.class_names else ():
            table[f"{column}_name"] = np.array([self.class_name(int(k)) for k in table[column]], dtype=np.str_)
        return table

    def explanation_rows(self) -> list[JsonObject]:
        """Words of hard and easy samples, a row for each class, as JSON holds them."""
        return [{**words.as_dict(), "class": self.class_name(words.label)} for words in self.explanations]

    def gallery(self, each: int = 8) -> list[Sample]:
        """The easiest and hardest samples of every class, with verdicts; none without pictures or texts."""
        if self.split is None:
            return []
        samples = gallery(self.split, self.scores, self.class_names, each=each)
        if "verdict" not in self.scores.columns:
            return list(samples)
        ids, verdicts = self.scores.ids.astype(np.str_).tolist(), self.scores.columns["verdict"].tolist()
        by_id = dict(zip(ids, verdicts, strict=True))
        return [replace(sample, verdict=by_id.get(sample.id)) for sample in samples]

    def suspects(self, most: int = 60) -> list[Suspect]:
        """Labels that look wrong, the clearest first, with what can be shown of the samples."""
        if "verdict" not in self.scores.columns:
            return []
        columns, labels = self.scores.columns, self.scores.labels
        rows = np.flatnonzero(columns["verdict"] == "wrong label")
        rows = rows[np.argsort(-columns["suspicion"][rows], kind="stable")][:most]
        places = {} if self.split is None else {str(i): k for k, i in enumerate(self.split.ids.tolist())}
        suspects = []
        for row in rows:
            name = str(self.scores.ids[row])
            content = self.inputs[places[name]] if self.inputs is not None and name in places else None
            label = "" if labels is None else self.class_name(int(labels[row]))
            suggested, suspicion = self.class_name(int(columns["suggested"][row])), float(columns["suspicion"][row])
            shown = None if content is None or isinstance(content, str) else picture(content)
            text = content[:SHOWN_TEXT] if isinstance(content, str) else None
            suspects.append(Suspect(name, label, suggested, suspicion, shown, text))
        return suspects


def score_data(source: str | Path | None, request: ScoringRequest | None = None) -> ScoredData:
    """Score every sample of a dataset, or of a file of features, and judge its labels.

    Args:
        source: a dataset's word or path; or features: .npz, .parquet, or a folder of shards; None takes the request's
            predictions alone.
        request: how; by default rmd on the training split, and loss of predictions alone.

    Returns:
        The scores with verdicts on the labels, and what a page about them shows.

    Raises:
        InputError: where data and request do not go together; one line says what to do.

    Example:
        >>> import numpy as np
        >>> from confide.scoring import ScoringRequest, score_data
        >>> draw, labels = np.random.default_rng(0), np.arange(60) % 2
        >>> np.savez("features.npz", features=draw.normal(size=(60, 3)) + 4 * labels[:, None], labels=labels)
        >>> scored = score_data("features.npz", ScoringRequest(methods=("rmd", "prototype")))
        >>> len(scored.scores), scored.scores.method, sum(scored.verdict_counts().values())
        (60, 'rmd', 60)
    """
    request = request or ScoringRequest()
    if request.fitted is None:
        samples = _open_samples(source, replace(request, split=request.split or "train"))
        by_method, fitted = _fit_and_score(samples)
    else:
        fitted = difficulty.load(request.fitted)
        if source is None:
            raise InputError("a fit scores the samples themselves; give DATA beside --fitted")
        samples = _open_for_fit(source, request, fitted)
        by_method = [_score_by_fit(fitted, samples)]
    if request.keep_features:
        samples.scored_features()
    main, verdicts = by_method[0], _judge(samples, by_method[0])
    if verdicts is not None:
        main = difficulty.with_verdicts(main, verdicts)
    others = {f"score_{scores.method}": scores.of(main.ids) for scores in by_method[1:]}
    main = replace(main, columns={**main.columns, **others})
    explanations: tuple[ClassWords, ...] = ()
    if request.vocabulary:
        embedded = samples.embed(list(request.vocabulary))
        explanations = difficulty.explain(samples.scored_features(), main, request.vocabulary, embedded)
    notes = [*samples.notes, *(note for scores in by_method for note in scores.notes)]
    return ScoredData(
        name=samples.name,
        scores=main,
        by_method=tuple(by_method),
        class_names=samples.class_names,
        split=samples.split,
        inputs=samples.inputs(),
        features=samples.features,
        fitted=fitted,
        verdicts=verdicts,
        agreement=difficulty.agreement(by_method) if len(by_method) > 1 else (),
        explanations=explanations,
        notes=tuple(dict.fromkeys(notes)),
    )


def _fit_and_score(samples: _Samples) -> tuple[list[Scores], difficulty.FittedDifficulty | None]:
    """Scores by every method, and the last fit on features."""
    request = samples.request
    usual = "rmd" if samples.source else "loss"
    methods = [difficulty.DIFFICULTY.get(word) for word in request.methods or (usual,)]
    by_method, fitted = [], None
    for method in methods:
        options = _options_for(method, methods, request.options)
        if method.spec.source == "log":
            by_method.append(difficulty.score(method.word, samples.log(), **options))
            continue
        rows, fit_rows = samples.rows()
        if request.augment_runs and "augmented" in method.options:
            options["augmented"] = samples.augmented(request.augment_runs)
        fitted = difficulty.fit(method.word, fit_rows, **options)
        if samples.class_names:
            # So that classes of other data are told apart by name.
            fitted = replace(fitted, source=replace(fitted.source, class_names=tuple(samples.class_names)))
        by_method.append(fitted.score(rows, None if request.labels == "given" else request.labels))
    return by_method, fitted


def _options_for(method: Method[DifficultySpec], methods: list[Method[DifficultySpec]], options: Options) -> Options:
    """Of the options those this method has; one that none of the methods has is an error."""
    known = {name for each in methods for name in each.options}
    if unknown := [name for name in options if name not in known]:
        raise OptionError(f"no method asked for has an option '{unknown[0]}'; {did_you_mean(unknown[0], known)}")
    return {name: value for name, value in options.items() if name in method.options}


def _judge(samples: _Samples, scores: Scores) -> Verdicts | None:
    """Verdicts on the labels, where they are asked for or can be had.

    They fit Gaussians on the samples themselves: a few that came after a fit are judged only when asked for.
    """
    request, rows = samples.request, samples.features
    judge = request.fitted is None and request.labels == "given" if request.judge is None else request.judge
    if (rows is None and request.predictions is None) or not judge:
        return None
    labels = scores.labels if rows is None else rows.labels
    if request.judge is None and labels is not None and len(np.unique(labels)) < 2:
        samples.notes.append("all samples have one label: there is no other to suggest, so labels were not judged")
        return None
    # Without features the predictions are all that is judged by, in the order of their own scores.
    inputs = None if rows is None else samples.inputs()
    return difficulty.verdicts(
        rows, scores=scores, predictions=request.predictions, inputs=inputs, max_fdr=request.max_fdr
    )


# The samples: a dataset whose features are extracted when they are first asked for, or features alone.


@dataclass(eq=False)
class _Samples:
    request: ScoringRequest
    source: str
    dataset: Dataset | None
    features: Features | None = None
    notes: list[str] = field(default_factory=list)
    extractor: tuple[str, Options] | None = None
    """Word and options of the one that a fit names, where none is asked for."""
    fit_features: Features | None = None

    @property
    def name(self) -> str:
        return self.dataset.name if self.dataset is not None else Path(self.source or "predictions").name

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.dataset.class_names if self.dataset is not None else ()

    @property
    def split_name(self) -> str:
        return self.request.split or "train"

    @property
    def split(self) -> Split | None:
        return self.dataset.split(self.split_name) if self.dataset is not None else None

    def inputs(self) -> Any:
        """The pictures or texts themselves, where the data has them."""
        split = self.split
        return None if split is None or self.dataset is None or self.dataset.kind == "rows" else split.inputs

    def rows(self) -> tuple[Features, Features]:
        """Features of the split to score and of the one to fit on, extracted once."""
        if self.features is None and not self.source:
            raise InputError("features come from the samples themselves; give DATA beside --predictions")
        if self.features is None:
            self.features = self._extract(self.split_name)
        if self.fit_features is None:
            other = self.request.fit_split
            same = other is None or other == self.split_name or self.dataset is None
            self.fit_features = self.features if same else self._extract(str(other))
        return self.features, self.fit_features

    def scored_features(self) -> Features:
        return self.rows()[0]

    def augmented(self, runs: int) -> list[Features]:
        """Features of the split to fit on under random augmentations."""
        if self.dataset is None:
            raise InputError("augmentation runs need the images; give a dataset instead of features")
        split = self.request.fit_split or self.split_name
        return [self._extract(split, augment=k) for k in range(1, runs + 1)]

    def log(self) -> Any:
        """The training log, or predictions as a log of one epoch."""
        if self.request.log:
            log = difficulty.open_log(self.request.log)
            self._check_split(log.ids, str(self.request.log))
            if log.labels is None and self.split is not None:
                labels = self.split.labels[rows_of(log.ids, self.split.ids, "the data")]
                log = difficulty.ProbabilityLog(log.shards, log.epochs, log.ids, labels)
            return log
        if self.request.predictions is not None:
            self._check_split(self.request.predictions.ids, "the file of predictions")
            return self.request.predictions
        raise InputError("confusion, loss, correctness and entropy read a training: pass --log FOLDER or --predictions")

    def _check_split(self, ids: Ids, name: str) -> None:
        """A training log of another split is met often: say which one it is of."""
        known = self.dataset.splits if self.dataset is not None else {}
        held = {split: np.isin(ids.astype(np.str_), part.ids.astype(np.str_)) for split, part in known.items()}
        if self.split_name in held and held[self.split_name].any():
            return
        for split, there in held.items():
            if there.all():
                raise InputError(
                    f"{name} is of the split '{split}', but '{self.split_name}' is scored; add --split {split}"
                )

    def embed(self, words: list[str]) -> Any:
        """Words in the space of the features, by the extractor's text side."""
        word = self._word()
        extractor = None if word == "cached" else features.create(word, **self._options())
        if extractor is None or extractor.encode_text is None:
            raise InputError(f"--words needs an extractor with a text side, such as 'clip', got '{word}'")
        return extractor.encode_text(words)

    def _word(self) -> str:
        if self.request.extractor:
            return self.request.extractor
        if self.extractor is not None:
            return self.extractor[0]
        assert self.dataset is not None
        return features.usual(self.dataset, self.split_name)

    def _options(self) -> Options:
        return dict(self.request.extractor_options) if self.extractor is None else self.extractor[1]

    def _extract(self, split: str, augment: int | None = None) -> Features:
        assert self.dataset is not None
        word, request = self._word(), self.request
        if word == "cached":
            return features.extract(word, self.dataset, split, augment=augment)
        if word == "pixels":
            self._note_pooling(split)
        shards = split if augment is None else f"{split}-augmented-{augment}"
        return features.extract(
            word,
            self.dataset,
            split,
            out=None if request.cache is None else request.cache / shards,
            batch_size=request.batch_size,
            device=request.device,
            workers=request.workers,
            dtype="float16",
            augment=augment,
            **self._options(),
        )

    def _note_pooling(self, split: str) -> None:
        """Say it where `pixels` looks at less than the images hold."""
        assert self.dataset is not None
        if "size" in self._options() or self.dataset.kind != "image":
            return
        if math.prod(self.dataset.split(split).inputs.shape[1:]) > MOST_PIXELS:
            self.notes.append(f"images were pooled to {POOLED} x {POOLED} pixels; --feature-option size=N keeps more")


def _open_samples(source: str | Path | None, request: ScoringRequest) -> _Samples:
    if source is None:
        if request.predictions is None:
            raise InputError("there must be samples to score, got neither data nor predictions; name one of them")
        return _Samples(request, "", None)
    if is_features(Path(source)):
        rows = Features.load(source)
        if (rows.labels < 0).all():
            raise InputError(f"{source} must have labels beside its features; add a column 'label'")
        return _Samples(request, str(source), None, rows)
    split = request.split or "train"
    dataset = load_split(str(source), split)
    return _Samples(request, str(source), dataset, notes=_data_notes(dataset, split))


def load_split(source: str, split: str) -> Dataset:
    """The dataset that holds a split; for `all` its samples as one, where it has no splits of its own.

    Args:
        source: a dataset's word or path.
        split: a name, or `all`.

    Returns:
        The dataset; with `all`, one of that split alone.

    Raises:
        InputError: where `all` is asked of data with splits of its own.

    Example:
        >>> import numpy as np
        >>> from confide.scoring import load_split
        >>> np.savez("rows.npz", x=np.zeros((20, 2)), y=np.arange(20) % 2)
        >>> {name: len(part) for name, part in load_split("rows.npz", "all").splits.items()}
        {'all': 20}
    """
    if split != "all":
        return data.load_dataset(source)
    dataset = data.load_dataset(source, val_fraction=0, test_fraction=0)
    own = [name for name, part in dataset.splits.items() if len(part)]
    if own != ["train"]:
        raise InputError(f"{source} has splits of its own, {', '.join(own)}; name one of them with --split")
    return replace(dataset, splits={"all": dataset.train})


def export_hard(
    source: str,
    scores: Scores,
    out: str | Path,
    *,
    split: str = "train",
    fraction: float = 0.1,
    stratify: bool = False,
    near_duplicates: str | Path | None = None,
    similarity: float = 0.99,
    licence: str = "",
) -> HardBenchmark:
    """Write the hardest samples of a dataset as a benchmark with its card.

    Args:
        source: a dataset's word or path.
        scores: of its samples.
        out: a folder, or a .parquet file.
        split: that was scored: a name, or `all`.
        fraction: of the samples to keep.
        stratify: the same share of every class.
        near_duplicates: leave them out by these features: a file, a folder of shards or an extractor's word; by default
            those that the data carry. `none` keeps them.
        similarity: cosine from which two samples are near-duplicates.
        licence: a note for the card.

    Returns:
        Which samples were chosen, and how many near-duplicates were left out.

    Raises:
        InputError: scores of other samples, or an `out` that is neither.

    Example:
        >>> import numpy as np
        >>> from confide import Scores
        >>> from confide.scoring import export_hard, load_split
        >>> np.savez("rows.npz", x=np.eye(20), y=np.arange(20) % 2)
        >>> scores = Scores(load_split("rows.npz", "all").split("all").ids, np.arange(20.0), "rmd")
        >>> export_hard("rows.npz", scores, "hard.parquet", split="all").rows.tolist()
        [19, 18]
    """
    dataset = load_split(source, split)
    rows = _rows_for_duplicates(dataset, split, near_duplicates)
    hard = difficulty.harden(scores, fraction=fraction, stratify=stratify, features=rows, similarity=similarity)
    export(Path(out), dataset, split, hard, hard.card(dataset.name, licence, dataset.class_names))
    return hard


def _rows_for_duplicates(dataset: Dataset, split: str, choice: str | Path | None) -> Features | None:
    if choice is None:
        carried = "features" in dataset.split(split).columns
        return features.extract("cached", dataset, split) if carried else None
    if str(choice) == "none":
        return None
    path = Path(choice)
    is_file = path.exists() or path.suffix or len(path.parts) > 1
    return Features.load(path) if is_file else features.extract(str(choice), dataset, split)


def _data_notes(dataset: Dataset, split: str) -> list[str]:
    """Inputs that could not be read, and samples that were cut off: whoever scores their own folder wants every one."""
    notes = []
    if names := [name for name, _ in dataset.set_aside]:
        inputs = "1 input" if len(names) == 1 else f"{len(names):,} inputs"
        notes.append(f"{inputs} could not be read: {', '.join(names[:3])}{', ...' * (len(names) > 3)}")
    others = [name for name in dataset.splits if name != split and name in dataset.cut_from]
    if others:
        n, total = len(dataset.split(split)), sum(len(part) for part in dataset.splits.values())
        notes.append(
            f"{n:,} of {total:,} samples were scored: {' and '.join(others)} were cut off for evaluation; "
            "--split all scores every one"
        )
    return notes


def is_features(path: Path) -> bool:
    """Whether a path holds features rather than inputs.

    Args:
        path: a file or a folder of shards.

    Returns:
        True where `Features.load` reads it.

    Example:
        >>> import numpy as np
        >>> from pathlib import Path
        >>> from confide.scoring import is_features
        >>> np.savez("features.npz", features=np.zeros((2, 3)))
        >>> is_features(Path("features.npz")), is_features(Path("."))
        (True, False)
    """
    if path.is_dir():
        return (path / "plan.json").exists() and any(path.glob("rows-*.npy"))
    if not path.is_file():
        return False
    if path.suffix not in (".npz", ".parquet"):
        return False
    names = set(formats.column_names(path))
    if path.suffix == ".npz":
        return bool(names & {"features", "embeddings"}) and "inputs" not in names
    return "features" in names and not names & {"image", "text"}


# Samples scored by a difficulty that was fitted before.


def _open_for_fit(source: str | Path, request: ScoringRequest, fitted: difficulty.FittedDifficulty) -> _Samples:
    """The data to score by a fit."""
    if is_features(Path(source)):
        rows = Features.load(source)
        _check_labels(source, request, fitted, rows.labels)
        return _Samples(request, str(source), None, rows)
    dataset, split = _load_new_data(str(source), request.split)
    _check_labels(source, request, fitted, dataset.split(split).labels)
    extractor = None if request.extractor else fitted_extractor(str(request.fitted), fitted)
    own = replace(request, split=split)
    return _Samples(own, str(source), dataset, notes=_data_notes(dataset, split), extractor=extractor)


def _check_labels(
    source: str | Path, request: ScoringRequest, fitted: difficulty.FittedDifficulty, labels: NDArray[np.int64]
) -> None:
    missing = np.flatnonzero(labels < 0)
    if request.labels == "given" and fitted.uses_labels and len(missing):
        raise InputError(
            f"{source} must have a label for every sample, got none at sample {missing[0]} of {len(labels)}; "
            "add --labels predicted, or min"
        )


def _load_new_data(source: str, split: str | None) -> tuple[Dataset, str]:
    """The dataset and its split to score: without a word for it all of its samples, where it has no splits."""
    if split is not None and split != "all":
        return data.load_dataset(source), split
    if (unlabelled := data.load_unlabelled(source)) is not None:
        return unlabelled, "all"
    # Everything is held out: what is scored by a fit need not have every class, or more than one.
    dataset = data.load_dataset(source, val_fraction=0, test_fraction=1)
    (name, part), *others = dataset.splits.items()
    if others:
        own = ["train" if dataset.cut_from.get(key) == "train" else key for key in dataset.splits]
        raise InputError(f"{source} has splits of its own, {', '.join(own)}; name one of them with --split")
    name = "all" if name in dataset.cut_from else name
    return replace(dataset, splits={name: part}), name


def fitted_extractor(path: str, fitted: difficulty.FittedDifficulty) -> tuple[str, Options]:
    """Word and options of the extractor that a fitted difficulty names, checked against those known here.

    Args:
        path: of the fit, for the message.
        fitted: the fit.

    Returns:
        The word and its options.

    Raises:
        InputError: where it names none that is known.

    Example:
        >>> import numpy as np
        >>> from confide import Features, difficulty
        >>> from confide.scoring import fitted_extractor
        >>> rows = Features(np.eye(4), np.array([0, 0, 1, 1]), np.arange(4), "pixels", options={"size": 2})
        >>> fitted_extractor("fit.safetensors", difficulty.fit("prototype", rows))
        ('pixels', {'size': 2})
    """
    word, options = fitted.source.extractor, fitted.source.options
    try:
        if word == "cached" and not options:
            return "cached", {}
        method, _ = split_word(word or "")
        method.check_options(options)
    except (InputError, OptionError):
        named = f", which is {word!r} there," if word else ""
        raise InputError(
            f"{path} must name the extractor of its features{named} for other inputs to be scored by it; "
            "add --features WORD, or give features as DATA"
        ) from None
    return str(word), dict(options)


def _score_by_fit(fitted: difficulty.FittedDifficulty, samples: _Samples) -> Scores:
    """Scores of the data by the fit: to the labels' classes, or to the likeliest or nearest one."""
    rows, labels = samples.scored_features(), samples.request.labels
    # Features of another extractor may have the same width and mean something else.
    named = fitted.source.extractor
    if _is_extractor(named) and _is_extractor(rows.extractor) and named != rows.extractor:
        samples.notes.append(f"the fit is of features by '{named}', these are by '{rows.extractor}'")
    if labels != "given" or not fitted.uses_labels:
        return fitted.score(rows, "min" if labels == "given" else labels)
    return replace(fitted.score(rows, _labels_of_the_fit(fitted, rows, samples)), labels=rows.labels)


def _labels_of_the_fit(fitted: difficulty.FittedDifficulty, rows: Features, samples: _Samples) -> NDArray[np.int64]:
    """Labels as the fit numbers its classes: by name where both sides have names."""
    ours, theirs = fitted.source.class_names, samples.class_names
    if not ours or not theirs or _only_numbered(ours) or _only_numbered(theirs):
        return rows.labels
    place = {name: k for k, name in enumerate(ours)}
    unknown = [theirs[k] for k in np.unique(rows.labels) if theirs[k] not in place]
    if unknown:
        raise InputError(
            f"every class of {samples.source} must be one of the fit's, but '{unknown[0]}' is none of "
            f"{', '.join(map(str, ours[:10]))}{', ...' * (len(ours) > 10)}; add --labels predicted, or min"
        )
    table = np.array([place.get(name, -1) for name in theirs], dtype=np.int64)
    return table[rows.labels]


def _only_numbered(names: Any) -> bool:
    return list(names) == [str(k) for k in range(len(names))]


def _is_extractor(word: Any) -> bool:
    try:
        return word == "cached" or bool(split_word(str(word)))
    except InputError:
        return False
