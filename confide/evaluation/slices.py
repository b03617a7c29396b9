"""Where is confidence most wrong? Groups of samples whose accuracy differs from their confidence, beyond chance.

Half of the samples proposes slices, the other half tests them: what is claimed was not chosen by the numbers shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from confide.checks import InputError, check_range
from confide.evaluation.compare import holm
from confide.evaluation.evaluate import (
    MOST_GROUPS,
    OWN_GROUPS,
    SampleGroups,
    class_groups,
    column_groups,
    difficulty_groups,
)
from confide.numerics.binomial import right_tails
from confide.numerics.neighbours import nearest_centre
from confide.predictions import Predictions, feature_rows
from confide.random import sample_keys, uniform
from confide.records import Features, Scores, rows_of
from confide.results import LEVEL, Measurement, Z
from confide.types import Columns, Flags, Floats, JsonObject

FEWEST = 30
"""Samples of a slice in the half that proposes it."""
CLUSTERS = 20
BANDS = ("lowest fifth", "second fifth", "middle fifth", "fourth fifth", "highest fifth")
APART = 4.0
"""Standard errors that a pair's gap must differ from that of its single value to be told by itself."""
OVERLAP = 0.5
"""Slices that share more than this of their samples are told once, by the one with the clearest gap."""


@dataclass(frozen=True)
class Slice:
    """Samples that meet all conditions, with confidence and accuracy on the half that did not choose them."""

    conditions: tuple[tuple[str, str], ...]
    """(what, value): ("predicted", "Shirt"), ("difficulty", "hardest fifth")."""
    n: int
    confidence: float
    accuracy: float
    low: float
    high: float
    """Of confidence minus accuracy, 95 %."""
    p_value: float
    p_holm: float
    """Corrected for all slices that were tested."""
    share: float
    """Of all samples."""

    @property
    def gap(self) -> float:
        """Confidence minus accuracy."""
        return self.confidence - self.accuracy

    @property
    def name(self) -> str:
        """`predicted=Shirt & difficulty=hardest fifth`."""
        return " & ".join(f"{what}={value}" for what, value in self.conditions)

    def __str__(self) -> str:
        side = "over" if self.gap > 0 else "under"
        return (
            f"{self.name}: says {self.confidence:.1%}, is right {self.accuracy:.1%}, {side}confident by "
            f"{100 * abs(self.gap):.1f} points, n = {self.n:,}"
        )

    def measurement(self, **whose: Any) -> Measurement:
        """As a row of an evaluation, `slice=...`, for its report."""
        return Measurement(
            "confidence_gap",
            self.gap,
            self.n,
            group=f"slice={self.name}",
            p_value=self.p_holm,
            bounds=(self.low, self.high),
            **whose,
        )


@dataclass(frozen=True)
class SliceReport:
    """Slices whose confidence is wrong beyond chance, the clearest first, and what was looked at to find them."""

    slices: tuple[Slice, ...]
    candidates: int
    tested: int
    n: int
    gap: float
    """Confidence minus accuracy of all samples."""
    attributes: tuple[str, ...]
    by_label: tuple[str, ...] = ()
    """What looked at the label: left out, unless it is among the attributes because it was asked for."""

    def __str__(self) -> str:
        looked = f"{self.candidates:,} slices of {', '.join(self.attributes)}; {self.tested} tested on the other half"
        lines = [*map(str, self.slices), f"Looked at {looked}; p < {LEVEL} after Holm's correction."]
        if not self.slices:
            lines = [f"No slice has a gap beyond chance (looked at {looked})."]
        named = [word for word in self.by_label if word in self.attributes]
        left_out = [word for word in self.by_label if word not in self.attributes]
        if named:
            lines.append(f"Mind that {', '.join(named)} looked at the label: a calibrated model too has gaps by that.")
        if left_out:
            lines.append(
                f"Left out, because a calibrated model too has gaps by what looked at the label: {', '.join(left_out)}."
            )
        return "\n".join(lines)

    def to_dict(self) -> JsonObject:
        """Plain dictionary, ready for JSON."""
        rows = [{**asdict(s), "conditions": dict(s.conditions), "gap": s.gap, "name": s.name} for s in self.slices]
        return {**asdict(self), "slices": rows}


