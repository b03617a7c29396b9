"""Generated answers: multiple choice, confidence in words, agreement of several samples, and files of other tools.

Each becomes `Predictions`, so metrics, calibrators, operating points, paired tests and watches are the ones that any
classifier has. Nothing here calls a model.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
import warnings
from codecs import encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confide.checks import InputError, check_range, did_you_mean, printable
from confide.files import formats
from confide.predictions import Predictions
from confide.types import AnyArray, Columns, Floats, JsonObject, Options

__all__ = [
    "agreement",
    "from_lm_eval",
    "from_lm_polygraph",
    "from_table",
    "from_uqlm",
    "multiple_choice",
    "normalised",
    "parse_confidence",
    "verbalised",
]

TOPIC, QUESTION = "topic", "question"
"""Columns of a record of answers: what a question is about, and which question an answer belongs to."""
RULED_OUT = -1e4
"""Log-probability of a choice that a question does not have; its probability is 0 at any temperature up to 100."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _columns(n: int, topics: Any, **more: Any) -> dict[str, AnyArray]:
    """Columns of a record; those that are None are left out."""
    listed = {name: _listed(values, name, n) for name, values in {TOPIC: topics, **more}.items() if values is not None}
    for name, values in listed.items():
        if any(isinstance(value, (list, tuple, dict)) or getattr(value, "ndim", 0) for value in values):
            raise InputError(f"{name} must be one value for each of the {n} answers, got lists; give one each")
    return {name: np.asarray(values) for name, values in listed.items()}


def _listed(values: Any, name: str, n: int | None = None) -> list[Any]:
    """The values as a list, one for each answer or question."""
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__len__") or not getattr(values, "ndim", 1):
        raise InputError(f"{name} must be a list, one entry for each question, got {printable(repr(values))[:60]}")
    if n is not None and len(values) != n:
        raise InputError(f"{name} must be one for each of the {n} answers, got {len(values)}; check their order too")
    return list(values)


# Multiple choice.


def multiple_choice(
    log_probs: Sequence[Sequence[float]] | NDArray[Any],
    labels: Any = None,
    *,
    lengths: Sequence[Sequence[float]] | None = None,
    ids: Any = None,
    topics: Any = None,
    split: str | None = None,
) -> Predictions:
    """Predictions from the log-probabilities of every choice: p_k = exp(l_k) / sum_j exp(l_j) over the choices.

    Classes are the places of the choices (A, B, ...). Questions may have different numbers of choices.

    Args:
        log_probs: of every question one for each of its choices, as the model gave them to the whole text of a choice.
        labels: place of the right choice, from 0, where known.
        lengths: characters or tokens of every choice; log-probabilities are divided by them (per-length scoring).
        ids: of the questions.
        topics: of the questions, kept as the column `topic`.
        split: `train`, `val` or `test`.

    Returns:
        A record of classes, whose logits are log-probabilities.

    Raises:
        InputError: a question has fewer than two choices, or a number is not finite.

    Example:
        >>> p = confide.answers.multiple_choice([[-1.0, -2.0, -4.0], [-3.0, -2.0]], [0, 1], topics=["law", "art"])
        >>> p
        <Predictions: 2 samples, 3 classes, probabilities>
        >>> [round(c, 3) for c in p.facts.confidence.tolist()]
        [0.705, 0.731]
    """
    rows = [_choice_row(row, k) for k, row in enumerate(_listed(log_probs, "log_probs"))]
    if lengths is not None:
        sizes = [_choice_row(own, k) for k, own in enumerate(_listed(lengths, "lengths", len(rows)))]
        if bad := [
            k for k, (row, own) in enumerate(zip(rows, sizes, strict=True)) if len(own) != len(row) or own.min() <= 0
        ]:
            raise InputError(f"lengths must be above 0, one for each choice, got others at question {bad[0]}")
        rows = [row / own for row, own in zip(rows, sizes, strict=True)]
    width = max((len(row) for row in rows), default=0)
    padded = np.full((len(rows), width), RULED_OUT)
    for k, row in enumerate(rows):
        padded[k, : len(row)] = row - row.max()
    if labels is not None:
        places = _listed(labels, "labels", len(rows))
        for k, (place, row) in enumerate(zip(places, rows, strict=True)):
            if isinstance(place, str) or np.ndim(place) or place not in range(len(row)):
                raise InputError(
                    f"labels must be places of choices from 0, got {printable(str(place))[:40]} at question {k} "
                    f"with {len(row)} choices; do they start at 1?"
                )
    names = tuple(LETTERS[:width]) if width <= len(LETTERS) else None
    columns = _columns(len(rows), topics)
    return Predictions.from_log_probs(padded, labels, ids, split, columns=columns, class_names=names)


