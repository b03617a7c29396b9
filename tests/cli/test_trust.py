"""The verb `trust` from files to files."""

import json

import numpy as np
import pytest
import torch

import confide
from confide.cli.main import main
from confide.trust import load


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("trust")
    centres = 2 * torch.randn(3, 5, generator=torch.Generator().manual_seed(9))
    for seed, (split, n) in enumerate((("train", 200), ("val", 200), ("test", 300))):
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(3, (n,), generator=generator)
        features = centres[labels] + torch.randn(n, 5, generator=generator)
        logits = -torch.cdist(features[:, :2], centres[:, :2]).square() / 2
        ids = np.array([f"{split}-{i}" for i in range(n)])
        confide.Predictions(logits, labels, ids, split).save(root / f"{split}.parquet")
        np.savez(root / f"{split}-features.npz", features=features.numpy(), label=labels.numpy(), id=ids)
        members = logits + torch.randn(4, n, 3, generator=generator)
        np.savez(root / f"{split}-members.npz", logits=members.numpy())
    return root


def paths(folder, *more):
    return ["trust", str(folder / "val.parquet"), str(folder / "test.parquet"), *more]


def test_all_predictors_are_compared_and_one_is_kept(folder, tmp_path, capsys):
    features = ["--features", str(folder / "val-features.npz"), str(folder / "test-features.npz")]
    members = ["--members", str(folder / "test-members.npz"), "--dropout", str(folder / "test-members.npz")]
    reference = ["--reference", str(folder / "train-features.npz")]
    extra = ["--fast", "--sweep", "1", "5", "--set", "steep_slope.epochs=3", "-o", str(tmp_path)]
    assert main(paths(folder, *features, *members, *reference, *extra)) == 0
    out = capsys.readouterr().out
    for word in confide.trust.names():
        assert word in out
    assert "left out" not in out
    assert "alpha_neg" in out
    trust = load(tmp_path)
    assert trust.word == "combined"
    test = confide.Predictions.load(tmp_path / "predictions.parquet")
    with np.load(folder / "test-features.npz") as arrays:
        torch.testing.assert_close(trust(test, arrays["features"]), test.trust)


def test_json_holds_every_number_with_its_interval(folder, tmp_path, capsys):
    assert main(paths(folder, "--only", "entropy", "margin", "--json", "-o", str(tmp_path))) == 0
    told = json.loads(capsys.readouterr().out)
    areas = {m["score"]: m for m in told["measurements"] if m["metric"] == "auroc"}
    assert set(areas) == {"msp", "trust:entropy", "trust:margin"}
    assert all(m["low"] < m["value"] < m["high"] for m in areas.values())
    assert {c["b"] for c in told["comparisons"]} == {"model/raw/trust:entropy", "model/raw/trust:margin"}
    assert told["about"]["verdict"]
    assert "agreement" not in told


def test_kendall_of_every_two_predictors_is_told_where_asked(folder, tmp_path, capsys):
    words = paths(folder, "--only", "entropy", "margin", "--fast", "--agreement", "-o", str(tmp_path))
    assert main(words) == 0
    assert "Kendall" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    pairs = {(a["a"], a["b"]): a["kendall"] for a in json.loads(capsys.readouterr().out)["agreement"]}
    assert len(pairs) == 3
    assert all(-1 <= tau <= 1 for tau in pairs.values())


def test_a_divergence_in_the_thousands_is_told_in_words(folder, tmp_path, capsys):
    test = confide.Predictions.load(folder / "test.parquet")
    # Right predictions a hair's breadth wide, wrong ones spread over the line: the ratio of variances is all of it.
    logits = torch.where(test.facts.correct[:, None], 50.0 * test.logits, test.logits)
    confide.Predictions(logits, test.labels, test.ids, "test").save(tmp_path / "wide.parquet")
    words = ["trust", str(folder / "val.parquet"), str(tmp_path / "wide.parquet"), "--fast", "--only", "margin"]
    assert main([*words, "-o", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "> 100" in out
    assert "average KL above 100 (" in out
    kept = confide.Evaluation.load(tmp_path / "evaluation.json")
    assert kept.value("separability_kl", score="msp") > 1000
    assert main(paths(folder, "--fast", "--only", "margin", "-o", str(tmp_path))) == 0
    assert "average KL above" not in capsys.readouterr().out


def test_without_features_what_needs_them_is_left_out_with_the_reason(folder, tmp_path, capsys):
    assert main(paths(folder, "--fast", "-o", str(tmp_path))) == 0
    out = capsys.readouterr().out
    assert "note: trust_score was left out: trust predictor 'trust_score' needs features" in out
    assert "note: ensemble was left out" in out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--only", "rmd"], "needs features of the samples"),
        (["--only", "rdm"], "did you mean 'rmd'"),
        (["--set", "alpha=3"], "--set takes WORD.OPTION=VALUE"),
        (
            ["--set", "steep_slope.alpha_neg=abc"],
            "alpha_neg of trust predictor 'steep_slope' must be a number, got 'abc'",
        ),
        (["--set", "tcp.folds=2.5", "--only", "tcp"], "folds of trust predictor 'tcp' must be a whole number, got 2.5"),
        (["--set", "tcp.alpha=3"], "trust predictor 'tcp' has no option 'alpha'"),
        (["--features", "none.npz", "none.npz"], "does not exist"),
    ],
)
def test_bad_input_is_one_clear_line(folder, tmp_path, capsys, more, message):
    assert main(paths(folder, *more, "-o", str(tmp_path))) == 1
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1


