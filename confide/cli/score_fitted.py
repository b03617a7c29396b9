"""A difficulty that was fitted before: `confide score --save-fit` writes it, `--fitted` scores other data by it."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide import data, difficulty
from confide.cli.score_sources import Sources, cut_off, is_features, refuse, set_aside
from confide.core.door import InputError, OptionError
from confide.core.feature_files import load_features
from confide.core.records import Dataset, Features, Scores
from confide.features.family import split_word


def check_save_fit(args: argparse.Namespace) -> None:
    """One method over features, and a name that says what the file is: known before anything is fitted."""
    words = list(dict.fromkeys(args.method or ["rmd"]))
    if len(words) > 1:
        raise InputError(f"--save-fit keeps the fit of one method, got {', '.join(words)}; give one --method")
    if difficulty.DIFFICULTY.get(words[0]).facts["source"] != "features":
        raise InputError(f"--save-fit keeps a fit on features, but '{words[0]}' reads a training; leave it out")
    difficulty.check_ending(args.save_fit)


def with_source(fitted: difficulty.Fitted, sources: Sources) -> difficulty.Fitted:
    """The fit with the names of its classes, so that classes of other data are told apart by name."""
    names = {"class_names": list(sources.class_names)} if sources.class_names else {}
    return replace(fitted, source={**fitted.source, **names})


def open_fitted(args: argparse.Namespace) -> tuple[difficulty.Fitted, Sources]:
    """The fit of a file, and the data to score by it."""
    _check_fitted(args)
    fitted = difficulty.load(args.fitted)
    path = Path(args.data)
    if is_features(path):
        given = load_features(path)
        _check_labels(args, fitted, given.labels)
        return fitted, Sources(args, None, given)
    dataset, args.split = _new_data(args.data, args.split)
    _check_labels(args, fitted, dataset.split(args.split).labels)
    extractor = None if args.features else extractor_of(args.fitted, fitted)
    notes = [*set_aside(dataset), *cut_off(dataset, args.split)]
    return fitted, Sources(args, dataset, None, notes, extractor=extractor)


def _check_fitted(args: argparse.Namespace) -> None:
    given = {
        "--method": args.method,
        "--option": args.option,
        "--fit-split": args.fit_split,
        "--augment-runs": args.augment_runs,
        "--log": args.log,
        "--save-fit": args.save_fit,
    }
    refuse(given, "--fitted scores by a fit that is made")
    if args.feature_option and not args.features:
        raise InputError("--feature-option with --fitted needs --features: the file names its extractor's own options")
    if args.find_label_errors and args.labels != "given":
        raise InputError(f"--find-label-errors judges labels, but --labels is '{args.labels}'; leave one of them out")


def _check_labels(args: argparse.Namespace, fitted: difficulty.Fitted, labels: NDArray[np.int64]) -> None:
    missing = np.flatnonzero(labels < 0)
    if args.labels == "given" and _uses_labels(fitted) and len(missing):
        raise InputError(
            f"{args.data} must have a label for every sample, got none at sample {missing[0]} of {len(labels)}; "
            "add --labels predicted, or min"
        )


def _uses_labels(fitted: difficulty.Fitted) -> bool:
    return bool(difficulty.DIFFICULTY.get(fitted.method).facts.get("labels", True))


def _new_data(source: str, split: str | None) -> tuple[Dataset, str]:
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


def extractor_of(path: str, fitted: difficulty.Fitted) -> tuple[str, dict[str, Any]]:
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


def score_by(fitted: difficulty.Fitted, sources: Sources, labels: str) -> Scores:
    """Scores of the data by the fit: to the labels' classes, or to the likeliest or nearest one."""
    rows = sources.need_features()
    _note_extractor(fitted, rows, sources)
    if labels != "given" or not _uses_labels(fitted):
        return fitted.score(rows, "min" if labels == "given" else labels)
    return replace(fitted.score(rows, _labels_of_the_fit(fitted, rows, sources)), labels=rows.labels)


def _labels_of_the_fit(fitted: difficulty.Fitted, rows: Features, sources: Sources) -> NDArray[np.int64]:
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


def _note_extractor(fitted: difficulty.Fitted, rows: Features, sources: Sources) -> None:
    """Features of another extractor may have the same width and mean something else."""
    named = fitted.source.get("extractor")
    if _is_word(named) and _is_word(rows.extractor) and named != rows.extractor:
        sources.notes.append(f"the fit is of features by '{named}', these are by '{rows.extractor}'")


def _is_word(word: Any) -> bool:
    try:
        return word == "cached" or bool(split_word(str(word)))
    except InputError:
        return False
