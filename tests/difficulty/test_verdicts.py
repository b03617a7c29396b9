from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter

from confide import Predictions, difficulty
from confide.checks import InputError
from confide.difficulty.label_errors import (
    AMBIGUOUS,
    ATYPICAL,
    BINS,
    FINENESS,
    LEAD_GROUPS,
    OUTLIER,
    TAIL_POWERS,
    _FloorFit,
    _listed,
    _log_deviation,
    _PairCounts,
    _picture_flags,
    _pixels,
    _right,
    _statistics,
    _Suspects,
    _TailFits,
    label_fit,
    quality_flags,
)
from confide.records import Scores


@pytest.fixture
def noisy():
    """Five classes in ten dimensions; 40 wrong labels, 10 samples between two classes, 10 of no class."""
    draw = np.random.default_rng(0)
    centres = 4 * draw.normal(size=(5, 10))
    truth = draw.integers(0, 5, 1000)
    rows = centres[truth] + draw.normal(size=(1000, 10))
    labels = truth.copy()
    labels[:40] = (truth[:40] + 1 + draw.integers(0, 4, 40)) % 5
    rows[40:50] = (centres[0] + centres[1]) / 2 + 0.3 * draw.normal(size=(10, 10))
    labels[40:50] = draw.integers(0, 2, 10)
    rows[50:60] = centres.mean(axis=0) + 40 * draw.normal(size=(10, 10)) / np.sqrt(10)
    return rows.astype(np.float32), labels, truth


def test_wrong_labels_are_found_and_the_right_one_is_suggested(noisy):
    rows, labels, truth = noisy
    found = difficulty.verdicts(rows, labels)
    assert (found.verdict[:40] == "wrong label").mean() > 0.95
    assert (found.verdict[60:] == "wrong label").mean() < 0.01
    assert (found.fit.suggested[:40] == truth[:40]).mean() > 0.95
    assert set(found.suspects()[:38]) <= set(range(60))


def test_samples_between_two_classes_are_ambiguous(noisy):
    rows, labels, _ = noisy
    verdict = difficulty.verdicts(rows, labels).verdict
    assert (np.isin(verdict[40:50], ["ambiguous", "atypical"])).mean() > 0.7
    assert (verdict[60:] == "ambiguous").mean() < 0.05


def test_a_sample_is_ambiguous_whichever_of_its_two_classes_it_is_called():
    draw = np.random.default_rng(0)
    truth = np.arange(900) % 3
    rows = np.array([[-1.2, 0.0], [1.2, 0.0], [0.0, 9.0]])[truth] + draw.normal(size=(900, 2))
    found = difficulty.verdicts(rows, truth)
    two = found.verdict == "ambiguous"
    assert two.sum() > 50
    assert 0.3 < (found.fit.suggested == truth)[two].mean() < 0.95
    assert ((found.fit.suggested == truth) | (found.fit.second == truth))[two].all()
    assert (found.fit.runner_up[two] >= AMBIGUOUS).all()
    assert not two[truth == 2].any()


def test_samples_of_no_class_are_atypical(noisy):
    rows, labels, _ = noisy
    verdict = difficulty.verdicts(rows, labels).verdict
    assert (verdict[50:60] == "atypical").mean() > 0.8
    assert (verdict[60:] == "atypical").mean() < 0.03


def test_suspicion_ranks_wrong_labels_first(noisy):
    rows, labels, _ = noisy
    suspicion = label_fit(rows, labels).suspicion
    wrong = np.arange(1000) < 40
    above = (suspicion[wrong][:, None] > suspicion[60:][None]).mean()
    assert above > 0.99


def test_a_second_round_helps_where_labels_are_very_wrong():
    draw = np.random.default_rng(1)
    truth = draw.integers(0, 4, 1200)
    rows = 2.2 * draw.normal(size=(4, 30))[truth] / 2 + draw.normal(size=(1200, 30))
    wrong = draw.random(1200) < 0.35
    labels = np.where(wrong, (truth + 1 + draw.integers(0, 3, 1200)) % 4, truth)
    areas = []
    for rounds in (1, 2):
        suspicion = label_fit(rows, labels, rounds=rounds).suspicion
        areas.append((suspicion[wrong][:, None] > suspicion[~wrong][None]).mean())
    assert areas[1] >= areas[0] - 1e-3
    assert areas[1] > 0.95