def find_slices(
    predictions: Predictions,
    *,
    by: Sequence[str] | None = None,
    scores: Scores | None = None,
    features: Features | None = None,
    most: int = 20,
    level: float = LEVEL,
    seed: int = 0,
) -> SliceReport:
    """Slices of the samples whose confidence is most wrong, with a joint level over all that are claimed.

    Single values and pairs of values of: the predicted class, columns, fifths of difficulty and of columns of numbers,
    verdicts of the scores, clusters of features. What looked at the label, as verdicts and many scores of difficulty
    did, is left out unless `by` names it: a calibrated model too has gaps by that. Half of the samples, drawn by id,
    proposes the clearest; the other half tests them (exact tails of the number right, Holm's correction).

    Args:
        predictions: labelled, or pairs of confidence and correctness.
        by: columns to look at; all of them unless given. The label is none: a calibrated model too has gaps by it.
        scores: difficulty and verdicts of these samples, joined by id.
        features: of these samples, joined by id, cut into clusters.
        most: slices to test at most.
        level: how likely a false claim may be, over all slices together.
        seed: of the halves and the clusters.

    Returns:
        A `SliceReport`; `print` shows it.

    Raises:
        InputError: there is nothing to slice by, or a column is not there.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> night = rng.random(4000) < 0.1
        >>> confidence = rng.uniform(0.7, 1.0, 4000)
        >>> right = rng.random(4000) < confidence - 0.3 * night  # too sure at night
        >>> p = confide.Predictions.from_pairs(right, confidence, light=np.where(night, "night", "day"))
        >>> for found in confide.evaluation.find_slices(p).slices:
        ...     print(found.name, found.gap > 0.2)
        light=night True
    """
    check_range(level, "level", 0.0, 1.0, low_open=True, high_open=True)
    check_range(most, "most", 1)
    by = [by] if isinstance(by, str) else by
    if by is not None and not (isinstance(by, (list, tuple)) and all(isinstance(word, str) for word in by)):
        raise InputError(f"by must be names of columns, got {type(by).__name__}; give a list of words")
    predictions.need_unweighted("a search for slices")
    predictions.need_drawn_singly("a test of slices")
    right = predictions.facts.correct.double().cpu().numpy()
    confidence = predictions.facts.sureness()
    by_label = _by_label(predictions, scores)
    attributes = _attributes(predictions, by, scores, features, seed, by_label)
    if not attributes:
        doubtful = f" (what looked at the label must be named: {', '.join(by_label)})" if by_label else ""
        raise InputError(
            f"there is nothing to slice by{doubtful}; give columns, scores or features, or predictions of classes"
        )
    proposing = uniform(seed, sample_keys(predictions.ids), "slices") < 0.5
    candidates = list(_candidates(attributes, confidence - right, proposing))
    chosen = _propose(candidates, attributes, confidence * (1 - confidence), proposing, most)
    tested = [_test(conditions, rows, ~proposing, confidence, right) for conditions, rows in chosen]
    corrected = holm([1.0 if part is None else part.p_value for part in tested])
    slices = [
        replace(part, p_holm=p) for part, p in zip(tested, corrected, strict=True) if part is not None and p < level
    ]
    slices.sort(key=lambda s: -min(abs(s.low), abs(s.high)) if s.low * s.high > 0 else 0.0)
    return SliceReport(
        tuple(slices),
        len(candidates),
        len(tested),
        len(right),
        float(confidence.mean() - right.mean()),
        tuple(a.kind for a in attributes),
        tuple(word for word in by_label if by is None or word in by),
    )


def _by_label(predictions: Predictions, scores: Scores | None) -> list[str]:
    """Words of what is there to slice by and looked at the labels."""
    from confide.difficulty.base import looks_at_labels
    from confide.difficulty.label_errors import LABEL_COLUMNS

    words = [word for word in predictions.columns if word in LABEL_COLUMNS]
    if scores is not None:
        words += ["difficulty"] * looks_at_labels(scores.method)
        words += ["verdict"] * ("verdict" in scores.columns)
    return list(dict.fromkeys(words))


def _attributes(
    predictions: Predictions,
    by: Sequence[str] | None,
    scores: Scores | None,
    features: Features | None,
    seed: int,
    by_label: Sequence[str],
) -> list[SampleGroups]:
    """Every way to group the samples that is asked for, or else that did not look at their labels."""
    known: Columns = dict(predictions.columns)
    if scores is not None:
        rows = rows_of(predictions.ids, scores.ids, "scores")
        known["difficulty"] = scores.values[rows]
        if "verdict" in scores.columns:
            known["verdict"] = np.asarray(scores.columns["verdict"])[rows]
    words = [word for word in (known if by is None else by) if word != "predicted"]
    if by is None:
        words = [word for word in words if word not in by_label]
    missing = [word for word in words if word not in known]
    if missing:
        raise InputError(
            f"column '{missing[0]}' is not there to slice by; there are {', '.join((*OWN_GROUPS[1:2], *known))}"
        )
    groups = []
    if predictions.facts.predicted is not None and (by is None or "predicted" in by):
        groups.append(class_groups(predictions, "predicted"))
    for word in words:
        grouped = _column(word, known[word], explicit=by is not None)
        if grouped is not None:
            groups.append(grouped)
    if features is not None:
        groups.append(_clusters(predictions, features, seed))
    return groups


def _column(name: str, values: Any, explicit: bool) -> SampleGroups | None:
    """Groups of a column: its values where they are few, fifths where they are numbers; None for what tells nothing."""
    array = np.asarray(values)
    if array.ndim != 1:
        if explicit:
            raise InputError(f"column '{name}' must have one value a sample to slice by, got {array.shape[1:]} of them")
        return None
    if array.dtype.kind == "f" or (array.dtype.kind in "iu" and len(np.unique(array)) > MOST_GROUPS):
        numbers = array.astype(np.float64)
        if not np.isfinite(numbers).all():
            if explicit:
                raise InputError(f"column '{name}' must hold finite numbers to slice by; fill the missing ones")
            return None
        if name == "difficulty":
            return difficulty_groups(numbers)
        edges = np.unique(np.quantile(numbers, (0.2, 0.4, 0.6, 0.8)))
        return SampleGroups(name, BANDS[: len(edges) + 1], np.searchsorted(edges, numbers, side="left"))
    if not explicit and len(np.unique(array.astype(np.str_))) > MOST_GROUPS:
        return None
    return column_groups(name, array)


