"""Bad input on the command line: one line, status 1, earlier results intact."""

import json
import subprocess
import sys
import warnings

import numpy as np
import pytest

from confide.cli.main import main


def refused(capsys, words, *parts):
    """The command must end with status 1 and one line that says all parts."""
    assert main([str(word) for word in words]) == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith("confide: ")
    assert "\n" not in error
    for part in parts:
        assert part in error
    return error


def write(path, **arrays):
    np.savez(path, **arrays)
    return path


def logits_with(value):
    logits = np.random.default_rng(0).normal(size=(20, 3))
    logits[4, 1] = value
    return logits


GOOD = {"labels": np.arange(20) % 3}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite(tmp_path, capsys, value):
    path = write(tmp_path / "p.npz", logits=logits_with(value), **GOOD)
    refused(capsys, ["evaluate", path, "--out", tmp_path / "out"], "logits must be finite", "sample 4 of 20")
    assert not (tmp_path / "out").exists()


def test_labels_out_of_range(tmp_path, capsys):
    path = write(tmp_path / "p.npz", logits=logits_with(0.0), labels=np.full(20, 3))
    refused(capsys, ["evaluate", path], "labels must lie in [0, 3), got 3 at sample 0 of 20")


def test_labels_of_the_wrong_length(tmp_path, capsys):
    path = write(tmp_path / "p.npz", logits=logits_with(0.0), labels=np.zeros(19, dtype=int))
    refused(capsys, ["evaluate", path], "labels must be 20 class indices")


def test_probabilities_that_do_not_sum_to_one(tmp_path, capsys):
    path = write(tmp_path / "p.npz", probs=np.full((20, 3), 0.4), **GOOD)
    refused(capsys, ["evaluate", path], "must sum to 1 in every row, got 1.2 at sample 0 of 20")


def test_an_empty_file_of_predictions(tmp_path, capsys):
    path = write(tmp_path / "p.npz", logits=np.zeros((0, 3)), labels=np.zeros(0, dtype=int))
    refused(capsys, ["evaluate", path], "at least one")


def test_a_file_without_labels_and_one_that_is_damaged(tmp_path, capsys):
    refused(capsys, ["evaluate", write(tmp_path / "p.npz", logits=logits_with(0.0))], "in a file as the column 'label'")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nonsense")
    refused(capsys, ["evaluate", tmp_path / "broken.parquet"], "must be a readable parquet file")


def config(tmp_path, **changes):
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({"data": "fashion-sample", "training": {"epochs": 1}, **changes}))
    return path


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"losses": ["fokal"]}, "no loss named 'fokal'; did you mean 'focal'"),
        ({"losses": [{"word": "focal", "gama": 1}]}, "has no option 'gama'"),
        ({"losses": []}, "must name at least one loss"),
        ({"trainin": {}}, "config has no field 'trainin'; did you mean 'training'"),
        ({"training": {"epochs": 0}}, "epochs must lie in"),
        ({"seed": "zero"}, "'seed' must be a whole number"),
        ({"data": "fashion-sampel"}, "did you mean 'fashion-sample'"),
    ],
)
def test_a_config_is_checked_before_any_work(tmp_path, capsys, changes, part):
    refused(capsys, ["run", config(tmp_path, **changes), "--out", tmp_path / "run"], part)
    assert not (tmp_path / "run" / "manifest.json").exists()


def test_a_config_that_is_not_yaml_and_one_that_is_not_there(tmp_path, capsys):
    (tmp_path / "c.yaml").write_text("data: [unclosed")
    refused(capsys, ["run", tmp_path / "c.yaml"], "must be YAML")
    refused(capsys, ["run", tmp_path / "gone.yaml"], "gone.yaml must be a YAML file, but it does not exist")
    refused(capsys, ["run", "dema"], "must be a YAML file or a recipe, got 'dema'; did you mean 'demo'?")


def test_a_directory_that_is_not_a_dataset(tmp_path, capsys):
    (tmp_path / "stuff").mkdir()
    (tmp_path / "stuff" / "notes.txt").write_text("hello")
    refused(capsys, ["run", config(tmp_path, data=str(tmp_path / "stuff")), "--out", tmp_path / "run"], "stuff")


def small_arrays(labels):
    n = len(labels)
    return {"x_train": np.zeros((n, 4), np.float32), "y_train": labels}


@pytest.mark.parametrize(
    ("arrays", "part"),
    [
        (small_arrays(np.zeros(30, dtype=int)), "class"),
        ({**small_arrays(np.arange(30) % 3), "x_test": np.zeros((0, 4)), "y_test": np.zeros(0, int)}, "test"),
        (small_arrays(np.array([0, 1, 3] * 10)), "class"),
    ],
    ids=["one class only", "an empty split", "a class without samples"],
)
def test_data_that_cannot_be_learned_from(tmp_path, capsys, arrays, part):
    path = write(tmp_path / "d.npz", **arrays)
    refused(capsys, ["run", config(tmp_path, data=str(path), features="pixels"), "--out", tmp_path / "run"], part)