def test_a_model_out_of_fold_is_averaged_in(noisy):
    rows, labels, truth = noisy
    logits = torch.nn.functional.one_hot(torch.from_numpy(truth), 5).float() * 4
    blind = np.random.default_rng(0).normal(size=rows.shape).astype(np.float32)
    with_model = difficulty.verdicts(blind, labels, predictions=Predictions(logits, torch.from_numpy(labels)))
    without = difficulty.verdicts(blind, labels)
    assert (
        (with_model.fit.suggested[:40] == truth[:40]).mean() > 0.9 > (without.fit.suggested[:40] == truth[:40]).mean()
    )


def test_hard_samples_without_another_verdict_are_hard(noisy):
    rows, labels, _ = noisy
    scores = difficulty.score("rmd", rows, labels)
    found = difficulty.verdicts(rows, labels, scores=scores, hardest=0.2)
    assert (found.verdict == "hard").sum() > 50
    assert set(np.unique(found.verdict)) <= set(difficulty.verdicts.__globals__["VERDICTS"])
    hard = scores.values[found.verdict == "hard"]
    assert hard.min() >= np.quantile(scores.values, 0.8) - 1e-9


def test_verdicts_are_columns_of_the_scores(noisy, tmp_path):
    rows, labels, _ = noisy
    scores = difficulty.score("rmd", rows, labels)
    both = difficulty.with_verdicts(scores, difficulty.verdicts(rows, labels))
    both.save(tmp_path / "scores.parquet")
    again = Scores.load(tmp_path / "scores.parquet")
    assert again.columns["verdict"].tolist() == both.columns["verdict"].tolist()


def test_damaged_pictures_are_low_quality():
    draw = np.random.default_rng(0)
    smooth = np.linspace(0, 200, 32)[None, :] + 20 * np.sin(np.arange(32) / 3)[:, None]
    images = np.stack([smooth + 10 * draw.normal(size=(32, 32)) for _ in range(60)]).clip(0, 255).astype(np.uint8)
    images[3] = 128
    images[5] = draw.integers(0, 256, (32, 32))
    flags = quality_flags(images[:, None], 60)
    assert flags[3] == "constant"
    assert flags[5] == "noisy"
    assert (np.delete(flags, [3, 5]) == "").all()


def test_texts_without_words_are_low_quality():
    assert quality_flags(["a real sentence", "", " ?! ", "ok"], 4).tolist() == ["", "empty", "empty", ""]


def test_quality_enters_the_verdict(noisy):
    rows, labels, _ = noisy
    texts = ["words enough"] * 1000
    texts[100] = ""
    assert difficulty.verdicts(rows, labels, inputs=texts).verdict[100] == "low quality"


def test_one_class_only_is_refused():
    with pytest.raises(InputError, match="two classes or more"):
        difficulty.verdicts(np.random.default_rng(0).normal(size=(20, 3)), np.zeros(20, dtype=int))


def test_more_dimensions_than_samples_still_find_wrong_labels():
    draw = np.random.default_rng(0)
    truth = draw.integers(0, 3, 90)
    rows = 3 * draw.normal(size=(3, 200))[truth] + draw.normal(size=(90, 200))
    labels = truth.copy()
    labels[:5] = (truth[:5] + 1) % 3
    assert set(np.argsort(-label_fit(rows, labels).suspicion)[:5]) == set(range(5))


@pytest.fixture
def overlapping():
    """Four classes that overlap: one sample in fifteen lies nearer to another class; no label is wrong."""
    draw = np.random.default_rng(2)
    truth = draw.integers(0, 4, 2000)
    return (2.8 * np.eye(4, 6)[truth] + draw.normal(size=(2000, 6))).astype(np.float32), truth


def test_no_label_is_called_wrong_where_none_is(overlapping):
    rows, labels = overlapping
    found = difficulty.verdicts(rows, labels)
    assert found.evidence.disagreeing > 100
    assert len(found.suspects()) == 0
    assert "cannot tell wrong labels from hard samples" in str(found.evidence)


