"""evaluate: rows, chance levels, groups, curves, streams, and what it refuses."""

import json
import math

import numpy as np
import pytest
import torch

import confide
from confide import Evaluation, Predictions, Scores, metrics
from confide.checks import InputError
from confide.evaluation import join
from confide.evaluation.evaluate import MOST_GROUPS, column_groups, distinct
from confide.facts import facts_of
from confide.metrics import table_words
from confide.predictions import outputs
from confide.results import About


def simulated(n=400, classes=4, seed=0, sharp=1.0, **more):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, classes, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator).squeeze(1)
    return Predictions(sharp * logits, labels, split="test", **more)


@pytest.fixture(scope="module")
def evaluation():
    predictions = simulated(class_names=("ant", "bee", "cat", "dog"), columns={"site": np.array(["a", "b"] * 200)})
    scores = Scores(predictions.ids[::-1], np.linspace(1, 0, 400), "rmd")
    trust = {"steep_slope": predictions.facts.margin}
    return confide.evaluate(predictions, by="site", scores=scores, trust=trust, model="net", stage="temperature")


def test_every_core_metric_has_a_row_with_an_interval(evaluation):
    for word in table_words("core"):
        found = evaluation.find(word, group=None)
        assert (found.model, found.stage, found.split, found.n) == ("net", "temperature", "test", 400)
        assert found.low <= found.high
        if not word.endswith(("ece", "ece_mass")):
            assert found.low <= found.value <= found.high


def test_every_calibration_error_stands_beside_its_chance_level(evaluation):
    for word in ("ece", "ece_mass", "classwise_ece"):
        found = evaluation.find(word, group=None)
        assert 0 < found.chance < found.chance_high
        assert 0 < found.p_value <= 1
    assert evaluation.find("accuracy").chance is None


def test_values_are_those_of_the_metrics(evaluation):
    predictions = simulated()
    assert evaluation.value("ece", group=None) == float(metrics.ece(predictions))
    assert evaluation.value("ece_mass", group=None) == float(metrics.ece(predictions, binning="mass"))
    assert evaluation.value("auroc", score="entropy") == float(metrics.auroc(predictions, score="entropy"))
    found = evaluation.value("auroc", score="trust:steep_slope")
    assert found == pytest.approx(float(metrics.auroc(predictions, score="margin")))


def test_groups_by_class_difficulty_and_column(evaluation):
    predictions = simulated()
    right = predictions.facts.correct
    bee = predictions.labels == 1
    assert evaluation.value("accuracy", group="class=bee") == pytest.approx(float(right[bee].double().mean()))
    assert evaluation.find("accuracy", group="difficulty=hardest fifth").n == 80
    # scores were joined by id: the hardest are the first rows reversed twice
    hardest = right[:80].double().mean()
    easiest = right[-80:].double().mean()
    values = {evaluation.value("accuracy", group=f"difficulty={name} fifth") for name in ("hardest", "easiest")}
    assert values == {float(hardest), float(easiest)}
    site = evaluation.find("auroc", group="site=a")
    assert site.n == 200
    assert site.value == pytest.approx(float(metrics.auroc(predictions.take(np.arange(0, 400, 2)))))


@pytest.mark.parametrize("how", [True, False])
def test_a_metric_of_a_group_stands_once_in_the_table(how):
    evaluation = confide.evaluate(simulated(), by=["class", "predicted"], intervals=how)
    rows = [(row.group, row.metric, row.score) for row in evaluation.measurements]
    assert len(rows) == len(set(rows))
    assert {"accuracy", "confidence_gap", "nll", "brier", "ece"} <= {
        metric for group, metric, _ in rows if group == "class=1"
    }


def test_the_gap_of_a_predicted_class_is_that_of_its_predictions():
    """By predicted class a calibrated model has no gap; by the class of the label it has one."""
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.full(3, 0.8), 20_000)
    labels = (rng.random((20_000, 1)) > probs.cumsum(1)).sum(1)
    p = confide.Predictions.from_probs(probs, labels)
    found = confide.evaluate(p, ["accuracy"], intervals=False)
    confidence, top = probs.max(1), probs.argmax(1)
    for k in range(3):
        gap = confidence[top == k].mean() - (labels == k)[top == k].mean()
        assert found.value("confidence_gap", group=f"predicted={k}") == pytest.approx(gap, abs=1e-6)
        assert abs(gap) < 0.02