def _choice_row(values: Any, question: int) -> Floats:
    """One number for each choice of a question."""
    try:
        row = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        row = np.zeros(0)
    if row.ndim != 1 or len(row) < 2 or not np.isfinite(row).all():
        shown = printable(str(values))[:60]
        raise InputError(f"question {question} must have finite log-probabilities of two choices or more, got {shown}")
    return row


# Confidence in words.

CONFIDENCE = "confidence"
"""What follows this word is the confidence that a text states."""
NUMBER = r"(?<![\d.])(\d+(?:\.\d+)?|\.\d+)"
PERCENT = re.compile(NUMBER + r"(?:\s*%?\s*(?:-|–|to)\s*(\d+(?:\.\d+)?))?\s*(?:%|per\s?cent\b)")
RATIO = re.compile(NUMBER + r"\s*(?:/|out of)\s*(\d+(?:\.\d+)?)(?![\d.])")
BARE = re.compile(NUMBER + r"(?![\d%])")
WORDS = {
    0.03: ("almost no chance", "remote", "almost certainly not", "almost impossible"),
    0.125: ("very unlikely", "highly unlikely", "highly improbable", "very improbable"),
    0.325: ("unlikely", "improbable", "probably not", "not likely", "not probable"),
    0.5: ("roughly even", "about even", "even chance", "even odds", "fifty-fifty", "50-50", "50/50"),
    0.675: ("likely", "probably", "probable"),
    0.875: ("very likely", "highly likely", "very probable", "highly probable", "very probably"),
    0.97: ("almost certain", "almost certainly", "nearly certain", "virtually certain"),
}
"""Words of likelihood, at the middle of the ranges of Intelligence Community Directive 203 (2015)."""
PHRASES = {phrase: value for value, phrases in WORDS.items() for phrase in phrases}


