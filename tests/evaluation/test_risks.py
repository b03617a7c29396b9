"""Several risks at once: counts written out, old promises unchanged, the promise by simulation, on average too."""

import json
import math

import numpy as np
import pytest
from scipy.stats import binom

import confide
from confide import Predictions
from confide.checks import InputError
from confide.cli.main import main
from confide.evaluation import OperatingPoint, observed_risks
from confide.numerics.binomial import hoeffding_bentkus_p, mean_upper_bound


def drawn(n, seed, num_classes=3):
    rng = np.random.default_rng(seed)
    logits = 2.5 * rng.normal(size=(n, num_classes))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return Predictions(logits, labels, class_names=["cat", "dog", "owl"][:num_classes])


def naive_rate(name, k, predictions, accepted):
    """The rate by its definition, one sample at a time; None for an empty denominator."""
    labels, predicted = predictions.labels.tolist(), predictions.facts.prediction.tolist()
    rows = list(zip(labels, predicted, accepted.tolist(), strict=True))
    chosen = {
        "error": [p != y for y, p, a in rows if a],
        "accepted_error": [a and p != y for y, p, a in rows],
        "precision": [y == k for y, p, a in rows if a and p == k],
        "recall": [a and p == k for y, p, a in rows if y == k],
        "fnr": [not (a and p == k) for y, p, a in rows if y == k],
        "fpr": [a and p == k for y, p, a in rows if y != k],
    }[name]
    return sum(chosen) / len(chosen) if chosen else None


def test_rates_are_those_of_the_definitions():
    p = drawn(3000, 0)
    limits = {"error": 0.2, "accepted_error": 0.2, "precision[dog]": 0.7, "recall[dog]": 0.2}
    limits |= {"fnr[cat]": 0.8, "fpr[owl]": 0.2}
    point = confide.operating_point(p, risk=limits)
    accepted = confide.apply_operating_point(point, p)
    assert 0 < point.accepted < 3000
    classes = {"cat": 0, "dog": 1, "owl": 2}
    for risk in point.risks:
        name, _, of = risk.label.rstrip("]").partition("[")
        assert risk.rate == pytest.approx(naive_rate(name, classes.get(of), p, accepted)), risk.label
        assert risk.bound >= risk.limit if risk.at_least else risk.bound <= risk.limit
    again = observed_risks(point, p)
    assert [(r.label, r.events, r.n) for r in again] == [(r.label, r.events, r.n) for r in point.risks]


def test_error_alone_gives_the_old_threshold():
    p = drawn(2000, 1)
    for method in ("fixed_sequence", "fallback"):
        old, new = (confide.operating_point(p, risk=r, method=method) for r in (0.1, {"error": 0.1}))
        assert (new.threshold, new.accepted, new.errors) == (old.threshold, old.accepted, old.errors)
        assert new.risk == 0.1


def test_without_a_class_every_class_is_promised_and_of_two_the_second():
    labels = [risk.label for risk in confide.operating_point(drawn(3000, 2), risk={"fpr": 0.2}).risks]
    assert labels == ["fpr[cat]", "fpr[dog]", "fpr[owl]"]
    two = confide.operating_point(drawn(3000, 2, 2), risk={"fpr": 0.2, "recall": 0.3})
    assert [risk.label for risk in two.risks] == ["fpr[dog]", "recall[dog]"]


def test_recall_alone_takes_the_highest_threshold_that_keeps_it():
    p = drawn(3000, 3)
    point = confide.operating_point(p, risk={"recall[cat]": 0.5})
    (risk,) = point.risks
    assert risk.rate >= 0.5
    above = p.facts.confidence.numpy()
    higher = np.sort(above)[::-1][math.ceil(round(point.coverage * 20 - 1) * 3000 / 20) - 1]
    misses = round((1 - naive_rate("recall", 0, p, above >= higher)) * risk.n)
    assert binom.cdf(misses, risk.n, 0.5) > 0.05