def test_the_curve_without_bins_lies_in_its_band_at_95_of_100_points_of_a_calibrated_model():
    """Averaged over points and runs; the band is of each point. A planted gap is shown in full."""
    from confide.evaluation.curves import smooth_reliability
    from confide.metrics.view import MetricSamples, View

    rng, inside, points = np.random.default_rng(5), 0, 0
    for n in (400, 3000):
        for _ in range(60):
            sure = rng.beta(4, 1, n)
            samples = MetricSamples(confide.Predictions.from_pairs(rng.random(n) < sure, sure))
            curve = {k: np.array(v) for k, v in smooth_reliability(View(samples), True).columns.items()}
            inside += int(((curve["band_low"] <= curve["accuracy"]) & (curve["accuracy"] <= curve["band_high"])).sum())
            points += len(curve["accuracy"])
    assert 0.93 <= inside / points <= 0.97
    sure = rng.uniform(0.5, 0.9, 100_000)
    samples = MetricSamples(confide.Predictions.from_pairs(rng.random(100_000) < sure - 0.1, sure))
    columns = smooth_reliability(View(samples), True).columns
    assert min(columns["confidence"]) == 0.5  # and none where no sample lies
    assert max(columns["confidence"]) == 0.9
    assert np.allclose(np.subtract(columns["confidence"], columns["accuracy"]), 0.1, atol=0.03)


def test_the_band_without_bins_counts_what_was_drawn_as_one():
    """Sixty images whose pixels are right or wrong by blocks, from calibrated probabilities."""
    from confide.evaluation.curves import smooth_reliability
    from confide.metrics.view import Design, MetricSamples, View

    rng, inside, apart, points = np.random.default_rng(6), 0, 0, 0
    for _ in range(40):
        sure = rng.beta(4, 1, (60, 16))
        right = rng.random(sure.shape) < sure
        block = [values.repeat(16, axis=1).reshape(-1) for values in (right, sure)]
        predictions = confide.Predictions.from_pairs(*block)
        for clusters in (np.arange(60).repeat(256), None):
            view = View(MetricSamples(predictions, design=Design(clusters=clusters)))
            curve = {k: np.array(v) for k, v in smooth_reliability(view, True).columns.items()}
            held = int(((curve["band_low"] <= curve["accuracy"]) & (curve["accuracy"] <= curve["band_high"])).sum())
            inside, apart = (inside, apart + held) if clusters is None else (inside + held, apart)
            points += 0 if clusters is None else len(curve["accuracy"])
    assert 0.91 <= inside / points <= 0.98
    assert apart / points < 0.7


def test_curves_have_the_columns_that_the_report_draws(evaluation):
    kinds = {c.kind for c in evaluation.curves}
    assert kinds == {
        "reliability_width",
        "reliability_mass",
        "reliability_smooth",
        "risk_coverage",
        "confidence_histogram",
        "error_by_difficulty",
        "difficulty_histogram",
    }
    for curve in evaluation.curves:
        assert (curve.model, curve.stage, curve.split) == ("net", "temperature", "test")
        assert len({len(v) for v in curve.columns.values()}) == 1
    width = next(c for c in evaluation.curves if c.kind == "reliability_width" and len(c.columns["low"]) == 15)
    assert sum(width.columns["count"]) == 400
    gaps = [
        n * abs(c - a)
        for n, c, a in zip(*(width.columns[k] for k in ("count", "confidence", "accuracy")), strict=True)
        if n
    ]
    assert sum(gaps) / 400 == pytest.approx(evaluation.value("ece", group=None))
    inside = [
        low <= a <= high
        for low, a, high, n in zip(
            *(width.columns[k] for k in ("band_low", "accuracy", "band_high", "count")), strict=True
        )
        if n >= 5
    ]
    assert np.mean(inside) > 0.7  # this model is calibrated
    risk = next(c for c in evaluation.curves if c.kind == "risk_coverage" and c.score == "msp")
    assert len(risk.columns["coverage"]) <= 300
    assert risk.columns["coverage"][-1] == 1.0
    assert risk.columns["risk"][-1] == pytest.approx(1 - evaluation.value("accuracy", group=None))
    histogram = next(c for c in evaluation.curves if c.kind == "confidence_histogram" and c.score is None)
    assert sum(histogram.columns["right"]) + sum(histogram.columns["wrong"]) == 400


