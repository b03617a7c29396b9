"""Hard samples in words: what they are closer to than the easy ones of their class, by a text encoder."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.checks import InputError, check_range
from confide.records import Features, Scores
from confide.types import JsonObject


@dataclass(frozen=True)
class ClassWords:
    """Words of one class: those the hard samples lean to, those the easy ones lean to, with how far."""

    label: int
    hard: tuple[str, ...]
    hard_lean: tuple[float, ...]
    easy: tuple[str, ...]
    easy_lean: tuple[float, ...]

    def as_dict(self) -> JsonObject:
        """As JSON holds it."""
        return asdict(self)


def read_vocabulary(path: str | Path) -> tuple[str, ...]:
    """Words of a text file, one a line; empty lines and repetitions are left out.

    Args:
        path: of the text file, UTF-8.

    Returns:
        The words, in the order of the file.

    Raises:
        InputError: no such file, or no word in it.

    Example:
        >>> from pathlib import Path
        >>> chars = Path("words.txt").write_text(chr(10).join(["dark", "", "blurred", "dark"]))
        >>> confide.difficulty.read_vocabulary("words.txt")
        ('dark', 'blurred')
    """
    file = Path(path)
    if not file.is_file():
        raise InputError(f"{file} must be a text file of words, one a line, but it does not exist")
    words = dict.fromkeys(line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    vocabulary = tuple(word for word in words if word)
    if not vocabulary:
        raise InputError(f"{file} must hold at least one word, got none")
    return vocabulary


def explain(
    features: Features, scores: Scores, vocabulary: tuple[str, ...], embedded: Any, *, each: int = 5, part: float = 0.2
) -> tuple[ClassWords, ...]:
    """For every class, the words whose cosine with the hard samples exceeds that with the easy ones the most.

    Args:
        features: of the samples, by an extractor that also embeds words.
        scores: their difficulty, matched by id.
        vocabulary: the words.
        embedded: the vocabulary in the features' space, one row a word (a CLIP-like text side).
        each: words per end.
        part: share of a class that counts as hard, and as easy.

    Returns:
        The `ClassWords` of every class.

    Raises:
        InputError: the words are not embedded in the features' space.

    Example:
        >>> import numpy as np
        >>> rows = np.array([[1.0, 0.0], [1.0, 0.1], [0.9, 0.2], [0.1, 1.0]])
        >>> features = confide.Features(rows, np.zeros(4, np.int64), np.arange(4), "clip")
        >>> scores = confide.Scores(np.arange(4), np.array([0.0, 0.1, 0.2, 3.0]), "rmd")
        >>> words = confide.difficulty.explain(features, scores, ("bright", "dark"), np.eye(2), each=1)
        >>> words[0].hard, words[0].easy
        (('dark',), ('bright',))
    """
    check_range(part, "part", 0, 0.5, low_open=True)
    words = np.asarray(embedded, dtype=np.float64)
    if words.shape != (len(vocabulary), features.dim):
        raise InputError(
            f"words must be embedded in the features' space, {len(vocabulary)} x {features.dim}, got {words.shape}; "
            "use the extractor that made the features"
        )
    words = _unit(words)
    values = scores.of(features.ids)
    class_words = []
    for label in np.unique(features.labels):
        rows = np.flatnonzero(features.labels == label)
        rows = rows[np.argsort(values[rows], kind="stable")]
        take = max(1, round(part * len(rows)))
        easy, hard = (_unit(np.asarray(features.values[r], dtype=np.float64)) for r in (rows[:take], rows[-take:]))
        lean = words @ (hard.mean(axis=0) - easy.mean(axis=0))
        order = np.argsort(-lean, kind="stable")
        top, bottom = order[:each], order[::-1][:each]
        class_words.append(
            ClassWords(
                int(label),
                tuple(vocabulary[k] for k in top),
                tuple(float(lean[k]) for k in top),
                tuple(vocabulary[k] for k in bottom),
                tuple(float(-lean[k]) for k in bottom),
            )
        )
    return tuple(class_words)


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))