def test_thresholds_by_class_promise_each_class():
    p = drawn(6000, 4)
    point = confide.operating_point(p, risk={"precision": 0.75, "fpr": 0.1}, per_class=True)
    assert [risk.label for risk in point.risks[:2]] == ["precision[cat]", "fpr[cat]"]
    accepted = confide.apply_operating_point(point, p)
    for risk in point.risks:
        name, _, of = risk.label.rstrip("]").partition("[")
        assert risk.rate == pytest.approx(naive_rate(name, ["cat", "dog", "owl"].index(of), p, accepted))
    assert [(r.label, r.events) for r in observed_risks(point, p)] == [(r.label, r.events) for r in point.risks]


def test_a_loss_of_ones_own_is_promised_by_hoeffding_and_bentkus():
    p = drawn(4000, 5)
    loss = np.where(p.facts.correct.numpy(), 0.0, 0.5)
    point = confide.operating_point(p, risk={"harm": 0.08, "error": 0.3}, losses={"harm": loss})
    accepted = confide.apply_operating_point(point, p).numpy()
    assert point.risks[0].rate == pytest.approx(loss[accepted].mean())
    assert point.risks[0].bound <= 0.08
    with pytest.raises(InputError, match="4000 numbers in"):
        confide.operating_point(p, risk={"harm": 0.1}, losses={"harm": 2 * loss + 1})


def test_worked_p_values():
    # n = 100 without a loss against 0.05: Hoeffding 0.95^100, Bentkus e times that.
    assert hoeffding_bentkus_p(0.0, 100, 0.05) == pytest.approx(0.95**100)
    # Sum 5 of 100 against 0.2: Bentkus e * P(Bin(100, 0.2) <= 5) = 5.2e-5; Hoeffding exp(-100 kl(.05, .2)) = 4.8e-5.
    kl = 0.05 * math.log(0.25) + 0.95 * math.log(0.95 / 0.8)
    assert hoeffding_bentkus_p(5.0, 100, 0.2) == pytest.approx(
        min(math.exp(-100 * kl), math.e * binom.cdf(5, 100, 0.2))
    )
    assert hoeffding_bentkus_p(5.0, 100, mean_upper_bound(5.0, 100, 0.05)) == pytest.approx(0.05, abs=1e-6)
    assert hoeffding_bentkus_p(30.0, 100, 0.2) == 1.0


def test_the_promises_hold_together_in_simulation():
    """The true rates come from a large sample; in at most one of ten calibration sets one may be exceeded."""
    population = drawn(20_000, 6)
    truth = population.facts.confidence.numpy()
    risks = {"error": 0.12, "fpr[dog]": 0.05, "recall[dog]": 0.45}
    rng, broken, made = np.random.default_rng(0), 0, 0
    for _ in range(80):
        point = confide.operating_point(population.take(rng.choice(20_000, 1500, replace=False)), risks, 0.9)
        if point.threshold is None:
            continue
        made += 1
        accepted = truth >= point.threshold
        seen = {r.label: r for r in observed_risks(point, population)}
        assert seen["error"].n == accepted.sum()
        broken += any(r.rate < r.limit if r.at_least else r.rate > r.limit for r in seen.values())
    assert made > 40
    assert broken <= 15  # 16 of 80 has probability 0.005 at one in ten


def test_on_average_the_rate_is_kept_and_ratios_are_refused():
    population = drawn(20_000, 7)
    rng, rates = np.random.default_rng(1), []
    for _ in range(100):
        part = population.take(rng.choice(20_000, 200, replace=False))
        point = confide.operating_point(part, {"fpr[cat]": 0.1}, promise="expectation")
        rates.append(observed_risks(point, population)[0].rate)
    error = 3 * np.std(rates) / 100**0.5
    assert 0.1 - 1 / 130 - 2 * error < np.mean(rates) <= 0.1 + error
    for name in ("error", "precision"):
        with pytest.raises(InputError, match="which does both; promise it with a probability"):
            confide.operating_point(population, {name: 0.5}, promise="expectation")