def test_an_evaluation_is_a_json_file(evaluation, tmp_path):
    evaluation.save(tmp_path / "evaluation.json")
    again = Evaluation.load(tmp_path / "evaluation.json")
    assert again.value("ece") == evaluation.value("ece")
    assert again.find("ece").high == pytest.approx(evaluation.find("ece").high)
    text = json.loads((tmp_path / "evaluation.json").read_text())
    assert text["about"]["class_names"] == ["ant", "bee", "cat", "dog"]
    assert text["about"]["num_classes"] == 4
    assert sum(text["about"]["label_counts"].values()) == 400


def test_values_alone_are_quick_and_have_no_intervals():
    found = confide.evaluate(simulated(), intervals=False)
    assert all(math.isnan(m.low) and m.p_value is None for m in found.measurements)


@pytest.mark.parametrize("intervals", [True, False])
def test_the_core_takes_one_pass_over_the_logits(monkeypatch, intervals):
    passes = []
    monkeypatch.setattr(outputs, "facts_of", lambda *args, **how: passes.append(how) or facts_of(*args, **how))
    confide.evaluate(simulated(), intervals=intervals)
    assert [how["core"] for how in passes] == [True]


def test_all_metrics_of_a_small_sample():
    found = confide.evaluate(simulated(n=60), "all", intervals=False)
    assert {m.metric for m in found.measurements} >= set(metrics.names())


def test_top_one_predictions_say_what_cannot_be_had():
    predictions = Predictions.from_top1([0, 1, 1, 0], [0, 1, 0, 0], np.array([0.9, 0.8, 0.7, 0.6]))
    found = confide.evaluate(predictions, intervals=False)
    assert found.about.missing["nll"] == "needs all probabilities"
    assert found.value("accuracy", group=None) == 0.75
    with pytest.raises(InputError, match="'brier' needs all probabilities"):
        confide.evaluate(predictions, ["brier"])


@pytest.mark.parametrize("kind", ["iterator", "folder", "pairs"])
def test_a_stream_gives_the_values_of_the_whole(kind, tmp_path):
    whole = simulated(n=300, columns={"site": np.array(["a", "b", "c"] * 100)})
    parts = [whole.take(np.arange(start, min(start + 70, 300))) for start in range(0, 300, 70)]
    if kind == "folder":
        for k, part in enumerate(parts):
            part.save(tmp_path / f"{k}.{'npz' if k == 1 else 'parquet'}")
        source = tmp_path
    else:
        source = iter(parts) if kind == "iterator" else ((p.logits, p.labels) for p in parts)
    by = "class" if kind == "pairs" else "site"
    slow = kind == "iterator"
    streamed, kept = (confide.evaluate(s, intervals=slow, by=by, seed=3) for s in (source, whole))
    groups = [m for m in kept.measurements if m.metric != "classwise_ece" or m.group is None]
    for one, other in zip(streamed.measurements, groups, strict=True):
        assert (one.metric, one.group, one.score, one.n) == (other.metric, other.group, other.score, other.n)
        assert one.value == pytest.approx(other.value, rel=1e-12, nan_ok=True)
        if one.metric != "classwise_ece":
            assert one.low == pytest.approx(other.low, rel=1e-9, nan_ok=True)


def test_a_stream_keeps_the_scores_that_were_asked_for():
    whole = simulated(n=120)
    parts = [whole.take(np.arange(0, 50)), whole.take(np.arange(50, 120))]
    found = confide.evaluate(iter(parts), ["auroc"], False, score=["margin", "energy"])
    for score in ("margin", "energy"):
        assert found.value("auroc", score=score) == pytest.approx(float(metrics.auroc(whole, score=score)))


