"""Prediction sets against the authors' formulas written out, the exact quantile, and the promise in simulation."""

import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch

import confide
from confide import Predictions, sets
from confide.checks import InputError, OptionError
from confide.results import GroupCoverage
from confide.sets.base import SetGroup, _whole, fewest_samples, quantile_rank, sample_draws
from confide.sets.coverage import _judged
from confide.sets.fitting import _unreachable

OPTIONS = {"raps": {"penalty": 0.05, "k_reg": 2}, "saps": {"weight": 0.1}}


def drawn(n, num_classes, seed, *, ties=False, sharp=1.0):
    """Labels drawn from softmax(z); with ties the logits are whole numbers."""
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, num_classes))
    logits = np.round(logits) if ties else logits
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    site, difficulty = rng.integers(0, 3, n), rng.random(n)
    return Predictions(sharp * logits, labels, columns={"site": site, "difficulty": difficulty})


def naive_scores(word, predictions, options, randomized):
    """s of every sample and class: the formulas of the papers, one class at a time."""
    probs = predictions.probabilities().numpy()
    draws = sample_draws(predictions, 0) if randomized else np.ones(len(probs))
    scores = np.empty(probs.shape)
    for i, row in enumerate(probs):
        order = sorted(range(len(row)), key=lambda j: (-row[j], j))
        before, largest, u = 0.0, row[order[0]], draws[i]
        for rank, j in enumerate(order, start=1):
            adaptive = before + u * row[j]
            scores[i, j] = {
                "lac": 1 - row[j],
                "aps": adaptive,
                "raps": adaptive + options.get("penalty", 0) * max(0, rank - options.get("k_reg", 0)),
                "saps": u * largest if rank == 1 else largest + (rank - 2 + u) * options.get("weight", 0),
                "top_k": rank - 1 + u,
            }[word]
            before += row[j]
    return scores


def naive_sets(val, test, scores_val, scores_test, coverage, by):
    """A threshold a cell: the k-th smallest score of its labels, k = ceil((n + 1) coverage); the top class is in."""
    labels, n = val.labels.numpy(), len(test)
    if by == "class":
        cells, at = labels, np.tile(np.arange(val.num_classes), (n, 1))
    elif by == "site":
        cells, at = val.columns["site"], np.repeat(test.columns["site"][:, None], val.num_classes, axis=1)
    else:
        cells, at = np.zeros(len(val), dtype=int), np.zeros((n, val.num_classes), dtype=int)
    limits = np.full(at.max() + 1, np.inf)
    for cell in range(len(limits)):
        own = sorted(scores_val[i, labels[i]] for i in range(len(val)) if cells[i] == cell)
        k = math.ceil((len(own) + 1) * Fraction(str(coverage)))
        if k <= len(own):
            limits[cell] = own[k - 1]
    inside = scores_test <= limits[at]
    inside[np.arange(n), test.probabilities().numpy().argmax(axis=1)] = True
    return inside


@pytest.mark.parametrize("word", sets.names())
@pytest.mark.parametrize("ties", [False, True])
def test_sets_are_those_of_the_formulas(word, ties):
    val, test = drawn(90, 20, 1, ties=ties), drawn(60, 20, 2, ties=ties)
    options = OPTIONS.get(word, {})
    for randomized in (False, True) if word != "lac" else (False,):
        own = {} if word == "lac" else {"randomized": randomized}
        scores = [naive_scores(word, p, options, randomized) for p in (val, test)]
        for by in (None, "class", "site"):
            expected = naive_sets(val, test, *scores, 0.8, by)
            fitted = sets.fit(word, val, 0.8, by=by, **options, **own)
            assert np.array_equal(fitted(test).numpy(), expected), (by, randomized)


@pytest.mark.parametrize("size", [1, 5, 12, 30, 64])
def test_the_k_likeliest_are_those_of_a_sorted_row_however_many_they_are(size):
    """Few are looked for above shares of the average probability first, many in the whole row."""
    test = Predictions(torch.cat([drawn(40, 64, 7, sharp=s).logits for s in (0.1, 0.6, 1.5, 9.0)]))
    fitted = replace(sets.fit("top_k", drawn(20, 64, 8)), groups=(SetGroup("all", 20, float(size)),))
    order = np.argsort(-test.probabilities().numpy(), axis=1, kind="stable")
    expected = np.zeros((160, 64), dtype=bool)
    np.put_along_axis(expected, order[:, :size], True, axis=1)
    assert np.array_equal(fitted(test).numpy(), expected)