def test_on_average_the_count_is_exact():
    # Nine samples of other classes, all taken for class 1 at rising scores: (k + 1) / 10 <= 0.3 lets two through.
    p = Predictions.from_top1([0] * 9, [1] * 9, np.linspace(0.1, 0.9, 9))
    point = confide.operating_point(p, {"fpr[1]": 0.3}, promise="expectation")
    assert point.accepted == 2
    nothing = confide.operating_point(p, {"fpr[1]": 0.05}, promise="expectation")
    assert (
        nothing.note == "no threshold can promise fpr[1] at most 0.05 on average from 9 samples: not even alone fpr[1]"
    )


def test_what_cannot_be_promised_is_said():
    p = drawn(400, 8)
    point = confide.operating_point(p, {"error": 0.001, "fpr": 0.3})
    assert not point.certified
    assert point.note.endswith("from 400 samples: not even alone error")
    together = confide.operating_point(drawn(3000, 8), {"error": 0.03, "recall[cat]": 0.6})
    assert together.note.endswith("each can be promised alone, but not together")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"risk": {}}, "at least one risk"),
        ({"risk": {"eror": 0.1}}, "no risk named 'eror'; did you mean 'error'?"),
        ({"risk": {"fpr[cow]": 0.1}}, "no class named 'cow'"),
        ({"risk": {"error[cat]": 0.1}}, "is of all classes"),
        ({"risk": {"fpr": 1.0}}, "must lie in (0, 1)"),
        ({"risk": {"error": 0.1}, "method": "sgr"}, "method of several risks must be one of"),
        ({"risk": {"fpr[cat]": 0.1}, "per_class": True}, "name the risk alone"),
        ({"risk": 0.1, "promise": "expectation"}, "are of risks by name"),
        ({"risk": {"error": 0.1}, "promise": "luck"}, "promise must be one of"),
    ],
)
def test_bad_risks_are_one_line(options, words):
    with pytest.raises(InputError) as caught:
        confide.operating_point(drawn(50, 9), **options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_of_one_risk_stay_as_they_were(tmp_path):
    p = drawn(2000, 10)
    confide.operating_point(p, 0.1).save(tmp_path / "old.json")
    record = json.loads((tmp_path / "old.json").read_text())
    assert record["format"] == "operating-point/1"
    assert not {"risks", "promise"} & set(record)
    point = confide.operating_point(p, {"error": 0.1, "fpr": 0.2})
    point.save(tmp_path / "new.json")
    assert json.loads((tmp_path / "new.json").read_text())["format"] == "operating-point/2"
    assert OperatingPoint.load(tmp_path / "new.json") == point


def test_the_command_takes_several_risks_and_ends_with_3_where_none_can_be_promised(tmp_path, capsys):
    drawn(3000, 11).save(tmp_path / "val.npz")
    drawn(1000, 12).save(tmp_path / "test.npz")
    val, test, out = (str(tmp_path / name) for name in ("val.npz", "test.npz", "point.json"))
    assert main(["operating-point", val, "--risk", "error=0.1", "--risk", "fpr[cat]=0.1", "--out", out]) == 0
    shown = capsys.readouterr().out
    assert "these hold together with confidence 0.95" in shown
    assert "fpr[cat]  at most 0.1" in shown
    assert main(["operating-point", test, "--apply", out]) == 0
    assert "fpr[cat]" in capsys.readouterr().out
    assert main(["operating-point", val, "--risk", "error=0.0001"]) == 3
    assert "not even alone error" in capsys.readouterr().out
    assert main(["operating-point", val, "--risk", "0.0001"]) == 3
    for bad in (["error=x"], ["0.1", "--risk", "0.2"], ["eror=0.1"]):
        assert main(["operating-point", val, "--risk", *bad]) == 1