def test_streamed_predictions_refuse_what_needs_all_probabilities():
    with pytest.raises(InputError, match="all probabilities in memory"):
        confide.evaluate(iter([simulated()]), ["kde_ece"])


def test_join_keeps_every_row():
    first, second = (confide.evaluate(simulated(), intervals=False, model=name) for name in ("one", "two"))
    both = join([first, second], about=About(title="Both"))
    assert len(both.measurements) == len(first.measurements) + len(second.measurements)
    assert both.about.title == "Both"
    assert both.find("accuracy", model="two").value == second.value("accuracy")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: confide.evaluate(p, ["aurk"]), "no metric named 'aurk'; did you mean 'aurc'"),
        (lambda p: confide.evaluate(p, by="sight"), "cannot group by 'sight'"),
        (lambda p: confide.evaluate(p, by="difficulty"), "needs scores="),
        (lambda p: confide.evaluate(p, by={"site": [1, 2]}), "must have 400 values"),
        (lambda p: confide.evaluate(p, by={"n": np.arange(400)}), "at most 100 different values"),
        (lambda p: confide.evaluate(p, score="energetic"), "no score named"),
        (lambda p: confide.evaluate(p, score=np.full(400, np.nan)), "score must be finite"),
        (lambda p: confide.evaluate(p.logits), "needs Predictions"),
        (lambda p: confide.evaluate(iter([])), "at least one sample"),
        (lambda p: metrics.ece(p, bins=0), "bins must lie in"),
        (lambda p: metrics.ece(p, norm=3), "norm must be one of"),
        (lambda p: metrics.auroc(p, score="trust"), "needs predictions with trust"),
        (lambda p: metrics.ece(p.take([])), "at least one sample"),
        (lambda p: metrics.ece(p.logits), "need confide.Predictions"),
        (lambda p: metrics.ece(p.logits, p.labels), "ece takes one record"),
        (lambda p: metrics.risk_at_coverage(p, coverage=0.0), "coverage must lie in"),
    ],
)
def test_bad_input_gets_one_clear_line(call, message):
    with pytest.raises(InputError, match=message) as caught:
        call(simulated())
    assert "\n" not in str(caught.value)


def test_unknown_options_are_refused():
    with pytest.raises(TypeError, match="metric 'ece' has no option 'bin'; did you mean 'bins'"):
        metrics.ece(simulated(), bin=3)


def test_probabilities_are_never_guessed():
    probs = torch.softmax(simulated().logits, dim=1)
    labels = simulated().labels
    with pytest.warns(UserWarning, match="as probabilities do"):
        as_logits = Predictions(probs, labels)
    as_probs = Predictions.from_probs(probs, labels)
    assert float(metrics.nll(as_logits)) != pytest.approx(float(metrics.nll(as_probs)))
    with pytest.raises(InputError, match="needs real logits"):
        metrics.auroc(as_probs, score="max_logit")
    with pytest.raises(InputError, match="sum to 1"):
        Predictions.from_probs(probs * 0.5, labels)


def test_nan_is_named_with_its_sample():
    logits = simulated().logits.clone()
    logits[7, 2] = math.nan
    with pytest.raises(InputError, match="got NaN at sample 7 of 400"):
        confide.evaluate(Predictions(logits, simulated().labels))


def test_more_bins_than_samples_is_legal():
    few = simulated().take(np.arange(5))
    assert float(metrics.ece(few, bins=50, binning="mass")) > 0
    assert confide.evaluate(few).find("ece_mass").p_value is not None


class Column:
    """A data-frame column as pandas and polars have it."""

    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return self.values


def test_binary_and_data_frame_input():
    z = torch.tensor([2.0, -1.0, 0.5])
    labels = np.array([1, 0, 0])
    sigmoid = torch.sigmoid(z)
    wanted = float(metrics.brier(Predictions.from_probs(sigmoid, labels)))
    assert float(metrics.brier(Predictions.from_binary_logits(z, labels))) == pytest.approx(wanted, rel=1e-5)
    columns = Predictions.from_probs(Column(sigmoid.numpy()), Column(labels))
    assert float(metrics.brier(columns)) == pytest.approx(wanted, rel=1e-6)
    two = np.stack([1 - sigmoid.numpy(), sigmoid.numpy()], axis=1)  # what predict_proba returns
    assert float(metrics.brier(Predictions.from_probs(two, labels))) == pytest.approx(wanted, rel=1e-6)