def test_one_sample_by_hand():
    # Nine calibration samples (0.5, 0.3, 0.2) with labels 0 0 0 0 0 1 1 1 2; k = ceil(10 * 0.8) = 8.
    val = Predictions.from_probs([[0.5, 0.3, 0.2]] * 9, [0] * 5 + [1] * 3 + [2])
    test = Predictions.from_probs([[0.6, 0.25, 0.15], [0.75, 0.15, 0.1]])
    # lac: five scores 0.5, three 0.7, one 0.8; the eighth is 0.7, so p >= 0.3.
    assert sets.fit("lac", val, 0.8)(test).tolist() == [[True, False, False]] * 2
    # aps, u = 1: scores 0.5, 0.8, 1; the eighth is 0.8: sums 0.6 | 0.85, and 0.75 | 0.9.
    assert sets.fit("aps", val, 0.8, randomized=False)(test).tolist() == [[True, False, False]] * 2
    # top_k: ranks 1, 2, 3; the eighth is 2.
    assert sets.fit("top_k", val, 0.8)(test).tolist() == [[True, True, False]] * 2
    # raps, penalty 0.1 from rank 2 on: 0.5, 0.9, 1.2; limit 0.9: 0.85 + 0.1 > 0.9.
    raps = sets.fit("raps", val, 0.8, penalty=0.1, k_reg=1, randomized=False)
    assert raps(test).tolist() == [[True, False, False]] * 2
    # saps, weight 0.1: 0.5, 0.6, 0.7; limit 0.6: the second class has 0.6 + 0.1.
    saps = sets.fit("saps", val, 0.8, weight=0.1, randomized=False)
    assert saps(test).tolist() == [[True, False, False]] * 2


@pytest.mark.parametrize(
    ("n", "coverage", "rank"),
    [(99, 0.55, 55), (100, 0.9, 91), (9, 0.9, 9), (8, 0.9, 9), (1, 0.5, 1), (999, 0.999, 999)],
)
def test_the_rank_is_exact(n, coverage, rank):
    assert sets.quantile_rank(n, coverage) == rank


def test_the_promise_holds_over_many_draws():
    """Between the promise and 1 / (n + 1) above it, up to three Monte-Carlo errors."""
    pool, rng = drawn(3000, 10, 3, sharp=1.5), np.random.default_rng(0)
    for word, n in (("lac", 50), ("aps", 200)):
        shares = []
        for _ in range(200):
            rows = rng.permutation(3000)
            test = pool.take(rows[n : n + 200])
            inside = sets.fit(word, pool.take(rows[:n]), allow_empty=True)(test)
            shares.append(float(inside[torch.arange(200), test.labels].double().mean()))
        error = 3 * np.std(shares) / 200**0.5
        assert 0.9 - error <= np.mean(shares) <= 0.9 + 1 / (n + 1) + error


def test_bands_of_difficulty_keep_the_promise_for_the_hard():
    rng = np.random.default_rng(4)
    n = 40_000
    difficulty = rng.random(n)
    # The hard half is as unsure as the easy half says, and wrong more often: the model does not know.
    labels = np.where(rng.random(n) < np.where(difficulty > 0.5, 0.5, 0.95), 0, rng.integers(1, 4, n))
    logits = np.tile([3.0, 0.0, 0.0, 0.0], (n, 1)) + 0.3 * rng.normal(size=(n, 4))
    everything = Predictions(logits, labels, columns={"difficulty": difficulty})
    val, test = everything.take(np.arange(20_000)), everything.take(np.arange(20_000, n))
    hard = test.columns["difficulty"] > 0.5
    for by, options, low, high in ((None, {}, 0.7, 0.88), ("difficulty", {"edges": (0.5,)}, 0.89, 0.91)):
        inside = sets.fit("aps", val, by=by, **options)(test).numpy()
        covered = inside[np.arange(len(test)), test.labels.numpy()]
        assert low < covered[hard].mean() < high


def test_weights_keep_the_promise_under_covariate_shift():
    rng = np.random.default_rng(5)
    x = rng.normal(size=20_000)
    logits = np.stack([2 * x, np.zeros(20_000), np.full(20_000, -1.0)], axis=1)
    labels = (logits / (1 + (x > 0.5)[:, None]) + rng.gumbel(size=logits.shape)).argmax(axis=1)
    ratio = np.exp(x - 0.5)  # of N(1, 1) to N(0, 1)
    val = Predictions(logits[:10_000], labels[:10_000])
    moved = 10_000 + rng.choice(10_000, 4000, p=ratio[10_000:] / ratio[10_000:].sum())
    test = Predictions(logits[moved], labels[moved])

    def coverage(fitted, **weights):
        inside = fitted(test, **weights).numpy()
        return inside[np.arange(4000), labels[moved]].mean()

    assert coverage(sets.fit("lac", val, allow_empty=True)) < 0.88
    known = sets.fit("lac", val, weights=ratio[:10_000], allow_empty=True)
    assert 0.885 < coverage(known, weights=ratio[moved]) < 0.915
    assert "effective of 10,000 samples" in known.notes[0]
    learned = sets.likelihood_ratios(x[:10_000, None], x[moved, None])
    again = sets.fit("lac", val, weights=learned.calibration, allow_empty=True)
    assert 0.885 < coverage(again, weights=learned.new) < 0.915
    with pytest.raises(InputError, match="need weights="):
        known(test)