def parse_confidence(
    text: str, *, out_of: float | None = None, words: Mapping[str, float] | None = None
) -> float | None:
    """The confidence that a text states, as a probability; None where it states none, or several.

    What follows the last word "confidence" counts, where there is one. There the first of these rules that finds
    anything decides: a percentage (of a range the middle); a ratio ("8/10", "8 out of 10"); a bare number; words of
    likelihood, the longest first. A bare number is a probability if it is 0 or has decimals and is at most 1, and a
    percentage if it is a whole number from 2 to 100; a bare 1 may be either and is not read. Values that contradict
    each other, or lie outside 0 to 100 %, are not read.

    Args:
        text: what the model wrote, such as "Confidence: 85 %" or "very likely".
        out_of: what bare numbers are out of (1, 10, 100), where that is known.
        words: further words with their probabilities, or others for those that are known.

    Returns:
        A number from 0 to 1, or None.

    Example:
        >>> [confide.answers.parse_confidence(t) for t in ("85 %", "Very likely.", "8 out of 10", "no idea", "1")]
        [0.85, 0.875, 0.8, None, None]
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    folded = folded.rpartition(CONFIDENCE)[2] or folded
    phrases = {**PHRASES, **{word.casefold(): value for word, value in (words or {}).items()}}
    finders: tuple[Callable[[], list[float]], ...] = (
        lambda: [float(phrases[p]) for p in ("50-50", "50/50") if p in folded],
        lambda: [(float(a) + float(b or a)) / 200 for a, b in PERCENT.findall(folded)],
        lambda: [float(a) / float(b) if float(b) else math.nan for a, b in RATIO.findall(folded)],
        lambda: [_bare(number, out_of) for number in BARE.findall(folded)],
        lambda: _phrases(folded, phrases),
    )
    for find in finders:
        if values := find():
            value = values[0]
            return value if 0 <= value <= 1 and all(other == value for other in values) else None
    return None


def _bare(number: str, out_of: float | None) -> float:
    value = float(number)
    if out_of is not None:
        return value / out_of
    if value == 0 or ("." in number and value <= 1):
        return value
    return value / 100 if "." not in number and value >= 2 else math.nan


def _phrases(text: str, phrases: Mapping[str, float]) -> list[float]:
    """Values of the phrases in a text; one inside a longer one does not count, one after "not" or "un" is none."""
    values = []
    for phrase in sorted(phrases, key=len, reverse=True):
        pattern = rf"(?<![\w-])(not |n't )?{re.escape(phrase)}(?![\w-])"
        for match in re.finditer(pattern, text):
            values.append(math.nan if match[1] else float(phrases[phrase]))
        text = re.sub(pattern, " ", text)
    return values


def verbalised(
    texts: Sequence[str],
    correct: Any = None,
    *,
    unparsed: float | None = None,
    out_of: float | None = None,
    words: Mapping[str, float] | None = None,
    ids: Any = None,
    questions: Any = None,
    topics: Any = None,
    split: str | None = None,
) -> Predictions:
    """Pairs of the confidence that a model put into words (`parse_confidence`) and whether it was right.

    Answers whose confidence cannot be read are counted in a warning and left out, or get a stated confidence.

    Args:
        texts: what the model wrote about its confidence, n.
        correct: 0 or 1, n, where known.
        unparsed: confidence of answers whose text states none; None leaves them out. Two models are compared on the
            same answers, so give one there.
        out_of: what bare numbers are out of, where that is known.
        words: further words with their probabilities.
        ids: of the answers.
        questions: which question each answer belongs to, where one has several: the unit of resampling.
        topics: kept as the column `topic`.
        split: `train`, `val` or `test`.

    Returns:
        A record of confidence and correctness.

    Raises:
        InputError: no text states a confidence.

    Example:
        >>> p = confide.answers.verbalised(["I am 90 % sure", "likely", "0.6"], [1, 1, 0])
        >>> p.facts.confidence.tolist()
        [0.9, 0.675, 0.6]
    """
    texts = _listed(texts, "texts")
    if unparsed is not None:
        check_range(unparsed, "unparsed", 0.0, 1.0)
    values = np.array([_or_nan(parse_confidence(str(text), out_of=out_of, words=words)) for text in texts])
    missing = np.isnan(values)
    if len(values) and missing.all():
        shown = printable(str(texts[0]))[:60]
        raise InputError(f"no text states a confidence, the first is '{shown}'; name its words with words=")
    if missing.any():
        first = printable(str(texts[int(missing.argmax())]))[:60]
        done = "they are left out" if unparsed is None else f"they get the confidence {unparsed:g}"
        count = f"{int(missing.sum()):,} of {len(values):,} answers"
        warnings.warn(f"{count} state no confidence that can be read, the first '{first}'; {done}", stacklevel=2)
    columns = _columns(len(values), topics, **{QUESTION: questions})
    record = Predictions.from_pairs(
        correct,
        np.where(missing, 0.5 if unparsed is None else unparsed, values),
        ids,
        split=split,
        unit=None if questions is None else QUESTION,
        **columns,
    )
    return record.take(~missing) if unparsed is None and missing.any() else record


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


# Agreement of several samples.


def normalised(text: str) -> str:
    """A text as it is compared: Unicode NFKC, no upper case, single spaces, words without punctuation around them.

    Args:
        text: an answer.

    Returns:
        The same for answers that differ only in these; signs inside a word or number stay: -5, 3.5, U.S.

    Example:
        >>> confide.answers.normalised("  The Answer:  **Paris**. ")
        'the answer paris'
    """
    words = unicodedata.normalize("NFKC", text).casefold().split()
    return " ".join(filter(None, (word.strip(".,;:!?\"'`()[]{}*_“”‘’«»") for word in words)))


def same_text(a: str, b: str) -> bool:
    """Whether two answers are equal once normalised."""
    return normalised(a) == normalised(b)


@dataclass(frozen=True)
class _Vote:
    """The answer that most samples gave, its share, and the place of its first sample."""

    answer: str
    share: float
    first: int


def _vote(samples: Sequence[str], same: Callable[[str, str], bool]) -> _Vote:
    groups: list[list[int]] = []
    for k, sample in enumerate(samples):
        for group in groups:
            if same(samples[group[0]], sample):
                group.append(k)
                break
        else:
            groups.append([k])
    largest = max(groups, key=len)  # of equals the one that came first
    return _Vote(samples[largest[0]], len(largest) / len(samples), largest[0])


def agreement(
    samples: Sequence[Sequence[str]],
    references: Sequence[str | Sequence[str]] | None = None,
    *,
    correct: Sequence[Any] | None = None,
    answers: Sequence[str] | None = None,
    same: Callable[[str, str], bool] = same_text,
    ids: Any = None,
    topics: Any = None,
    split: str | None = None,
) -> Predictions:
    """Confidence of an answer = share of samples that agree with it; one row, and one unit of resampling, a question.

    Args:
        samples: of every question, the texts that were sampled for it.
        references: of every question the right answer, or several that count as right.
        correct: instead of references: of every question whether each sample was right, or with `answers` whether the
            answer was.
        answers: the answer that was given, n; by default the one that most samples agree on, of equals the first.
        same: whether two texts are the same answer; by default equal once `normalised`.
        ids: of the questions.
        topics: of the questions, kept as the column `topic`.
        split: `train`, `val` or `test`.

    Returns:
        A record of confidence and correctness, with the columns `answer` and `samples` (how many).

    Raises:
        InputError: a question has no sample, or both references and correct are given.

    Example:
        >>> samples = [["Paris", "paris.", "Lyon"], ["4", "5", "4", "4"]]
        >>> p = confide.answers.agreement(samples, ["Paris", "5"])
        >>> p.facts.correct.tolist(), p.facts.confidence.tolist(), p.columns["answer"].tolist()
        ([True, False], [0.6666666666666666, 0.75], ['Paris', '4'])
    """
    if references is not None and correct is not None:
        raise InputError("agreement takes references= or correct=, got both; leave one of them out")
    samples = [
        [str(text) for text in _listed(own, f"samples of question {k}")]
        for k, own in enumerate(_listed(samples, "samples"))
    ]
    empty = [k for k, texts in enumerate(samples) if not len(texts)]
    if empty:
        raise InputError(f"every question must have samples, got none at question {empty[0]}; drop it")
    votes = [_vote(texts, same) for texts in samples]
    if answers is not None:
        answers = [str(own) for own in _listed(answers, "answers", len(samples))]
        shares = [
            sum(same(own, text) for text in texts) / len(texts) for own, texts in zip(answers, samples, strict=True)
        ]
        votes = [_Vote(own, share, 0) for own, share in zip(answers, shares, strict=True)]
    right: list[bool] | None = None
    if references is not None:
        listed = _listed(references, "references", len(samples))
        accepted = [list(map(str, own)) if isinstance(own, (list, tuple, np.ndarray)) else [str(own)] for own in listed]
        right = [any(same(v.answer, reference) for reference in own) for v, own in zip(votes, accepted, strict=True)]
    elif correct is not None:
        judged = _listed(correct, "correct", len(samples))
        if answers is None:
            lists = [_listed(own, f"correct of question {k}", len(samples[k])) for k, own in enumerate(judged)]
            judged = [own[vote.first] for vote, own in zip(votes, lists, strict=True)]
        right = [_judged(own, "correct", k) for k, own in enumerate(judged)]
    columns = _columns(len(votes), topics, answer=[v.answer for v in votes], samples=[len(s) for s in samples])
    return Predictions.from_pairs(right, [v.share for v in votes], ids, split=split, **columns)


# Files of other tools.

LM_EVAL_FACTS = ("doc_id", "target", "filtered_resps")
"""What every line of a samples file of lm-evaluation-harness has."""
LM_EVAL_KINDS: dict[str, type] = {"filtered_resps": list, "resps": list, "metrics": list, "doc": dict}
OPTIONAL_TASK = re.compile(r"samples_(.+?)_\d{4}-\d\d-\d\dT[\d.:-]+$")


def from_lm_eval(
    path: str | Path,
    *,
    metric: str | None = None,
    filter: str | None = None,
    topic: str | None = None,
    per_length: bool = False,
    unparsed: float | None = None,
    split: str | None = None,
) -> Predictions:
    """Predictions from `samples_*.jsonl` of lm-evaluation-harness (`--log_samples`), a file or a folder of them.

    Multiple choice tasks give a record of classes from their log-probabilities. Of generated answers, several samples a
    question give agreement, one gives the confidence that it states behind the word "confidence" (other numbers in it
    may be the answer); `metric` says which were right.

    Args:
        path: of the file, or of a folder: then every file is a topic, unless `topic` names one.
        metric: of generated answers, the field that says whether they were right, such as `exact_match`; by default the
            only one the file names.
        filter: which of the task's ways to read an answer counts, such as `strict-match`, where the file holds several.
        topic: a field of the documents, such as `subject`; by default the task.
        per_length: divide log-probabilities by the characters of each choice, as the metric `acc_norm` does.
        unparsed: confidence of answers that state none; None leaves them out.
        split: `train`, `val` or `test`.

    Returns:
        The record, with ids `task/doc_id`.

    Raises:
        InputError: a line lacks what such a file has, several filters are there and none is named, or multiple choice
            and generated answers are mixed.

    Example:
        >>> from pathlib import Path
        >>> line = '{"doc_id": 0, "target": "1", "filtered_resps": [["-3.1", "False"], ["-0.4", "True"]], "acc": 1.0}'
        >>> _ = Path("samples_arc_2024-05-01T10-00-00.jsonl").write_text(line)
        >>> p = confide.answers.from_lm_eval("samples_arc_2024-05-01T10-00-00.jsonl")
        >>> p.ids.tolist(), p.labels.tolist(), p.columns["topic"].tolist()
        (['arc/0'], [1], ['arc'])
    """
    folder = Path(path)
    paths = sorted(folder.glob("**/samples_*.jsonl")) if folder.is_dir() else [folder]
    if not paths:
        raise InputError(f"{path} must hold files samples_*.jsonl, got none; write them with --log_samples")
    records = [(task_of(p), record) for p in paths for record in _json_lines(p)]
    filters: dict[str, set[str]] = {}
    for task, record in records:
        filters.setdefault(task, set()).add(str(record.get("filter")))
    if filter is not None and filter not in (known := sorted(set().union(*filters.values()))):
        raise InputError(f"{path} has no filter '{filter}'; {did_you_mean(filter, known)}")
    for task, several in filters.items():
        if len(several) > 1 and filter is None:
            names = ", ".join(sorted(several))
            raise InputError(
                f"task '{task}' of {path} holds every answer under {len(several)} filters ({names}); name one"
            )
    records = [
        (task, record) for task, record in records if len(filters[task]) == 1 or str(record.get("filter")) == filter
    ]
    with formats.reading(path, "file of samples of lm-evaluation-harness"):
        return _lm_eval_predictions(records, str(path), metric, topic, per_length, unparsed, split)


def _lm_eval_predictions(
    records: list[tuple[str, JsonObject]],
    path: str,
    metric: str | None,
    topic: str | None,
    per_length: bool,
    unparsed: float | None,
    split: str | None,
) -> Predictions:
    for task, record in records:
        if lacks := [name for name in LM_EVAL_FACTS if name not in record]:
            raise InputError(f"samples of task '{task}' must have '{lacks[0]}', got {', '.join(list(record)[:8])}")
        for name, kind in LM_EVAL_KINDS.items():
            value = record.get(name)
            if value is not None and (not isinstance(value, kind) or (kind is list and not value)):
                needs = "an object" if kind is dict else "a list that is not empty"
                where = f"document {record['doc_id']} of task '{task}'"
                raise InputError(f"'{name}' of {where} must be {needs}, got {value!r:.40}; write the samples again")
    ids = [f"{task}/{record['doc_id']}" for task, record in records]
    topics = [task if topic is None else str(_document(record).get(topic)) for task, record in records]
    if topic is not None and (gone := [k for k, (_, r) in enumerate(records) if topic not in _document(r)]):
        known = list(_document(records[gone[0]][1]))
        raise InputError(f"documents of {path} have no field '{topic}'; {did_you_mean(topic, known)}")
    lines = [record for _, record in records]
    chosen = [all(isinstance(response, list) and len(response) == 2 for response in r["filtered_resps"]) for r in lines]
    if all(chosen):
        return _choices_of(lines, ids, topics, per_length, split, str(path))
    if any(chosen):
        raise InputError(f"{path} mixes multiple choice with generated answers; read one kind at a time")
    if metric is None:
        named = {str(name) for line in lines for name in line.get("metrics") or ()}
        if len(named) != 1:
            raise InputError(
                f"metric= must name what says whether answers of {path} were right, got {len(named)} candidates "
                f"({', '.join(sorted(named))}); name one"
            )
        (metric,) = named
    right = [_judged(line.get(metric), metric, k) for k, line in enumerate(lines)]
    texts = [[_first_text(sample) for sample in _samples_of(line)] for line in lines]
    common: Options = {"ids": ids, "topics": topics, "split": split}
    if all(len(own) > 1 for own in texts):
        answers = [_first_text(line["filtered_resps"][0]) for line in lines]
        return agreement(texts, answers=answers, correct=right, **common)
    # A number without that word may be the answer itself: "42" is no confidence of 42 %.
    stated = [own[0] if CONFIDENCE in own[0].casefold() else "" for own in texts]
    if not any(stated):
        raise InputError(
            f"answers of {path} must state a confidence behind the word '{CONFIDENCE}', or have several samples a "
            f"question, got '{printable(texts[0][0])[:60]}'; ask the model for it, or set repeats: of the task"
        )
    return verbalised(stated, right, unparsed=unparsed, **common)


def _document(record: JsonObject) -> JsonObject:
    return record.get("doc") or {}


def task_of(path: Path) -> str:
    """The task of a samples file, from its name."""
    match = OPTIONAL_TASK.fullmatch(path.stem)
    return match[1] if match else path.stem.removeprefix("samples_")


def _json_lines(path: Path) -> Iterator[JsonObject]:
    with formats.reading(path, "jsonl file"), open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if line.strip():
                value = formats.parse_json(line, f"line {number + 1} of {path}")
                if not isinstance(value, dict):
                    raise InputError(f"line {number + 1} of {path} must be a JSON object, got {type(value).__name__}")
                yield value


def _choices_of(
    lines: list[JsonObject], ids: list[str], topics: list[str], per_length: bool, split: str | None, where: str
) -> Predictions:
    log_probs = [[float(pair[0]) for pair in line["filtered_resps"]] for line in lines]
    texts = [_choice_texts(line) for line in lines] if per_length or not _are_places(lines) else None
    labels = [_place_of(line, None if texts is None else texts[k], k, where) for k, line in enumerate(lines)]
    lengths = None if not per_length or texts is None else [[max(len(t), 1) for t in own] for own in texts]
    predictions = multiple_choice(log_probs, labels, lengths=lengths, ids=ids, topics=topics, split=split)
    stated = "acc_norm" if per_length else "acc"
    if all(stated in line for line in lines):
        right = np.array([float(line[stated]) == 1 for line in lines])
        differs = int((right != predictions.facts.correct.numpy()).sum())
        if differs:
            warnings.warn(
                f"{differs:,} of {len(lines):,} answers of {where} are judged otherwise by its '{stated}' than by the "
                "likeliest choice",
                stacklevel=4,
            )
    return predictions


def _are_places(lines: list[JsonObject]) -> bool:
    return all(str(line["target"]).isdecimal() for line in lines)


def _choice_texts(line: JsonObject) -> list[str]:
    """The texts of the choices, from the arguments the model was called with: (context, choice) each."""
    arguments = line.get("arguments", [])
    calls = list(arguments.values()) if isinstance(arguments, dict) else arguments
    pairs = [list(call.values()) if isinstance(call, dict) else call for call in calls]
    return [str(pair[1]).strip() for pair in pairs if len(pair) > 1]


def _place_of(line: JsonObject, texts: list[str] | None, number: int, where: str) -> int:
    """The place of the right choice: given as such, or as its text."""
    target = str(line["target"]).strip()
    if target.isdecimal():
        return int(target)
    if texts is None or target not in texts:
        raise InputError(
            f"the target of question {number} of {where} must be the place or the text of a choice, got "
            f"'{printable(target)[:40]}'; give the place"
        )
    return texts.index(target)


def _samples_of(line: JsonObject) -> list[Any]:
    """The generated samples of a question: `resps` is a list of requests with their samples."""
    whole = line.get("resps") or line["filtered_resps"]
    return whole[0] if len(whole) == 1 and isinstance(whole[0], list) else whole


def _first_text(value: Any) -> str:
    while isinstance(value, list) and value:
        value = value[0]
    return str(value)


def _judged(value: Any, metric: str, number: int) -> bool:
    if getattr(value, "ndim", 0) or value not in (0, 1):
        raise InputError(f"'{metric}' must be 0 or 1, got {value!r:.40} at answer {number}; choose another metric")
    return bool(value)


NO_CONFIDENCE = re.compile(r"entropy_values?(_|$)|^num_\w+_sets?$")
"""Columns of uqlm that are high for unsure answers: entropies and numbers of meanings."""


def from_uqlm(
    path: str | Path,
    score: str,
    *,
    correct: str | None = None,
    references: str | None = None,
    topic: str | None = None,
    split: str | None = None,
) -> Predictions:
    """Pairs from a table of uqlm (`results.to_df()` saved as csv, parquet or jsonl): one of its scores as confidence.

    Args:
        path: of the table, with the column `response`.
        score: the column of the score, such as `noncontradiction`; uqlm's scores lie in [0, 1], high = sure. Its
            entropies and numbers of sets are no scores.
        correct: the column that says whether the response was right (0 or 1), which you add.
        references: instead of that, the column of right answers; equal to the response once `normalised` is right.
        topic: the column of topics.
        split: `train`, `val` or `test`.

    Returns:
        A record of confidence and correctness, with the other columns of one value a row.

    Raises:
        InputError: a column is not there, is high for unsure answers, or has values outside [0, 1].

    Example:
        >>> from pathlib import Path
        >>> text = "prompt,response,noncontradiction,graded\\nCapital?,Paris,0.9,1\\nYear?,1900,0.4,0"
        >>> _ = Path("uqlm.csv").write_text(text)
        >>> confide.answers.from_uqlm("uqlm.csv", "noncontradiction", correct="graded")
        <Predictions: 2 samples, confidence and correctness>
    """
    columns, _ = formats.read_table(path)
    with formats.reading(path, "table of uqlm"):
        return _uqlm_predictions(columns, path, score, correct, references, topic, split)


def _uqlm_predictions(
    columns: Columns,
    path: str | Path,
    score: str,
    correct: str | None,
    references: str | None,
    topic: str | None,
    split: str | None,
) -> Predictions:
    used = {"score": score, "correct": correct, "references": references, "topic": topic}
    _check_columns(columns, [name for name in used.values() if name is not None], path)
    if NO_CONFIDENCE.search(score):
        raise InputError(
            f"'{score}' of {path} is high for unsure answers; name a score that is high for sure ones, such as "
            "discrete_confidence_score or semantic_negentropy"
        )
    right: Any = columns[correct] if correct is not None else None
    if references is not None:
        _check_columns(columns, ["response"], path)
        pairs = zip(columns["response"].tolist(), columns[references].tolist(), strict=True)
        right = [same_text(str(response), str(reference)) for response, reference in pairs]
    if columns[score].ndim != 1 or columns[score].dtype.kind not in "fiub":
        raise InputError(
            f"the scores '{score}' of {path} must be one number an answer, got others; name another column"
        )
    known, values = _known(columns[score].astype(np.float64), f"scores '{score}' of {path}")
    others: dict[str, AnyArray] = {
        name: own for name, own in columns.items() if own.ndim == 1 and name not in (score, correct)
    }
    others = {{topic: TOPIC}.get(name, name): own[known] for name, own in others.items()}
    record = Predictions.from_pairs(None if right is None else np.asarray(right)[known], values[known], split=split)
    return record.replace(columns=others)


def _known(values: Floats, what: str) -> tuple[NDArray[np.bool_], Floats]:
    """Which values are numbers; the others are counted in a warning."""
    known = ~np.isnan(values)
    if not known.all():
        count = f"{int((~known).sum()):,} of {len(values):,}"
        warnings.warn(f"{count} {what} are missing; these answers are left out", stacklevel=3)
    return known, values


def _check_columns(columns: Columns, names: Sequence[str], path: str | Path) -> None:
    for name in names:
        if name not in columns:
            raise InputError(f"{path} has no column '{name}'; {did_you_mean(name, columns)}")


def _plain_classes() -> list[Any]:
    """What torch's loader of plain data may make beside tensors and containers: numbers and arrays of numpy."""
    multiarray = import_module("numpy._core.multiarray" if hasattr(np, "_core") else "numpy.core.multiarray")
    kinds = {type(np.dtype(code)) for code in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")}
    both = [(multiarray.scalar, f"numpy.{core}.multiarray.scalar") for core in ("core", "_core")]
    both += [(multiarray._reconstruct, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")]
    # The loader fills plain dictionaries only, and lm-polygraph writes some that have a default.
    return [*both, (lambda default=None: {}, "collections.defaultdict"), np.dtype, np.ndarray, *kinds, list, encode]


PROBABILITY_ESTIMATORS = ("MaximumSequenceProbability",)
"""Estimators of lm-polygraph whose uncertainty u is minus a log-probability: the confidence is exp(-u)."""


def from_lm_polygraph(
    path: str | Path, estimator: str, metric: str, *, threshold: float | None = None, split: str | None = None
) -> Predictions:
    """Pairs from a results file of lm-polygraph (`UEManager.save`): an estimator's uncertainty u as confidence.

    Of `MaximumSequenceProbability` the confidence is exp(-u). Of others u has no scale: it becomes 1 / (1 + exp(u)),
    which keeps the ranking and on which `calibrators.fit("platt", ...)` is Platt scaling of u; before that it must not
    be read as a probability, and a warning says so.

    Args:
        path: of the file; it is read by torch as plain data (`weights_only`): nothing in it is run.
        estimator: its name in the file.
        metric: the generation metric that says whether a text was right, such as `Accuracy`.
        threshold: texts with a metric of at least this are right; needed where it is not 0 or 1.
        split: `train`, `val` or `test`.

    Returns:
        A record of confidence and correctness, with the columns `uncertainty` and where known `answer`.

    Raises:
        InputError: an estimator or metric is not there, or the file holds objects that are not plain data.

    Example:
        >>> import torch
        >>> values = {"Perplexity": [0.1, 2.0]}, {"EM": [1, 0]}
        >>> parts = [{("sequence", name): own for name, own in part.items()} for part in values]
        >>> torch.save({"estimations": parts[0], "gen_metrics": parts[1]}, "run.man")
        >>> p = confide.answers.from_lm_polygraph("run.man", "Perplexity", "EM")  # doctest: +SKIP
        >>> p.facts.correct.tolist()  # doctest: +SKIP
        [True, False]
    """
    with formats.reading(path, "results file of lm-polygraph"), torch.serialization.safe_globals(_plain_classes()):
        record = torch.load(path, weights_only=True, map_location="cpu")
    values = _sequence_values(record, "estimations", estimator, path)
    quality = _sequence_values(record, "gen_metrics", metric, path)
    if len(values) != len(quality):
        raise InputError(f"{path} has {len(values)} uncertainties and {len(quality)} metrics; they must be of one run")
    known, _ = _known(values + quality, f"values of '{estimator}' and '{metric}' in {path}")
    uncertainty, quality = values[known], quality[known]
    if threshold is None and not np.isin(quality, (0.0, 1.0)).all():
        raise InputError(f"'{metric}' of {path} must be 0 or 1, got others; say from where it is right: threshold=")
    right = quality >= (1.0 if threshold is None else threshold)
    if estimator in PROBABILITY_ESTIMATORS:
        confidence = np.exp(-np.maximum(uncertainty, 0.0))
    else:
        confidence = np.exp(-np.logaddexp(0.0, uncertainty))
        warnings.warn(
            f"the uncertainty '{estimator}' is no probability: confidences keep its ranking and must be calibrated "
            "(platt) before they are read as such",
            stacklevel=2,
        )
    columns: dict[str, AnyArray] = {"uncertainty": uncertainty}
    texts = record.get("stats", {}).get("greedy_texts")
    if texts is not None and len(texts) == len(known):
        columns["answer"] = np.array([str(text) for text in texts])[known]
    return Predictions.from_pairs(right, confidence, np.flatnonzero(known), split=split, **columns)


def _sequence_values(record: Any, kind: str, name: str, path: str | Path) -> Floats:
    table = record.get(kind) if isinstance(record, dict) else None
    if not isinstance(table, dict):
        raise InputError(f"{path} must be a results file of lm-polygraph with '{kind}', got something else")
    known = {str(key[1]): values for key, values in table.items() if isinstance(key, tuple) and key[0] == "sequence"}
    if name not in known:
        raise InputError(f"{path} has no '{name}' of whole sequences; {did_you_mean(name, known)}")
    return np.array([float(value) for value in known[name]], dtype=np.float64)


def from_table(
    path: str | Path,
    *,
    stated: str | None = None,
    samples: str | None = None,
    log_probs: str | None = None,
    correct: str | None = None,
    reference: str | None = None,
    label: str | None = None,
    question: str | None = None,
    topic: str | None = None,
    unparsed: float | None = None,
    split: str | None = None,
) -> Predictions:
    """Predictions from a table of answers (csv, parquet, jsonl), by the names of its columns.

    Args:
        path: of the table; a column `id` names the answers.
        stated: the column of texts that state a confidence (`verbalised`).
        samples: the column of lists of sampled answers, or of JSON texts that hold them (`agreement`).
        log_probs: the column of lists of log-probabilities, likewise (`multiple_choice`).
        correct: the column that says whether an answer was right: of samples a list, one for each.
        reference: the column of right answers, for samples.
        label: the column of the right choice's place, for log-probabilities.
        question: the column of the question that several answers belong to: the unit of resampling.
        topic: the column of topics.
        unparsed: confidence of answers that state none; None leaves them out.
        split: `train`, `val` or `test`.

    Returns:
        The record.

    Raises:
        InputError: not exactly one of stated, samples and log_probs is given, or a column is not there.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("said.csv").write_text("id,said,right\\na,85 %,1\\nb,unlikely,0")
        >>> confide.answers.from_table("said.csv", stated="said", correct="right").facts.confidence.tolist()
        [0.85, 0.325]
    """
    sources = [name for name in (stated, samples, log_probs) if name is not None]
    if len(sources) != 1:
        raise InputError(f"a table of answers needs one of stated, samples and log_probs, got {len(sources)}; give one")
    columns, _ = formats.read_table(path)
    named = (stated, samples, log_probs, correct, reference, label, question, topic)
    _check_columns(columns, [name for name in named if name is not None], path)

    def column(name: str | None) -> Any:
        return None if name is None else columns[name]

    common: Options = {"ids": columns.get("id"), "topics": column(topic), "split": split}
    if stated is not None:
        texts = [str(text) for text in columns[stated].tolist()]
        return verbalised(texts, column(correct), unparsed=unparsed, questions=column(question), **common)
    if question is not None:
        raise InputError("question= belongs to stated=: samples and log_probs have one row a question; leave it out")
    if samples is not None:
        judged = None if correct is None else _lists(columns[correct], correct, path)
        references = None if reference is None else [_list_or_text(v) for v in columns[reference].tolist()]
        texts_of = [[str(text) for text in own] for own in _lists(columns[samples], samples, path)]
        return agreement(texts_of, references, correct=judged, **common)
    assert log_probs is not None
    return multiple_choice(_lists(columns[log_probs], log_probs, path), column(label), **common)


def _lists(values: NDArray[Any], name: str, path: str | Path) -> list[list[Any]]:
    """A column of lists, or of JSON texts that hold them."""
    parsed = [json.loads(value) if isinstance(value, str) and value[:1] == "[" else value for value in values.tolist()]
    if bad := [k for k, value in enumerate(parsed) if not isinstance(value, list)]:
        raise InputError(f"column '{name}' of {path} must hold lists, got {parsed[bad[0]]!r:.40} at row {bad[0]}")
    return parsed


def _list_or_text(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) and value[:1] == "[" else str(value)
