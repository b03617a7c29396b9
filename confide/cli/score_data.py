"""What `confide score` and `confide harden` read: a dataset and its features, a log, predictions, a fit made before.
(Becomes confide/scoring.py.)
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide import data, difficulty, features
from confide.checks import InputError, OptionError, did_you_mean
from confide.cli.shared import load_predictions
from confide.difficulty.base import DifficultySpec
from confide.features.extraction import MOST_PIXELS, POOLED, split_word
from confide.files.formats import read_yaml
from confide.predictions import Predictions
from confide.records import Dataset, Features, Ids, Scores, Split, load_features
from confide.registry import Method

# What `confide score` and `confide harden` read: a dataset and its features, a log, predictions, options.


@dataclass(eq=False)
class ScoringSources:
    """Where the samples, their features and what models said of them come from; each is read when first asked for."""

    args: argparse.Namespace
    dataset: Dataset | None
    given: Features | None
    notes: list[str] = field(default_factory=list)
    features: Features | None = None
    fit_features: Features | None = None
    extractor: tuple[str, dict[str, Any]] | None = None
    """Word and options of the one that a fit names, where none is asked for."""
    _predictions: Predictions | None = None

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.dataset.class_names if self.dataset is not None else ()

    @property
    def split(self) -> Split | None:
        return self.dataset.split(self.args.split) if self.dataset is not None else None

    @property
    def predictions(self) -> Predictions | None:
        if self._predictions is None and self.args.predictions:
            self._predictions = load_predictions(self.args.predictions)
        return self._predictions

    def name(self, label: int) -> str:
        """Name of a class, or its number."""
        return self.class_names[label] if label < len(self.class_names) else str(label)

    def named(self, labels: NDArray[Any]) -> NDArray[np.str_]:
        """Names of classes."""
        return np.array([self.name(int(label)) for label in labels], dtype=np.str_)

    def inputs(self) -> Any:
        """The pictures or texts themselves, where the data has them."""
        split = self.split
        return None if split is None or self.dataset is None or self.dataset.kind == "rows" else split.inputs

    def rows(self) -> tuple[Features, Features]:
        """Features of the split to score and of the one to fit on, extracted once."""
        if self.features is None:
            self.features = self.given if self.given is not None else self._extract(self.args.split, "scored")
        if self.fit_features is None:
            other = self.args.fit_split
            same = other is None or other == self.args.split or self.dataset is None
            self.fit_features = self.features if same else self._extract(other, "fitted")
        return self.features, self.fit_features

    def need_features(self) -> Features:
        """Features of the split to score."""
        return self.rows()[0]

    def augmented(self, runs: int) -> list[Features]:
        """Features of the split to fit on under random augmentations."""
        if self.dataset is None:
            raise InputError("augmentation runs need the images; give a dataset instead of features")
        split = self.args.fit_split or self.args.split
        return [self._extract(split, f"augmented-{k}", augment=k) for k in range(1, runs + 1)]

    def log(self) -> Any:
        """The training log, or predictions as a log of one epoch."""
        if self.args.log:
            log = difficulty.open_log(self.args.log)
            self._check_split(log.ids, self.args.log)
            if log.labels is None and self.split is not None:
                from confide.records import rows_of

                labels = self.split.labels[rows_of(log.ids, self.split.ids, "the data")]
                log = difficulty.ProbabilityLog(log.shards, log.epochs, log.ids, labels)
            return log
        if self.predictions is not None:
            self._check_split(self.predictions.ids, self.args.predictions)
            return self.predictions
        raise InputError("confusion, loss, correctness and entropy read a training: pass --log FOLDER or --predictions")

    def _check_split(self, ids: Ids, path: str) -> None:
        """A training log of another split is met often: say which one it is of."""
        known = self.dataset.splits if self.dataset is not None else {}
        held = {name: np.isin(ids.astype(np.str_), split.ids.astype(np.str_)) for name, split in known.items()}
        if self.args.split in held and held[self.args.split].any():
            return
        for name, found in held.items():
            if found.all():
                raise InputError(
                    f"{path} is of the split '{name}', but '{self.args.split}' is scored; add --split {name}"
                )

    def embed(self, words: list[str]) -> Any:
        """Words in the space of the features, by the extractor's text side."""
        word = self._word()
        extractor = None if word == "cached" else features.create(word, **self._options())
        if extractor is None or extractor.encode_text is None:
            raise InputError(f"--words needs an extractor with a text side, such as 'clip', got '{word}'")
        return extractor.encode_text(words)

    def _word(self) -> str:
        if self.args.features:
            return str(self.args.features)
        if self.extractor is not None:
            return self.extractor[0]
        assert self.dataset is not None
        return features.usual(self.dataset, self.args.split)

    def _options(self) -> dict[str, Any]:
        return parse_options(self.args.feature_option) if self.extractor is None else self.extractor[1]

    def _extract(self, split: str, role: str, augment: int | None = None) -> Features:
        assert self.dataset is not None
        word = self._word()
        if word == "cached":
            return features.extract(word, self.dataset, split, augment=augment)
        if word == "pixels":
            self._note_pooling(split)
        if word.startswith("model:"):
            from confide import training  # noqa: F401  (reads checkpoints)
        cache = Path(self.args.cache) if self.args.cache else Path(self.args.out).with_suffix(".features")
        return features.extract(
            word,
            self.dataset,
            split,
            out=cache / f"{split}-{role}" if augment is not None else cache / split,
            batch_size=self.args.batch_size,
            device=self.args.device,
            workers=self.args.workers,
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
            note = f"images were pooled to {POOLED} x {POOLED} pixels; --feature-option size=N keeps more"
            self.notes += [] if note in self.notes else [note]


def open_sources(args: argparse.Namespace) -> ScoringSources:
    """A dataset by word or path, or features where DATA is a file or folder of them."""
    path = Path(args.data)
    if is_features(path):
        given = load_features(path)
        if (given.labels < 0).all():
            raise InputError(f"{path} must have labels beside its features; add a column 'label'")
        return ScoringSources(args, None, given)
    dataset = load_split(args.data, args.split)
    return ScoringSources(args, dataset, None, [*unreadable_note(dataset), *cut_off_note(dataset, args.split)])


def load_split(source: str, split: str) -> Dataset:
    """The dataset; for the split `all` its samples as one, where it has no splits of its own."""
    if split != "all":
        return data.load_dataset(source)
    dataset = data.load_dataset(source, val_fraction=0, test_fraction=0)
    own = [name for name, part in dataset.splits.items() if len(part)]
    if own != ["train"]:
        raise InputError(f"{source} has splits of its own, {', '.join(own)}; name one of them with --split")
    return replace(dataset, splits={"all": dataset.train})


def refuse_flags(given: Mapping[str, Any], why: str) -> None:
    """One line for the options that were given though they have no meaning there."""
    wrong = [flag for flag, is_given in given.items() if is_given]
    if wrong:
        raise InputError(f"{why} and takes no {', '.join(wrong)}; leave it out")


def unreadable_note(dataset: Dataset) -> list[str]:
    """A line where inputs could not be read."""
    names = [name for name, _ in dataset.set_aside]
    if not names:
        return []
    inputs = "1 input" if len(names) == 1 else f"{len(names):,} inputs"
    return [f"{inputs} could not be read: {', '.join(names[:3])}{', ...' * (len(names) > 3)}"]


def cut_off_note(dataset: Dataset, split: str) -> list[str]:
    """Whoever scores a folder of their own wants every sample, and may not know that some were cut off."""
    made = dataset.provenance.get("splits", {})
    others = [name for name, how in made.items() if name != split and str(how).startswith("cut from")]
    if split not in made or not others:
        return []
    n, total = len(dataset.split(split)), sum(len(part) for part in dataset.splits.values())
    return [
        f"{n:,} of {total:,} samples were scored: {' and '.join(others)} were cut off for evaluation; "
        "--split all scores every one"
    ]


def is_features(path: Path) -> bool:
    """Whether a path holds features rather than inputs."""
    if path.is_dir():
        return (path / "plan.json").exists() and any(path.glob("rows-*.npy"))
    if not path.is_file():
        return False
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            return any(name in archive.files for name in ("features", "embeddings")) and "inputs" not in archive.files
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        names = pq.read_schema(path).names
        return "features" in names and not {"image", "text"} & set(names)
    return False


def parse_options(given: list[str]) -> dict[str, Any]:
    """NAME=VALUE words as options; values are read as YAML (numbers, true, lists)."""
    options: dict[str, Any] = {}
    for word in given:
        name, equals, value = word.partition("=")
        if not equals:
            raise InputError(f"an option must be NAME=VALUE, got '{word}'")
        options[name.replace("-", "_")] = read_yaml(value, f"the value of '{name}'")
    return options


def options_for(
    given: list[str], method: Method[DifficultySpec], asked: list[Method[DifficultySpec]]
) -> dict[str, Any]:
    """Of the options given, those this method has; one that no method asked for has is an error."""
    options = parse_options(given)
    known = {name for one in asked for name in one.options}
    for name in options:
        if name not in known:
            raise OptionError(f"no method asked for has an option '{name}'; {did_you_mean(name, known)}")
    return {name: value for name, value in options.items() if name in method.options}


# A difficulty that was fitted before: `confide score --save-fit` writes it, `--fitted` scores other data by it.


def check_save_fit(args: argparse.Namespace) -> None:
    """One method over features, and a name that says what the file is: known before anything is fitted."""
    words = list(dict.fromkeys(args.method or ["rmd"]))
    if len(words) > 1:
        raise InputError(f"--save-fit keeps the fit of one method, got {', '.join(words)}; give one --method")
    if difficulty.DIFFICULTY.get(words[0]).spec.source != "features":
        raise InputError(f"--save-fit keeps a fit on features, but '{words[0]}' reads a training; leave it out")
    difficulty.check_ending(args.save_fit)


def with_class_names(fitted: difficulty.FittedDifficulty, sources: ScoringSources) -> difficulty.FittedDifficulty:
    """The fit with the names of its classes, so that classes of other data are told apart by name."""
    names = {"class_names": list(sources.class_names)} if sources.class_names else {}
    return replace(fitted, source={**fitted.source, **names})


def open_fitted(args: argparse.Namespace) -> tuple[difficulty.FittedDifficulty, ScoringSources]:
    """The fit of a file, and the data to score by it."""
    _check_fitted(args)
    fitted = difficulty.load(args.fitted)
    path = Path(args.data)
    if is_features(path):
        given = load_features(path)
        _check_labels(args, fitted, given.labels)
        return fitted, ScoringSources(args, None, given)
    dataset, args.split = _load_new_data(args.data, args.split)
    _check_labels(args, fitted, dataset.split(args.split).labels)
    extractor = None if args.features else extractor_of(args.fitted, fitted)
    notes = [*unreadable_note(dataset), *cut_off_note(dataset, args.split)]
    return fitted, ScoringSources(args, dataset, None, notes, extractor=extractor)


def _check_fitted(args: argparse.Namespace) -> None:
    given = {
        "--method": args.method,
        "--option": args.option,
        "--fit-split": args.fit_split,
        "--augment-runs": args.augment_runs,
        "--log": args.log,
        "--save-fit": args.save_fit,
    }
    refuse_flags(given, "--fitted scores by a fit that is made")
    if args.feature_option and not args.features:
        raise InputError("--feature-option with --fitted needs --features: the file names its extractor's own options")
    if args.find_label_errors and args.labels != "given":
        raise InputError(f"--find-label-errors judges labels, but --labels is '{args.labels}'; leave one of them out")


def _check_labels(args: argparse.Namespace, fitted: difficulty.FittedDifficulty, labels: NDArray[np.int64]) -> None:
    missing = np.flatnonzero(labels < 0)
    if args.labels == "given" and _uses_labels(fitted) and len(missing):
        raise InputError(
            f"{args.data} must have a label for every sample, got none at sample {missing[0]} of {len(labels)}; "
            "add --labels predicted, or min"
        )


def _uses_labels(fitted: difficulty.FittedDifficulty) -> bool:
    return bool(difficulty.DIFFICULTY.get(fitted.method).spec.labels)


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
        made = dataset.provenance["splits"]
        own = ["train" if "cut from 'train'" in made[key] else key for key in dataset.splits]
        raise InputError(f"{source} has splits of its own, {', '.join(own)}; name one of them with --split")
    name = name if dataset.provenance["splits"][name] == "as given" else "all"
    return replace(dataset, splits={name: part}), name


def extractor_of(path: str, fitted: difficulty.FittedDifficulty) -> tuple[str, dict[str, Any]]:
    """Word and options of the extractor that a fit names, as far as they are known here."""
    word, options = fitted.source.get("extractor"), fitted.source.get("options", {})
    try:
        if word == "cached" and not options:
            return "cached", {}
        method, _ = split_word(word if isinstance(word, str) else "")
        method.check_options(options if isinstance(options, dict) else {"options": options})
    except (InputError, OptionError):
        named = f", which is {word!r} there," if word else ""
        raise InputError(
            f"{path} must name the extractor of its features{named} for other inputs to be scored by it; "
            "add --features WORD, or give features as DATA"
        ) from None
    return str(word), dict(options)


def score_with_fit(fitted: difficulty.FittedDifficulty, sources: ScoringSources, labels: str) -> Scores:
    """Scores of the data by the fit: to the labels' classes, or to the likeliest or nearest one."""
    rows = sources.need_features()
    _note_extractor(fitted, rows, sources)
    if labels != "given" or not _uses_labels(fitted):
        return fitted.score(rows, "min" if labels == "given" else labels)
    return replace(fitted.score(rows, _labels_of_the_fit(fitted, rows, sources)), labels=rows.labels)


def _labels_of_the_fit(
    fitted: difficulty.FittedDifficulty, rows: Features, sources: ScoringSources
) -> NDArray[np.int64]:
    """Labels as the fit numbers its classes: by name where both sides have names."""
    ours, theirs = fitted.source.get("class_names"), sources.class_names
    if not ours or not theirs or _only_numbered(ours) or _only_numbered(theirs):
        return rows.labels
    place = {name: k for k, name in enumerate(ours)}
    unknown = [theirs[k] for k in np.unique(rows.labels) if theirs[k] not in place]
    if unknown:
        raise InputError(
            f"every class of {sources.args.data} must be one of the fit's, but '{unknown[0]}' is none of "
            f"{', '.join(map(str, ours[:10]))}{', ...' * (len(ours) > 10)}; add --labels predicted, or min"
        )
    table = np.array([place.get(name, -1) for name in theirs], dtype=np.int64)
    return table[rows.labels]


def _only_numbered(names: Any) -> bool:
    return list(names) == [str(k) for k in range(len(names))]


def _note_extractor(fitted: difficulty.FittedDifficulty, rows: Features, sources: ScoringSources) -> None:
    """Features of another extractor may have the same width and mean something else."""
    named = fitted.source.get("extractor")
    if _is_word(named) and _is_word(rows.extractor) and named != rows.extractor:
        sources.notes.append(f"the fit is of features by '{named}', these are by '{rows.extractor}'")


def _is_word(word: Any) -> bool:
    try:
        return word == "cached" or bool(split_word(str(word)))
    except InputError:
        return False