def test_a_sample_gets_the_same_set_alone_and_twice(tmp_path):
    val, test = drawn(200, 6, 6).replace(class_names="abcdef"), drawn(50, 6, 7)
    for by in (None, "class", "difficulty"):
        fitted = sets.fit("aps", val, by=by)
        whole = fitted(test)
        assert torch.equal(fitted(test), whole)
        turned = np.arange(50)[::-1].copy()
        assert torch.equal(fitted(test.take(turned)), whole[turned])
        assert torch.equal(torch.cat([fitted(test.take([k])) for k in range(50)]), whole)
        for name in ("sets.json", "sets.safetensors"):
            fitted.save(tmp_path / name)
            again = sets.load(tmp_path / name)
            assert torch.equal(again(test), whole)
            assert (again.groups, again.class_names) == (fitted.groups, tuple("abcdef"))


def test_weighted_sets_are_saved(tmp_path):
    val = drawn(60, 4, 8)
    fitted = sets.fit("lac", val, weights=np.linspace(0.5, 1.5, 60))
    fitted.save(tmp_path / "sets.json")
    weights = np.ones(60)
    assert torch.equal(sets.load(tmp_path / "sets.json")(val, weights), fitted(val, weights))


def test_too_few_samples_give_all_classes_and_say_so():
    few = sets.fit("lac", drawn(8, 4, 9), 0.9)
    assert not few.promises
    assert bool(few(drawn(5, 4, 10)).all())
    assert few.notes == (
        "no threshold can promise 0.9 from 8 samples, so every set holds all classes; it takes at least 9",
    )
    val = drawn(300, 4, 11)
    val = val.take(val.labels.numpy() != 2)
    by_class = sets.fit("aps", val, by="class")
    assert by_class.groups[2].threshold is None
    assert bool(by_class(drawn(50, 4, 12))[:, 2].all())
    assert "1 of 4 groups have fewer than the 9 samples" in by_class.notes[0]


def test_a_group_that_the_fit_has_not_seen_gets_all_classes():
    val, test = drawn(300, 4, 13), drawn(9, 4, 14)
    fitted = sets.fit("lac", val, by="site")
    assert bool(fitted(test.with_column("site", np.full(9, 7))).all())


def test_empty_sets_only_where_allowed():
    # Coverage 0.5 of a model that is right and sure: the limit lies below most p_max.
    val = Predictions(torch.randn(200, 3, generator=torch.Generator().manual_seed(0)) + 4 * torch.eye(3)[0], [0] * 200)
    assert int(sets.fit("aps", val, 0.5, randomized=False)(val).sum(dim=1).min()) == 1
    assert int(sets.fit("aps", val, 0.5, randomized=False, allow_empty=True)(val).sum(dim=1).min()) == 0


def test_clusters_join_classes_of_like_scores_and_rare_ones():
    rng = np.random.default_rng(15)
    labels = np.concatenate([np.repeat(np.arange(4), 1000), [4] * 5])
    # Classes 0 and 1 are easy, 2 and 3 hard.
    own = np.where(labels < 2, 4.0, 1.0)[:, None] * np.eye(5)[labels]
    val = Predictions(own + rng.normal(size=(len(labels), 5)), labels)
    fitted = sets.fit("lac", val, by="cluster", clusters=2)
    easy, hard, rare = (fitted.class_groups[k] for k in (0, 2, 4))
    assert fitted.class_groups == (easy, easy, hard, hard, rare)
    assert len({easy, hard, rare}) == 3
    assert fitted.groups[rare].name == "rare classes"


