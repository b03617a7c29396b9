"""For a test suite: what predictions must reach, or an AssertionError that says what they do not."""

from __future__ import annotations

from typing import Any

from confide.evaluation.evaluate import evaluate
from confide.results import Evaluation, Expectation


def assert_expected(measured: Any, *expectations: str, surely: bool = False, **where: Any) -> None:
    """Fail unless every expectation holds; for pytest and the like.

    Args:
        measured: predictions, of which the metrics of the expectations are computed, or an `Evaluation`.
        expectations: such as "ece<0.03" or "accuracy[class=Shirt]>=90%".
        surely: the whole 95 % interval must hold it, not the value alone.
        where: fields of the measurement where an evaluation has several: model, stage, split, score.

    Raises:
        AssertionError: one line for each expectation that does not hold.

    Example:
        >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1, 1])
        >>> confide.evaluation.assert_expected(p, "accuracy>=0.7")
        >>> confide.evaluation.assert_expected(p, "accuracy>=0.8")
        Traceback (most recent call last):
        AssertionError: accuracy>=0.8: accuracy is 0.75
    """
    if isinstance(measured, Evaluation):
        evaluation = measured
    else:
        metrics = list(dict.fromkeys(Expectation.of(text).metric for text in expectations))
        evaluation = evaluate(measured, metrics, surely)
    broken = evaluation.expect(*expectations, surely=surely, **where)
    if broken:
        raise AssertionError("\n".join(map(str, broken)))