def _clusters(predictions: Predictions, features: Features, seed: int) -> SampleGroups:
    """Clusters of the features by k-means; they never see a label."""
    from confide.difficulty.from_features import kmeans

    values = feature_rows(predictions, features).cpu().numpy()
    centres = kmeans(values, k=min(CLUSTERS, len(values)), seed=seed).centres
    names = tuple(str(k) for k in range(len(centres)))
    return SampleGroups("cluster", names, nearest_centre(values, centres)[1].astype(np.intp))


@dataclass(frozen=True)
class _Candidate:
    """Values of one or two attributes, and what the proposing half says of them."""

    attributes: tuple[int, ...]
    values: tuple[int, ...]
    n: int
    gap: float


def _candidates(attributes: Sequence[SampleGroups], gaps: Floats, rows: Flags) -> Iterator[_Candidate]:
    """Every value and pair of values with enough samples in the proposing half."""
    gap = gaps[rows]
    index = [a.index[rows] for a in attributes]
    sets: list[tuple[int, ...]] = [(k,) for k in range(len(attributes))]
    sets += list(combinations(range(len(attributes)), 2))
    for chosen in sets:
        sizes = [len(attributes[k].names) for k in chosen]
        code = index[chosen[0]] if len(chosen) == 1 else index[chosen[0]] * sizes[1] + index[chosen[1]]
        counts = np.bincount(code, minlength=math.prod(sizes))
        sums = np.bincount(code, gap, minlength=math.prod(sizes))
        for value in np.flatnonzero(counts >= FEWEST):
            values = (int(value),) if len(chosen) == 1 else divmod(int(value), sizes[1])
            yield _Candidate(chosen, tuple(values), int(counts[value]), float(sums[value] / counts[value]))


def _propose(
    candidates: Sequence[_Candidate], attributes: Sequence[SampleGroups], variances: Floats, rows: Flags, most: int
) -> list[tuple[tuple[tuple[str, str], ...], Flags]]:
    """The clearest candidates that do not tell the same twice: by gap less what chance explains of it."""
    spread = float(np.sqrt(variances[rows].mean()))
    singles = {(c.attributes[0], c.values[0]): c for c in candidates if len(c.values) == 1}

    def clearness(c: _Candidate) -> float:
        # Two standard errors are taken off, so that a large slice with a plain gap goes before a tiny one with a wild
        # gap; a pair must be clearer than its single values to be worth the longer name.
        return abs(c.gap) - (2.0 + 0.5 * len(c.values)) * spread / math.sqrt(c.n)

    def whole(c: _Candidate) -> _Candidate:
        """The single value that explains a pair, where its own gap is clear and the pair's is not clearly another."""
        parts = [singles[part] for part in zip(c.attributes, c.values, strict=True) if part in singles]
        parts = [
            part
            for part in parts
            if clearness(part) > 0
            and abs(c.gap - part.gap) <= APART * spread * math.sqrt(max(1 / c.n - 1 / part.n, 0.0))
        ]
        return max(parts, key=clearness, default=c)

    chosen: list[tuple[tuple[tuple[str, str], ...], Flags]] = []
    for candidate in map(whole, sorted(candidates, key=clearness, reverse=True)[: 20 * most]):
        member = np.ones(len(rows), dtype=bool)
        for k, value in zip(candidate.attributes, candidate.values, strict=True):
            member &= attributes[k].index == value
        shared = [(member & other).sum() / min(member.sum(), other.sum()) for _, other in chosen]
        if any(share > OVERLAP for share in shared):
            continue
        names = tuple(
            (attributes[k].kind, attributes[k].names[value])
            for k, value in zip(candidate.attributes, candidate.values, strict=True)
        )
        chosen.append((names, member))
        if len(chosen) == most:
            break
    return chosen


def _test(
    conditions: tuple[tuple[str, str], ...], members: Flags, testing: Flags, confidence: Floats, right: Floats
) -> Slice | None:
    """The slice on the testing half, with the p of "its confidence is right"; None where no sample is there."""
    rows = members & testing
    sure, hits = confidence[rows], right[rows]
    n = int(rows.sum())
    if not n:
        return None
    tails = right_tails(int(hits.sum()), sure)
    gap = float(sure.mean() - hits.mean())
    half = Z * float((sure - hits).std(ddof=1)) / math.sqrt(n) if n > 1 else math.inf
    p = min(1.0, 2 * min(tails))
    means = float(sure.mean()), float(hits.mean())
    return Slice(conditions, n, *means, gap - half, gap + half, p, p, float(members.mean()))