def test_options_that_are_none_are_chosen_on_a_fifth():
    fitted = sets.fit("raps", drawn(500, 10, 16))
    assert fitted.n == 400
    assert fitted.options["penalty"] in (0.001, 0.01, 0.1, 0.2, 0.5)
    assert fitted.notes == ("100 of 500 samples chose penalty and k_reg, the others the thresholds",)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"coverage": 1.0}, InputError, "coverage must lie in (0, 1), got 1.0"),
        ({"coverage": 0.0}, InputError, "coverage must lie in (0, 1), got 0.0"),
        ({"by": "sit"}, InputError, "no column 'sit' to group by; did you mean 'site'?"),
        ({"edges": (1.0, 0.5), "by": "difficulty"}, InputError, "edges must be finite numbers that rise"),
        ({"bands": 3}, InputError, "bands and edges are of a column"),
        ({"clusters": 3}, InputError, "clusters= is for by='cluster'"),
        ({"weights": [1.0]}, InputError, "weights must be 50 finite numbers of 0 or more"),
        ({"weights": np.zeros(50)}, InputError, "weights must not all be 0"),
        ({"penalty": 1.0}, OptionError, "prediction sets 'lac' has no option 'penalty'"),
    ],
)
def test_bad_options_are_one_line(change, error, words):
    with pytest.raises(error) as caught:
        sets.fit("lac", drawn(50, 3, 17), **change)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_predictions_are_one_line():
    good = drawn(50, 3, 18)
    for bad, words in (
        (good.replace(split="test"), "must not be fitted on the test split"),
        (Predictions(good.logits), "needs labels"),
        (Predictions.from_top1([0, 1], [0, 0], [0.9, 0.6]), "needs all probabilities"),
        (Predictions(torch.full((3, 2), torch.nan), [0, 1, 0]), "logits must be finite, got nan at sample 0 of 3"),
        (good.take([]), "at least one prediction"),
        ([1, 2], "fitted on Predictions, got list"),
    ):
        with pytest.raises(InputError, match=words):
            sets.fit("aps", bad)
    with pytest.raises(InputError, match="must be of the 3 classes of the prediction sets 'aps', got 4"):
        sets.fit("aps", good)(drawn(5, 4, 19))


def test_what_is_measured_is_counted_and_a_broken_promise_is_seen(tmp_path):
    val, test = drawn(1000, 4, 20), drawn(2000, 4, 21)
    fitted = sets.fit("aps", val, by="difficulty", edges=(0.5,))
    result = sets.measure(fitted, test)
    inside = fitted(test).numpy()
    covered = inside[np.arange(2000), test.labels.numpy()]
    assert result.whole.covered == covered.sum()
    assert sum(count for _, count in result.sizes) == 2000
    assert dict(result.sizes)[2] == (inside.sum(axis=1) == 2).sum()
    hard = next(group for group in result.groups if group.name == "hardest band")
    assert hard.covered == covered[test.columns["difficulty"] > 0.5].sum()
    assert hard.promised
    assert not hard.broken
    assert result.examples[0].size == max(size for size, _ in result.sizes)
    # Labels of other samples: the promise is broken, and seen to be.
    worse = sets.measure(fitted, test.replace(labels=test.labels.roll(1)))
    assert all(group.broken for group in worse.groups if group.promised)
    without = sets.measure(fitted, Predictions(test.logits, columns=test.columns))
    assert without.whole.covered is None
    assert without.sizes == result.sizes
    evaluation = confide.Evaluation((), sets=(result,))
    evaluation.save(tmp_path / "evaluation.json")
    assert confide.Evaluation.load(tmp_path / "evaluation.json").sets == (result,)


@pytest.mark.parametrize("method", sets.SETS, ids=lambda method: method.word)
def test_every_corner_gives_sets_and_scores_that_rise(method):
    val = drawn(120, 12, 22)
    for options in ({}, *method.corners):
        for dtype in (torch.float16, torch.float32, torch.float64):
            fitted = sets.fit(method.word, Predictions(val.logits.to(dtype), val.labels), **options)
            inside = fitted(Predictions(val.logits.to(dtype)))
            assert inside.shape == (120, 12)
            assert bool(inside.any(dim=1).all())
    # Along the falling order of probability a class never comes in after one that is out.
    order = val.logits.argsort(dim=1, descending=True)
    ranked = inside.gather(1, order)
    assert bool((ranked[:, :-1] >= ranked[:, 1:]).all())


def test_weights_under_shift_are_those_of_a_logistic_regression():
    from sklearn.linear_model import LogisticRegression

    from confide.sets.fitting import _logistic

    rows = np.random.default_rng(0).normal(size=(80, 3))
    outcome = (rows[:, 0] + np.random.default_rng(1).normal(size=80) > 0).astype(float)
    expected = LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10).fit(rows, outcome).coef_[0]
    found = _logistic(torch.tensor(rows), torch.tensor(outcome))
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


