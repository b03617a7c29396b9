"""Charts for notebooks; drawn where matplotlib is installed."""

import numpy as np
import pytest
import torch

import confide
from confide import Predictions
from confide.checks import InputError
from confide.results import Curve, Evaluation, Measurement

matplotlib = pytest.importorskip("matplotlib")
pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def without_a_screen():
    matplotlib.use("agg")
    yield
    matplotlib.pyplot.close("all")


def predictions(n=600):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn((n, 3), generator=generator, dtype=torch.float64)
    labels = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator).squeeze(1)
    return Predictions(3 * logits, labels, split="val", class_names=("a", "b", "c"))


def test_reliability_has_the_numbers_of_the_evaluation():
    evaluation = confide.evaluate(predictions(), ["ece"])
    (curve,) = [c for c in evaluation.curves if c.kind == "reliability_width" and len(c.columns["low"]) == 15]
    ax = matplotlib.pyplot.subplots()[1]
    assert confide.plot.reliability(evaluation, ax) is ax
    dots = np.asarray(ax.collections[-1].get_offsets())
    full = np.asarray(curve.columns["count"]) > 0
    np.testing.assert_allclose(dots[:, 1], np.asarray(curve.columns["accuracy"])[full])
    with pytest.raises(InputError, match=r"in \[10, 15, 20\] bins, got bins=7"):
        confide.plot.reliability(evaluation, bins=7)


def test_every_chart_is_drawn_into_axes_of_its_own():
    p = predictions()
    line = confide.plot.risk_coverage(p).lines[0]
    assert line.get_ydata()[-1] == pytest.approx(1 - float(confide.metrics.accuracy(p)))
    scores = confide.Scores(p.ids, -p.facts.confidence.numpy(), "confidence")
    errors = confide.plot.difficulty(p, scores=scores).lines[0].get_ydata()
    assert errors[0] < errors[-1]
    assert confide.plot.confusion(p).get_xlabel() == "predicted class"
    shown = confide.plot.sets(confide.sets.fit("lac", p), p)
    assert sum(bar.get_height() for bar in shown.patches) == pytest.approx(1)
    box = {"low": (0.0, 0.1), "lower_quartile": (0.0, 0.2), "median": (0.1, 0.3), "upper_quartile": (0.2, 0.4)}
    curve = Curve("shift_boxes", {"severity": (0.0, 1.0), **box, "high": (0.3, 0.5)})
    assert confide.plot.shift(Evaluation((), curves=(curve,))).get_xlabel() == "severity, 0 is clean"


def test_what_is_not_there_is_said():
    with pytest.raises(InputError, match="predictions alone know no difficulty; pass scores=, such as"):
        confide.plot.difficulty(predictions())
    with pytest.raises(InputError, match="no risk-coverage curve of 'trust'; it has entropy, msp"):
        confide.plot.risk_coverage(predictions(), score="trust")
    with pytest.raises(InputError, match="holds no shift"):
        confide.plot.shift(Evaluation(()))
    with pytest.raises(InputError, match=r"got ndarray: plot\.sets\(fitted, predictions\)"):
        confide.plot.sets(np.ones((3, 2), dtype=bool))


def test_shifts_show_what_chance_alone_would():
    box = dict.fromkeys(("low", "lower_quartile", "median", "upper_quartile", "high"), (0.1, 0.2))
    curve = Curve("shift_ece_boxes", {"severity": (0.0, 1.0), **box})
    cells = [
        Measurement("ece", 0.1, 90, group=group, score=score, chance_high=high)
        for group, score, high in (("shift=a-1", None, 0.03), ("shift=a-2", None, 0.05), ("site=b", None, 0.4))
    ]
    shown = confide.plot.shift(Evaluation(tuple(cells), curves=(curve,)), of="ece")
    assert shown.lines[-1].get_ydata()[0] == 0.05
    assert [text.get_text() for text in shown.get_legend().get_texts()][-1] == "by chance up to 0.050"