def test_lists_of_wrong_labels_keep_their_false_discovery_rate(overlapping):
    rows, truth = overlapping
    for rate in (0.2, 0.4):
        listed, false = [], 0
        for seed in (3, 4, 5):
            draw = np.random.default_rng(seed)
            wrong = draw.random(2000) < 0.1
            labels = np.where(wrong, (truth + draw.integers(1, 4, 2000)) % 4, truth)
            found = difficulty.verdicts(rows, labels, max_fdr=rate)
            suspects = found.suspects()
            listed.append(len(suspects))
            false += int((~wrong[suspects]).sum())
            if len(suspects):  # else the features cannot tell
                assert found.evidence.false_discovery_rate < found.evidence.false_discovery_limit <= rate
                assert f"{len(suspects)} labels look wrong" in str(found.evidence)
        assert false <= rate * sum(listed)
        assert sum(count > 100 for count in listed) >= 2


def test_a_short_list_must_be_surer_than_a_long_one_of_the_same_share():
    def limit(copies):
        judged = SimpleNamespace(
            suggested=np.ones(10 * copies, dtype=int),
            false_chance=np.full(10 * copies, 0.08),
            false_chance_sd=np.zeros(10 * copies),
            tail=np.zeros(10 * copies, dtype=int),
            mirror_chance=np.ones(10 * copies),
        )
        labels = np.zeros(10 * copies, dtype=int)
        return _listed(judged, labels, np.ones(10 * copies, dtype=bool), 0.2)[1]

    assert limit(1).listed == 0  # .08 + 1.645 sqrt(.08 x .92 / 10) = .22
    assert limit(4).listed == 40  # .08 + 1.645 sqrt(.08 x .92 / 40) = .15
    assert limit(4).false_discovery_limit == pytest.approx(0.1506, abs=1e-4)