def test_features_of_the_other_split_are_refused_not_left_out(folder, tmp_path, capsys):
    swapped = ["--features", str(folder / "test-features.npz"), str(folder / "val-features.npz")]
    assert main(paths(folder, *swapped, "-o", str(tmp_path))) == 1
    assert "test-features.npz must have every id asked for, but 200 of 200 are missing" in capsys.readouterr().err


def test_the_test_split_is_never_fitted_on(folder, capsys):
    assert main(["trust", str(folder / "test.parquet"), str(folder / "val.parquet")]) == 1
    assert "must not be fitted on the test split" in capsys.readouterr().err


def test_no_errors_to_learn_from_leaves_the_oracles_out(folder, tmp_path, capsys):
    val = confide.Predictions.load(folder / "val.parquet")
    val.take(val.facts.correct.numpy()).save(tmp_path / "right.parquet")
    assert (
        main(
            [
                "trust",
                str(tmp_path / "right.parquet"),
                str(folder / "test.parquet"),
                "--fast",
                "--sweep",
                "-o",
                str(tmp_path),
            ]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert "steep_slope was left out: trust predictor 'steep_slope' needs right and wrong predictions" in out
    assert load(tmp_path).word == "mcp"


def test_a_second_opinion_is_fitted_kept_and_shown_beside(folder, tmp_path, capsys):
    """The logits know two of five features; the other extractor here knows all five."""
    second = ["--second", *(str(folder / f"{split}-features.npz") for split in ("val", "test", "train"))]
    assert main(paths(folder, "--only", "combined", *second, "--json", "-o", str(tmp_path))) == 0
    told = json.loads(capsys.readouterr().out)
    areas = {m["score"]: m["value"] for m in told["measurements"] if m["metric"] == "auroc"}
    assert set(areas) == {"msp", "trust:combined", "trust:rmd, second", "trust:trust_score, second"}
    assert areas["trust:combined"] > areas["msp"] + 0.03
    assert "Better than max-softmax" in told["about"]["verdict"]
    assert "combined" in told["about"]["verdict"]
    trust, test = load(tmp_path), confide.Predictions.load(folder / "test.parquet")
    with np.load(folder / "test-features.npz") as arrays:
        expected = confide.Predictions.load(tmp_path / "predictions.parquet").trust
        torch.testing.assert_close(trust(test, second=arrays["features"]), expected)
    with np.load(folder / "train-features.npz") as arrays:
        alone = confide.trust.fit("rmd", confide.Predictions.load(folder / "train.parquet"), arrays["features"])
    with np.load(folder / "test-features.npz") as arrays:
        value = confide.metrics.auroc(test, score=alone(test, arrays["features"]).numpy()).value
    assert areas["trust:rmd, second"] == pytest.approx(value)


def test_tables_show_the_tests_of_separability(folder, tmp_path, capsys):
    second = ["--second", *(str(folder / f"{split}-features.npz") for split in ("val", "test", "train"))]
    assert main(paths(folder, "--only", "entropy", *second, "-o", str(tmp_path))) == 0
    out = capsys.readouterr().out
    rows = [line for line in out.splitlines() if line.startswith(("rmd, second", "trust_score, second"))]
    assert len(rows) == 4  # in the table of rankings and in that of decisions
    assert "p KL" in out
    assert "p Bhattacharyya" in out


def test_a_second_reference_without_labels_is_one_clear_line(folder, tmp_path, capsys):
    with np.load(folder / "train-features.npz") as arrays:
        np.savez(tmp_path / "bare.npz", features=arrays["features"])
    second = ["--second", str(folder / "val-features.npz"), str(folder / "test-features.npz")]
    assert main(paths(folder, *second, str(tmp_path / "bare.npz"), "-o", str(tmp_path))) == 1
    told = capsys.readouterr().err
    assert "bare.npz must have a column 'label'" in told
    assert told.count("\n") == 1


def test_a_second_opinion_of_other_samples_is_one_clear_line(folder, tmp_path, capsys):
    second = ["--second", *(str(folder / f"{split}-features.npz") for split in ("train", "test", "train"))]
    assert main(paths(folder, *second, "--fast", "-o", str(tmp_path))) == 1
    told = capsys.readouterr().err
    assert "train-features.npz must have every id asked for" in told
    assert told.count("\n") == 1
    assert not (tmp_path / "trust.json").exists()


def test_nothing_is_compared_on_what_it_was_fitted_on(folder, tmp_path, capsys):
    val = confide.Predictions.load(folder / "val.parquet")
    val.take(np.arange(100, 200)).save(tmp_path / "part.parquet")
    assert main(["trust", str(folder / "val.parquet"), str(tmp_path / "part.parquet"), "-o", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "must hold different samples, but 100 are in both" in told
    assert told.count("\n") == 1


def test_places_that_count_the_same_are_not_the_same_samples(folder, tmp_path, capsys):
    for split in ("val", "test"):
        one = confide.Predictions.load(folder / f"{split}.parquet")
        confide.Predictions(one.logits, one.labels, split=split).save(tmp_path / f"{split}.parquet")
    files = [str(tmp_path / f"{split}.parquet") for split in ("val", "test")]
    assert main(["trust", *files, "--fast", "--only", "entropy", "-o", str(tmp_path)]) == 0


@pytest.mark.parametrize("narrow", [1, 2])
def test_features_of_another_width_are_refused_not_left_out(folder, tmp_path, capsys, narrow):
    files = [str(folder / f"{split}-features.npz") for split in ("val", "test", "train")]
    with np.load(files[narrow]) as arrays:
        np.savez(tmp_path / "narrow.npz", **{**arrays, "features": arrays["features"][:, :2]})
    files[narrow] = str(tmp_path / "narrow.npz")
    for given in (["--features", *files[:2], "--reference", files[2]], ["--second", *files]):
        assert main(paths(folder, *given, "-o", str(tmp_path))) == 1
        told = capsys.readouterr().err
        assert "narrow.npz must be 5 a sample" in told
        assert told.count("\n") == 1


def test_test_predictions_that_are_all_wrong_do_not_stop_it(folder, tmp_path, capsys):
    test = confide.Predictions.load(folder / "test.parquet")
    test.take(~test.facts.correct.numpy()).save(tmp_path / "wrong.parquet")
    words = ["trust", str(folder / "val.parquet"), str(tmp_path / "wrong.parquet"), "--only", "entropy"]
    assert main([*words, "-o", str(tmp_path)]) == 0
    assert "all right, or all wrong" in capsys.readouterr().out


def test_probabilities_to_compare_on_leave_out_what_was_fitted_on_logits(folder, tmp_path, capsys):
    test = confide.Predictions.load(folder / "test.parquet")
    probs = torch.softmax(test.logits, dim=1)
    confide.Predictions.from_probs(probs, test.labels, test.ids, "test").save(tmp_path / "probs.parquet")
    words = ["trust", str(folder / "val.parquet"), str(tmp_path / "probs.parquet"), "--fast"]
    assert main([*words, "-o", str(tmp_path)]) == 0
    assert "steep_slope was left out: this trust predictor was fitted on logits" in capsys.readouterr().out


def test_members_that_were_given_are_not_left_out(folder, tmp_path, capsys):
    with np.load(folder / "test-members.npz") as arrays:
        logits = arrays["logits"].copy()
    logits[1, 7, 0] = np.nan
    np.savez(tmp_path / "spoiled.npz", logits=logits)
    for option in ("--members", "--dropout"):
        assert main(paths(folder, option, str(tmp_path / "spoiled.npz"), "-o", str(tmp_path))) == 1
        assert "members' logits must be finite, got nan at sample 7 of 300" in capsys.readouterr().err


def test_a_reference_that_holds_test_samples_is_refused(folder, tmp_path, capsys):
    files = [str(folder / f"{split}-features.npz") for split in ("val", "test", "test")]
    for given in (["--features", *files[:2], "--reference", files[2]], ["--second", *files]):
        assert main(paths(folder, *given, "-o", str(tmp_path))) == 1
        told = capsys.readouterr().err
        assert "must hold no test sample, but 300 are in it" in told
        assert told.count("\n") == 1


def test_members_and_passes_are_files_of_predictions_too(folder, tmp_path, capsys):
    """What `confide predict` writes for each member, and for the average of its passes."""
    test = confide.Predictions.load(folder / "test.parquet")
    with np.load(folder / "test-members.npz") as arrays:
        logits = torch.from_numpy(arrays["logits"])
    files = []
    for number, member in enumerate([*logits, logits.mean(dim=0)]):
        turned = torch.arange(299, -1, -1)
        files.append(str(tmp_path / f"{number}.parquet"))
        confide.Predictions(member[turned], test.labels[turned], test.ids[turned.numpy()], "test").save(files[-1])

    def areas(*given):
        words = ["--only", "ensemble", "mc_dropout", "--fast", "--json", "-o", str(tmp_path)]
        assert main(paths(folder, *given, *words)) == 0
        told = json.loads(capsys.readouterr().out)
        return {m["score"]: m["value"] for m in told["measurements"] if m["metric"] == "auroc"}

    array = str(folder / "test-members.npz")
    expected = areas("--members", array, "--dropout", array)
    assert areas("--members", *files[:4], "--dropout", files[4]) == pytest.approx(expected)
    assert len(set(expected.values())) == 3
    assert main(paths(folder, "--members", files[0])) == 1
    assert "is one member; pass a file of predictions for each" in capsys.readouterr().err
    assert main(paths(folder, "--members", files[0], str(folder / "val.parquet"))) == 1
    assert "val.parquet must have every id asked for" in capsys.readouterr().err