def test_a_default_evaluation_has_the_rows_and_bands_it_always_had():
    """Seven means and calibration errors, eight ranking metrics of two scores, four means of every class; six bands."""
    found = confide.evaluate(simulated(n=300))
    classes = found.about.num_classes
    predicted = [m for m in found.measurements if m.group and m.group.startswith("predicted")]
    assert len(found.measurements) - len(predicted) == 7 + 8 * 2 + 4 * classes
    assert all(m.has_interval for m in found.measurements)
    bands = [c for c in found.curves if "band_low" in c.columns]
    assert len(bands) == 7
    assert all(
        math.isfinite(b) for c in bands for b, k in zip(c.columns["band_low"], c.columns["count"], strict=True) if k
    )


class Missing:
    """A missing value of a nullable column, as pandas has it."""


Missing.__name__ = "NAType"


def test_nullable_and_list_columns_are_numbers_and_words_are_not():
    logits = np.random.default_rng(0).standard_normal((6, 3))
    labels = np.array([0, 1, 2, 0, 1, 2])
    wanted = float(metrics.nll(Predictions(logits, labels)))
    rows = np.empty(6, dtype=object)
    rows[:] = [row.tolist() for row in logits]
    for values in (logits.astype(object), rows, logits.astype(">f8")):
        assert float(metrics.nll(Predictions(Column(values), Column(labels.astype(object))))) == wanted
    holed = logits.astype(object)
    holed[2, 1] = Missing()
    with pytest.raises(InputError, match="NaN at sample 2 of 6"):
        metrics.nll(Predictions(Column(holed), labels))
    for bad in (logits.astype(str).astype(object), np.array([[1.0], [1.0, 2.0]] * 3, dtype=object)):
        with pytest.raises(InputError, match="logits must be numbers"):
            Predictions(Column(bad), labels)


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_real_data_frames(package):
    frames = pytest.importorskip(package)
    known = simulated()
    logits, labels = known.logits.numpy(), known.labels.numpy()
    wanted = float(metrics.nll(known))
    found = Predictions(frames.DataFrame(logits), frames.Series(labels))
    assert float(metrics.nll(found)) == wanted
    assert float(metrics.nll(Predictions(frames.Series(logits.tolist()), frames.Series(labels)))) == pytest.approx(
        wanted, rel=1e-6
    )
    site = frames.Series(["a", "b"] * (len(labels) // 2))
    rows = confide.evaluate(found, by={"site": site}, score=frames.Series(logits.max(axis=1)), intervals=False)
    assert {"site=a", "site=b"} <= {row.group for row in rows.measurements}


def test_a_console_shows_records_in_one_line():
    predictions = Predictions([[2.0, 1.0], [0.0, 3.0], [1.0, 0.5]], [0, 1, 1], split="val")
    assert repr(predictions) == "<Predictions on 'val': 3 samples, 2 classes, logits>"
    assert "top-1 confidences" in repr(Predictions.from_top1([0, 1], [0, 0], [0.9, 0.6]))
    told = repr(confide.evaluate(predictions))
    assert told.startswith("<Evaluation: accuracy 0.6667, nll ")
    assert len(told) < 200


def test_labels_from_one_that_fit_the_classes_are_asked_about(tmp_path):
    labels = np.arange(60) % 4
    logits = 5 * np.eye(6)[labels]
    shifted = confide.evaluate(Predictions(logits, labels + 1), ["accuracy"], intervals=False)
    assert shifted.warnings == (
        "no label is 0, and the class before the label is predicted for 100%: do labels start at 1?",
    )
    assert not confide.evaluate(Predictions(logits, labels), ["accuracy"], intervals=False).warnings
    val, (question,) = Predictions(logits, labels + 1, split="val"), shifted.warnings
    assert question in confide.calibrators.fit("temperature", val).notes
    assert question in confide.sets.fit("lac", val).notes
    with pytest.warns(UserWarning, match="do labels start at 1"):
        confide.operating_point(val, risk=0.2)
    with pytest.warns(UserWarning, match="do labels start at 1"):
        confide.compare(val, val, metrics=["accuracy"])
    with pytest.warns(UserWarning, match="do labels start at 1"):
        confide.monitor.Monitor(val, file=tmp_path / "watch.jsonl")
    assert question in confide.decisions.decide(val, 1).warnings


@pytest.mark.parametrize(
    "call",
    [
        lambda p, **words: confide.evaluate(p, **words),
        lambda p, **words: confide.compare(p, p, **words),
        lambda p, **words: confide.operating_point(p, risk=0.5, **words),
        lambda p, **words: confide.calibrators.fit("temperature", p, **words),
        lambda p, **words: confide.metrics.ece(p, **words),
        lambda p, **words: confide.metrics.accuracy(p, **words),
    ],
    ids=["evaluate", "compare", "operating_point", "calibrators", "ece", "accuracy"],
)
def test_sample_weight_is_told_its_name_here_and_a_typo_the_nearest_word(call):
    predictions = confide.Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 1], split="val")
    with pytest.raises(confide.checks.OptionError, match="called 'weights' here"):
        call(predictions, sample_weight=[1, 2])
    with pytest.raises(confide.checks.OptionError, match=r"has no (keyword|option) 'weigths'"):
        call(predictions, weigths=[1, 2])