def test_a_list_that_mirror_images_would_fill_too_is_cut_or_empty():
    chance = np.linspace(0.01, 0.03, 100)

    def listed(images):
        judged = SimpleNamespace(
            suggested=np.ones(100, dtype=int),
            false_chance=chance,
            false_chance_sd=np.zeros(100),
            tail=np.zeros(100, dtype=int),
            mirror_chance=np.append(chance[99 :: -100 // images][:images], np.ones(100 - images)),
        )
        return _listed(judged, np.zeros(100, dtype=int), np.ones(100, dtype=bool), 0.2)[1]

    assert listed(4).false_discovery_rate == pytest.approx(0.02)  # 2 expected: P(4 or more) = .14
    # P(6 or more of 2) = .017, so the images are believed: at most 11.8 of 100, by Poisson's upper 95 % limit for 6.
    assert listed(6).false_discovery_rate == pytest.approx(0.06)
    assert listed(6).false_discovery_limit == pytest.approx(0.1184, abs=1e-4)
    assert listed(20).listed == 0  # at most 29.1 of 100


def test_heavy_tails_do_not_make_labels_look_wrong():
    for seed in range(4):
        draw = np.random.default_rng([9, seed])
        true = draw.integers(0, 10, 2000)
        rows = (3.0 * np.eye(10, 16)[true] + draw.standard_t(3, size=(2000, 16))).astype(np.float32)
        found = difficulty.verdicts(rows, true)
        assert found.evidence.disagreeing > 300
        assert len(found.suspects()) <= 2  # 12 to 60 where the mirror images are not asked


def test_mirror_images_of_right_labels_are_suspects_about_as_often_as_the_samples():
    draw = np.random.default_rng(3)
    true = draw.integers(0, 4, 4000)
    rows = (2.0 * np.eye(4, 8)[true] + draw.normal(size=(4000, 8))).astype(np.float32)
    moved = draw.random(4000) < 0.1
    labels = np.where(moved, (true + draw.integers(1, 4, 4000)) % 4, true)
    fit = label_fit(rows, labels)
    suspects, images = fit.false_chance < 1, fit.mirror_chance < 1
    # A little less often: the samples nearest to other classes are left out of the means, which moves these apart.
    assert 0.7 < images[~moved].mean() / suspects[~moved].mean() < 1.1
    assert suspects[moved].mean() > 0.8 > 0.1 > images[moved].mean()


def test_a_label_that_is_likelier_right_than_wrong_is_not_listed_behind_sure_ones():
    judged = SimpleNamespace(
        suggested=np.ones(7, dtype=int),
        false_chance=np.array([0.0] * 6 + [1.0]),
        false_chance_sd=np.zeros(7),
        tail=np.zeros(7, dtype=int),
        mirror_chance=np.ones(7),
    )
    wrong, evidence = _listed(judged, np.zeros(7, dtype=int), np.ones(7, dtype=bool), 0.2)
    assert wrong.tolist() == [True] * 6 + [False]  # one right label of seven would keep the rate, 14 %
    assert evidence.false_discovery_rate == 0


def test_a_tail_is_fitted_wherever_the_fit_before_ended():
    """Seven images of CIFAR-10 were called wrong: a fit that began where the tail had died out stayed there."""
    margin = np.expm1((np.arange(BINS) + 0.5) / FINENESS)
    pairs = np.where(margin < 14, 20, 0)  # few of them at small odds
    labels = np.random.default_rng(0).binomial(pairs, np.exp(-1.2 - 0.5 * margin))
    for power in TAIL_POWERS:
        tail = _TailFits(pairs, labels, flat=False)
        for floor in (0.0, 1e-3, 0.2, 1e-3, 0.05, 0.0):
            value, parameters = tail.fit(floor, power)
            best = min(
                tail._terms(np.array([a, b, 0]), floor, power)[0] for a in (-2, -1.2) for b in np.arange(-7.5, 4)
            )
            assert value <= best + 0.01
            assert value == _TailFits(pairs, labels, flat=False).fit(floor, power)[0]
            assert ((parameters >= [-2.5, -8, 0]) & (parameters <= [-0.5, 4, 0])).all()


@pytest.mark.parametrize("floor", [0.0, 0.02])
def test_the_lower_limit_of_the_rate_of_wrong_labels_is_seldom_above_it(floor):
    margin = np.expm1((np.arange(BINS) + 0.5) / FINENESS)
    pairs, above = np.where(margin < 14, 20, 0), 0
    for seed in range(20):
        rate = floor + (1 - floor) * np.exp(-1.2 - 0.5 * margin)
        fitted = _FloorFit(
            *(x[None, None] for x in (pairs, np.random.default_rng(seed).binomial(pairs, rate)))
        ).lower_limit()
        above += fitted is not None and fitted[0] > floor
    assert above <= 3  # of 20 at 5 % each: more in 2 % of such tests


@pytest.mark.parametrize("share", [0.05, 0.1])
def test_few_samples_do_not_bring_lists_full_of_right_labels(share):
    listed = false = 0
    for seed in range(12):
        draw = np.random.default_rng(seed)
        truth = draw.integers(0, 10, 500)
        rows = 3.4 * np.eye(10, 16)[truth] + draw.normal(size=(500, 16))
        wrong = draw.random(500) < share
        labels = np.where(wrong, (truth + draw.integers(1, 10, 500)) % 10, truth)
        suspects = difficulty.verdicts(rows, labels).suspects()
        listed, false = listed + len(suspects), false + int((~wrong[suspects]).sum())
    assert false <= 0.2 * listed


def test_features_that_know_nothing_of_the_labels_say_so(noisy):
    _, labels, _ = noisy
    found = difficulty.verdicts(np.random.default_rng(0).normal(size=(1000, 10)), labels)
    assert len(found.suspects()) == 0
    assert str(found.evidence).startswith("these features cannot tell wrong labels")


def test_predictions_alone_are_enough(overlapping):
    rows, truth = overlapping
    wrong = np.arange(2000) < 200
    labels = np.where(wrong, (truth + np.random.default_rng(4).integers(1, 4, 2000)) % 4, truth)
    logits = torch.from_numpy(2.8 * rows[:, :4].astype(np.float64))  # the true posterior
    found = difficulty.verdicts(predictions=Predictions(logits, torch.from_numpy(labels)))
    assert len(found.suspects()) > 40
    assert wrong[found.suspects()].mean() > 0.8
    assert not (found.verdict == "atypical").any()
    with pytest.raises(InputError, match="features or out-of-fold predictions"):
        difficulty.verdicts(labels=labels)


@pytest.fixture(scope="module")
def pictures():
    """Sharp pictures with edges and grain, 120 of them, RGB."""
    draw = np.random.default_rng(0)
    blocks = draw.integers(30, 220, (120, 3, 8, 8)).repeat(4, axis=2).repeat(4, axis=3)
    return (blocks + 6 * draw.normal(size=blocks.shape)).clip(0, 255).astype(np.uint8)


def test_blurred_pictures_are_found(pictures):
    images = [Image.fromarray(pixels.transpose(1, 2, 0)) for pixels in pictures]
    blurred = [image.filter(ImageFilter.GaussianBlur(1.5)) for image in images[:36]]
    flags = quality_flags(blurred + images[36:], 120)
    assert (flags[:36] == "blurred").all()
    assert (flags[36:] == "").all()


def test_colours_of_one_brightness_are_not_constant(pictures):
    striped = pictures.copy()
    striped[0] = 0
    striped[0, 0, :, ::2], striped[0, 1, :, 1::2] = 200, 200  # red and green, equally bright
    striped[1] = np.array([200, 0, 0], dtype=np.uint8)[:, None, None]  # red all over
    flags = quality_flags(striped, 120)
    assert flags[0] != "constant"
    assert flags[1] == "constant"


def test_a_picture_and_its_array_get_one_answer(pictures):
    damaged = pictures.copy()
    damaged[:4] = damaged[:4] // 100
    damaged[4:8] = np.random.default_rng(1).integers(0, 256, damaged[4:8].shape)
    files = [Image.fromarray(pixels.transpose(1, 2, 0)) for pixels in damaged]
    flags = quality_flags(damaged, 120)
    assert (flags[:8] != "").all()
    assert quality_flags(files, 120).tolist() == flags.tolist()
    assert quality_flags(damaged.transpose(0, 2, 3, 1), 120).tolist() == flags.tolist()


def test_pictures_are_flagged_beyond_five_robust_deviations_and_a_tenth_of_the_contrast():
    usual = np.full(101, 50.0) + np.linspace(-1, 1, 101)
    level = np.linspace(0.0, 255.0, 101)
    plain = (usual, usual / 50, usual / 50, level)
    assert set(_picture_flags(*plain)) == {""}
    deviation = _log_deviation(plain[1])
    assert np.median(deviation) == 0
    assert np.median(np.abs(deviation)) == pytest.approx(
        1 / (1.4826 + 1e-3 / np.median(np.abs(np.log(plain[1])))), rel=1e-3
    )
    for place, factor, word in ((1, 10.0, "noisy"), (2, 0.1, "blurred")):
        bent = [own.copy() for own in plain]
        bent[place][50] *= factor
        assert abs(_log_deviation(bent[place])[50]) > OUTLIER
        assert _picture_flags(*bent).tolist() == ["" if k != 50 else word for k in range(101)]
        bent[place][50] = plain[place][50] / factor
        assert set(_picture_flags(*bent)) == {""}
    for contrast, words in (
        (5.1, ["", ""]),
        (4.9, ["dark", "bright"]),
        (2.0, ["dark", "bright"]),
        (1.99, ["constant"] * 2),
    ):
        bent = [own.copy() for own in plain]
        bent[0][[0, 50, 100]] = contrast
        flags = _picture_flags(*bent)
        assert [flags[0], flags[100]] == words
        assert flags[50] == ("constant" if contrast < 2 else "")


def test_the_numbers_of_a_picture_are_those_of_both_directions():
    pixels = np.array([[[0, 0, 0], [0, 6, 0], [0, 0, 3]]], dtype=np.float32)
    contrast, roughness, detail, level = _statistics(pixels)
    steps = (6 + 6 + 3) / 6 + (6 + 6 + 3) / 6  # between rows, and between columns
    turns = (12 + 3) / 3 + (12 + 3) / 3
    assert contrast == pytest.approx(pixels.std())
    assert roughness == pytest.approx(steps / pixels.std(), rel=1e-4)
    assert detail == pytest.approx(turns / steps, rel=1e-4)
    assert level == 1
    tall = np.array([[[0, 0, 0, 0], [9, 9, 9, 9]]], dtype=np.float32)
    assert _statistics(tall) == pytest.approx(_statistics(tall.transpose(0, 2, 1)))
    assert _statistics(tall)[1:3] == pytest.approx((9 / 4.5, 0), rel=1e-4)
    assert _statistics(np.zeros((1, 1, 1), dtype=np.float32)) == (0, 0, 0, 0)


def test_pictures_of_any_layout_have_their_colours_first():
    grey, first, last = (np.zeros(shape, dtype=np.uint8) for shape in ((4, 5), (3, 4, 5), (4, 5, 3)))
    assert [_pixels(own).shape for own in (grey, first, last)] == [(1, 4, 5), (3, 4, 5), (3, 4, 5)]
    assert _pixels(np.zeros((1, 4, 5), dtype=np.uint8)).shape == (1, 4, 5)
    for other in (np.zeros((4, 5)), np.zeros(5, dtype=np.uint8), np.zeros((1, 2, 3, 4), dtype=np.uint8)):
        assert _pixels(other) is None
    assert quality_flags(["a1", "a", " ?b "], 3).tolist() == ["", "empty", "empty"]


def counted(part, groups, size=60):
    """Suspects of a tail above a floor of .03: near their class (part 0) or not, dealt to groups of samples."""
    draw, bins = np.random.default_rng(0), np.arange(60)
    pairs = np.round(size * np.exp(-bins / 25)).astype(np.int64)
    labels = draw.binomial(pairs, 0.03 + 0.3 * np.exp(-0.5 * bins))
    found = _PairCounts(np.zeros(4), np.zeros(4))
    for group in range(groups):
        found.counts[part, group, :60] = pairs // groups + (group < pairs % groups)
    margin = np.repeat(np.expm1((bins + 0.5) / FINENESS), labels)
    rows = np.arange(len(margin))
    found.disagreeing = len(margin)
    return found, _Suspects(rows, rows % groups, np.full(len(margin), part == 0), margin)


@pytest.mark.parametrize("groups", [1, 3])
def test_groups_alike_share_one_tail_and_those_far_from_their_class_the_law_of_the_others(groups):
    near, far = (counted(part, groups) for part in (0, 1))
    n = 20 * len(near[1].rows)
    chances, deviations, tails, images = near[0].false_chances(np.zeros(n), near[1], replace(near[1]))
    assert 0.4 < chances[near[1].rows].mean() < 0.6
    assert (deviations[near[1].rows] > 0).all()
    assert set(tails[near[1].rows]) == {0}
    np.testing.assert_array_equal(images, chances)  # each takes itself for its mirror image
    others = far[0].false_chances(np.zeros(n), far[1], replace(far[1]))
    for mine, own in zip(others, (chances, deviations, tails, images), strict=True):
        np.testing.assert_array_equal(mine, own)
    alone = counted(0, 1)
    np.testing.assert_array_equal(alone[0].false_chances(np.zeros(n), alone[1], None)[0], chances)


def test_groups_whose_right_labels_differ_have_tails_of_their_own():
    draw, bins = np.random.default_rng(0), np.arange(60)
    pairs = np.round(400 * np.exp(-bins / 25)).astype(np.int64)
    found, margins, groups = _PairCounts(np.zeros(4), np.zeros(4)), [], []
    for group, slope in enumerate((0.05, 0.5, 0.5)):  # few classes in the lead: right labels at large odds too
        labels = draw.binomial(pairs, 0.01 + 0.2 * np.exp(-slope * bins))
        found.counts[0, group, :60] = pairs
        margins.append(np.repeat(np.expm1((bins + 0.5) / FINENESS), labels))
        groups.append(np.full(labels.sum(), group))
    margin, group = np.concatenate(margins), np.concatenate(groups)
    rows, n = np.arange(len(margin)), 20 * len(margin)
    found.disagreeing = len(rows)
    suspects = _Suspects(rows, group, np.full(len(rows), True), margin)
    chances, _, tails, _ = found.false_chances(np.zeros(n), suspects, None)
    np.testing.assert_array_equal(tails[rows], group)
    assert (tails[len(rows) :] == -1).all()
    far = margin > np.expm1(30 / FINENESS)
    for own, slope in enumerate((0.05, 0.5, 0.5)):
        chosen = far & (group == own)
        right = 0.2 * np.exp(-slope * FINENESS * np.log1p(margin[chosen]))
        assert chances[rows][chosen].mean() == pytest.approx((right / (right + 0.01)).mean(), abs=0.15)


def test_features_that_miss_most_labels_have_no_word_against_one():
    found, suspects = counted(0, 1)
    n = 2 * found.disagreeing
    assert (found.false_chances(np.zeros(n), suspects, None)[0] < 1).any()
    found.disagreeing += 1
    assert (found.false_chances(np.zeros(n), suspects, None)[0] == 1).all()


def test_pairs_are_counted_by_group_margin_and_distance_of_every_usable_sample():
    draw = np.random.default_rng(0)
    lead, deviation = draw.random(50), draw.choice([-1.0, 0.0, 0.1, ATYPICAL, ATYPICAL + 0.1], 50)
    table, labels = np.log(draw.dirichlet(np.full(4, 0.1), 50)), draw.integers(0, 4, 50)
    found = _PairCounts(lead, deviation)
    for rows in (slice(0, 20), slice(20, 50)):
        found.add(torch.from_numpy(table[rows]), labels[rows])
    cuts = np.quantile(lead, np.arange(1, LEAD_GROUPS) / LEAD_GROUPS)
    expected = np.zeros_like(found.counts)
    for row in np.flatnonzero(deviation <= ATYPICAL):
        top = table[row].argmax()
        for other in set(range(4)) - {top}:
            place = min(int(FINENESS * np.log1p(table[row, top] - table[row, other])), BINS - 1)
            expected[int(deviation[row] > 0), int((lead[row] > cuts).sum()), place] += 1
    np.testing.assert_array_equal(found.counts, expected)
    assert found.disagreeing == (table.argmax(axis=1) != labels).sum()
    suspects = found.suspects(table.argmax(axis=1) != labels, np.arange(50.0), lead, deviation)
    rows = np.flatnonzero((table.argmax(axis=1) != labels) & (deviation <= ATYPICAL))
    assert suspects.rows.tolist() == suspects.margin.astype(int).tolist() == rows.tolist()
    assert suspects.typical.tolist() == (deviation[rows] <= 0).tolist()
    assert suspects.group.tolist() == (lead[rows, None] > cuts).sum(axis=1).tolist()


def test_hard_are_the_scores_above_the_quantile_itself(noisy):
    rows, labels, _ = noisy
    values = np.arange(1001) % 1000 / 1000
    scores = Scores(np.arange(1000), values[:1000], "drawn")
    plain = difficulty.verdicts(rows, labels, scores=scores, hardest=0.0)
    none = difficulty.verdicts(rows, labels)
    np.testing.assert_array_equal(plain.verdict, none.verdict)  # nothing lies above the largest
    half = difficulty.verdicts(rows, labels, scores=scores, hardest=0.5).verdict
    changed = np.flatnonzero(half != none.verdict)
    assert set(half[changed]) == {"hard"}
    assert changed.min() == 500


@pytest.mark.parametrize("floor", [0.0, 0.05, 0.4])
def test_slope_and_information_of_a_tail_are_those_of_its_likelihood(floor):
    pairs = np.round(300 * np.exp(-np.arange(60) / 25)).astype(np.int64)
    tail, at, power = _TailFits(pairs, np.arange(60) % 7, flat=True), np.array([-1.2, -1.0, 0.01]), 0.6
    # Of labels that are as frequent as they should be, the curvature is the information.
    rate = floor + (1 - floor) * _right(at, tail.margin, power)
    expected = _TailFits(pairs, np.zeros(60, dtype=np.int64), flat=True)
    expected.labels, expected.others = pairs * rate, pairs * (1 - rate)
    for place, step in enumerate(np.eye(3) * 1e-5):
        above, below = (tail._terms(at + sign * step, floor, power)[0] for sign in (1, -1))
        assert tail._terms(at, floor, power)[1][place] == pytest.approx((above - below) / 2e-5, rel=1e-5)
        above, below = (expected._terms(at + sign * step, floor, power)[1] for sign in (1, -1))
        np.testing.assert_allclose(expected._terms(at, floor, power)[2][place], (above - below) / 2e-5, rtol=1e-5)