def test_a_run_folder_of_another_version_is_left_alone(tmp_path, capsys):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "manifest.json").write_text('{"format": "run/99"}')
    refused(
        capsys, ["demo", "--out", folder, "--epochs", "1"], "in format 'run/99', newer than 'run/2' of this confide"
    )
    assert (folder / "manifest.json").read_text() == '{"format": "run/99"}'


def test_a_full_disk_leaves_earlier_results(tmp_path):
    path = write(tmp_path / "p.npz", logits=logits_with(0.0), **GOOD)
    words = ["evaluate", str(path), "--out", str(tmp_path / "out"), "--quiet"]
    assert main(words) == 0
    before = (tmp_path / "out" / "report.html").read_bytes()
    # A limit on the size of files fails writes just as a full disk does.
    code = (
        "import resource, sys; from confide.cli.main import main;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("confide: ")
    assert len(done.stderr.strip().splitlines()) == 1
    assert (tmp_path / "out" / "report.html").read_bytes() == before
    assert not list(tmp_path.rglob(".*.part"))


def test_a_run_needs_a_config_or_a_recipe(capsys):
    refused(capsys, ["run"], "needs a config or --recipe NAME, one of the two")
    refused(capsys, ["run", "demo", "--recipe", "confide"], "one of the two")
    refused(capsys, ["train", "fashion-sample", "--recipe", "confid"], "did you mean 'confide'?")


ROWS, CLASSES = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 3


@pytest.mark.parametrize(
    ("labels", "part"),
    [
        (np.array(["a", "b", "c"])[CLASSES], "must be class indices, got <U1, such as"),
        (CLASSES + 0.5, "must be class indices, got float64"),
        (CLASSES - 1, "labels must lie in"),
        (CLASSES * 10**12, "labels must lie in"),
    ],
    ids=["words", "fractions", "negative", "huge"],
)
def test_labels_of_features_that_are_no_classes(tmp_path, capsys, labels, part):
    file = write(tmp_path / "features.npz", features=ROWS, labels=labels)
    refused(capsys, ["score", file, "-o", str(tmp_path / "scores.parquet")], part)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--members", "99999999999"], "members must lie in [1, 10000]"),
        (["--seed", str(10**23)], "seed must be a whole number"),
        (["--checkpoint-seconds", "nan"], "checkpoint-seconds must lie in"),
        (["--batch-size", "99999999999999999999"], "batch_size must lie in"),
        (["--data-option", "val_fraction=abc"], "val_fraction must be a number"),
    ],
)
def test_numbers_that_no_training_can_have(tmp_path, capsys, words, part):
    file = write(tmp_path / "rows.npz", x=ROWS, y=CLASSES)
    refused(capsys, ["train", file, "--out", str(tmp_path / "run"), *words], part)
    assert not (tmp_path / "run").exists()


def test_memory_that_cannot_be_had_is_one_line(tmp_path, capsys, monkeypatch):
    def too_much(*_args, **_options):
        np.empty(1 << 50)

    monkeypatch.setattr("confide.scoring.score_data", too_much)
    refused(capsys, ["score", str(tmp_path)], "there is not enough memory")


def test_ctrl_c_while_a_verb_imports_what_it_needs(capsys, monkeypatch):
    def interrupted(_name):
        raise KeyboardInterrupt

    monkeypatch.setattr("confide.cli.main.import_module", interrupted)
    assert main(["list"]) == 130
    assert capsys.readouterr().err == "confide: stopped; the same command goes on where it was\n"


def test_what_another_package_will_rename_is_no_warning_of_ours(capsys):
    from confide.cli.shared import warnings_on_stderr

    with warnings_on_stderr():
        warnings.warn_explicit(
            "use_polars is deprecated", DeprecationWarning, "context.py", 1, module="ray.data.context"
        )
        warnings.warn_explicit("10 answers state no confidence", UserWarning, "answers.py", 1, "confide.answers")
    assert capsys.readouterr().err == "warning: 10 answers state no confidence\n"


def test_a_package_that_is_missing_is_one_line_and_any_other_missing_module_is_a_fault_of_ours(capsys, monkeypatch):
    def gone(_name):
        raise ModuleNotFoundError("No module named 'x'")

    monkeypatch.setattr("confide.cli.main.import_module", gone)
    monkeypatch.setattr("confide.cli.doctor.missing_packages", lambda: ["pyyaml", "jinja2"])
    assert main(["list"]) == 1
    assert (
        capsys.readouterr().err == "confide: not everything needed is installed; mend with: pip install pyyaml jinja2\n"
    )
    monkeypatch.setattr("confide.cli.doctor.missing_packages", list)
    with pytest.raises(ModuleNotFoundError, match="'x'"):
        main(["list"])


def test_ctrl_c_while_the_command_line_itself_is_imported(monkeypatch):
    from confide.__main__ import main as start

    class Interrupted:
        def find_spec(self, name, path=None, target=None):
            if name == "confide.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "confide.cli.main")
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    assert start() == 130