def test_a_group_that_one_image_holds_has_no_interval_of_width_zero():
    rng = np.random.default_rng(0)
    pixels = confide.dense.pixels(rng.normal(0, 2, (6, 3, 5, 5)), rng.integers(0, 3, (6, 5, 5)))
    pixels = pixels.with_column("scene", np.where(pixels.columns["image"] == 2, "lake", "street"))
    evaluation = confide.evaluate(pixels, ["accuracy", "confidence_gap", "ece", "auroc"], by="scene")
    for m in evaluation.measurements:
        if m.group == "scene=lake":
            assert not m.bounds or math.isnan(m.low), m
            assert m.p_value is None
        elif m.group == "scene=street":
            assert m.low < m.value < m.high
    alone = confide.evaluate(pixels.take(np.flatnonzero(pixels.columns["image"] == 2)), ["accuracy", "ece"])
    assert all(not m.bounds or math.isnan(m.low) for m in alone.measurements)


def test_a_column_is_grouped_by_up_to_a_hundred_values():
    assert len(column_groups("site", np.arange(MOST_GROUPS)).names) == MOST_GROUPS == 100
    with pytest.raises(InputError, match="at most 100 different values to group by, got 101"):
        column_groups("site", np.arange(MOST_GROUPS + 1))


@pytest.mark.parametrize("words", [1, 2, 15, 16, 17, 40])
@pytest.mark.parametrize("runs", [1, 2, 3])
def test_different_words_are_those_of_a_sort_however_many_they_are_and_however_they_stand(words, runs):
    names = np.array([f"w{k:02d}" for k in range(words)])[::-1]
    column = np.tile(np.repeat(names, runs), 2)
    for given in (column, column[:-1], np.random.default_rng(0).permutation(column), names[:1], names[:0]):
        found, index = distinct(given)
        wanted, places = np.unique(given, return_inverse=True)
        assert found.tolist() == wanted.tolist()
        assert index.tolist() == places.tolist()


@pytest.mark.parametrize(
    "call",
    [
        confide.evaluate,
        confide.metrics.ece,
        lambda rows: confide.compare(rows, rows),
        lambda rows: confide.operating_point(rows, risk=0.1),
        lambda rows: confide.apply_operating_point(confide.OperatingPoint(threshold=0.5), rows),
        lambda rows: confide.calibrators.fit("temperature", rows),
        confide.calibrators.choose,
        lambda rows: confide.sets.fit("lac", rows),
        lambda rows: confide.decisions.decide(rows, 1),
        confide.monitor.Monitor,
        confide.plot.confusion,
    ],
)
def test_an_array_where_predictions_are_needed_gets_one_line(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"Predictions, (got ndarray|a path)"):
        call(np.zeros((5, 3)))