def test_a_group_that_is_too_small_takes_no_promise_from_the_others():
    p = drawn(200, 3, 0)
    p = p.replace(columns={"site": np.array(["rare"] * 2 + ["usual"] * 198)})
    fitted = sets.fit("lac", p, 0.9, by="site")
    assert {group.name: group.threshold is None for group in fitted.groups} == {"rare": True, "usual": False}
    assert fitted.promises


def test_the_rank_from_which_raps_penalises_is_that_of_the_labels():
    labels = torch.arange(60) % 3
    right = Predictions(4.0 * torch.eye(3)[labels] + 0.01 * torch.rand(60, 3), labels)
    assert sets.fit("raps", right, 0.8).options["k_reg"] == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_order_of_classes_has_the_lower_of_equals_first(dtype):
    probs = np.random.default_rng(0).integers(0, 6, (40, 12)).astype(dtype) / 7
    order = _whole(probs, np.arange(1, 40), classes=True)
    places = np.argsort(-probs[1:], axis=1, kind="stable")
    np.testing.assert_array_equal(order.classes, places)
    np.testing.assert_array_equal(order.probs, np.take_along_axis(probs[1:], places, axis=1))


@pytest.mark.parametrize(
    ("changes", "fits"),
    [
        ({}, True),
        ({"class_groups": [0, 1, 2, 2]}, True),
        ({"class_groups": [0, 1, 2]}, False),
        ({"class_groups": [0, 1, 2, 3]}, False),
        ({"class_groups": [0, 1, 2, -1]}, False),
        ({"by": None, "class_groups": None}, False),
        ({"groups": []}, False),
        ({"num_classes": 1, "class_groups": [0]}, False),
    ],
    ids=str,
)
def test_a_file_whose_groups_do_not_fit_its_classes_is_refused(changes, fits, tmp_path):
    labels = torch.arange(90) % 4
    val = Predictions(torch.randn(90, 4, generator=torch.Generator().manual_seed(0)), labels, split="val")
    sets.fit("lac", val, 0.8, by="class").save(tmp_path / "sets.json")
    record = json.loads((tmp_path / "sets.json").read_text())
    where = record if "groups" in record else next(v for v in record.values() if isinstance(v, dict) and "groups" in v)
    where |= {"groups": where["groups"][:3], "class_groups": [0, 1, 2, 0]} | changes
    (tmp_path / "sets.json").write_text(json.dumps(record))
    if fits:
        assert sets.load(tmp_path / "sets.json")(val).any(dim=1).all()
    else:
        with pytest.raises(InputError):
            sets.load(tmp_path / "sets.json")


def test_a_promise_next_to_one_is_answered_at_once():
    assert "at least 999,999,999" in sets.fit("lac", drawn(20, 3, 0), 1 - 1e-9).notes[0]
    for coverage in (1e-9, 0.1, 0.5, 0.55, 0.9, 0.95, 2 / 3, 0.999):
        found = next(n for n in range(1, 2000) if quantile_rank(n, coverage) <= n)
        assert fewest_samples(coverage) == found


@pytest.mark.parametrize(("n", "coverage", "chance"), [(9, 0.8, 0.2), (9, 0.9, 0.1), (4, 0.5, 0.4), (19, 0.9, 0.1)])
def test_a_promise_is_broken_where_so_few_covered_are_rarer_than_the_level(n, coverage, chance):
    """Of one sample: the next score exceeds the k-th of n with probability 1 - k / (n + 1)."""
    missed = GroupCoverage("all", "all", 1, 1.0, 0, promised=True)
    group = SetGroup("all", n, 0.5)
    for level, broken in ((chance * (1 - 1e-9), False), (chance * (1 + 1e-9), True)):
        assert _judged(missed, group, coverage, level).broken == broken
    for untold in (replace(missed, covered=None), replace(missed, promised=False)):
        assert _judged(untold, group, coverage, 1.0) == untold
    assert _judged(missed, "all", coverage, 1.0) == missed


@pytest.mark.parametrize(("short", "more"), [(1, False), (5, False), (6, True)])
def test_groups_without_a_threshold_are_named_up_to_five(short, more):
    groups = [SetGroup(f"g{k}", k, None if k < short else 0.5) for k in range(8)]
    (told,) = _unreachable(groups, 0.9)
    assert told.startswith(f"{short} of 8 groups have fewer than the 9 samples that a promise of 0.9 takes")
    assert told.endswith(", ...") == more
    assert told.count("(") == min(short, 5)
    assert _unreachable(groups[short:], 0.9) == []
    (alone,) = _unreachable([SetGroup("all", 8, None)], 0.9)
    assert alone.startswith("no threshold can promise 0.9 from 8 samples, so every set holds all classes; it takes")
