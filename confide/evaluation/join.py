"""Several evaluations, of models or stages, as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confide.core.door import InputError
from confide.core.results import Comparison, Evaluation, Sample


def join(
    evaluations: Sequence[Evaluation],
    comparisons: Iterable[Comparison] = (),
    about: Mapping[str, Any] | None = None,
    *,
    samples: Iterable[Sample] = (),
    operating_points: Iterable[Mapping[str, Any]] = (),
    warnings: Iterable[str] = (),
) -> Evaluation:
    """One evaluation with the rows and curves of all, in their order; what `about` says wins over theirs."""
    if not evaluations:
        raise InputError("join needs at least one evaluation, got none; evaluate some predictions first")
    known: dict[str, Any] = {}
    for one in evaluations:
        known = {**one.about, **known}
    curves = list(dict.fromkeys(id(c) for one in evaluations for c in one.curves))
    by_id = {id(c): c for one in evaluations for c in one.curves}
    return Evaluation(
        measurements=tuple(m for one in evaluations for m in one.measurements),
        curves=tuple(by_id[key] for key in curves),
        comparisons=(*(c for one in evaluations for c in one.comparisons), *comparisons),
        samples=(*(s for one in evaluations for s in one.samples), *samples),
        operating_points=(*(p for one in evaluations for p in one.operating_points), *operating_points),
        about={**known, **(about or {})},
        warnings=tuple(dict.fromkeys((*(w for one in evaluations for w in one.warnings), *warnings))),
    )
