import json

import numpy as np
import pytest

import confide
from confide.checks import InputError
from confide.files import disk, formats
from confide.records import Dataset, OtherFiles, Provenance
from confide.store import DataNote, RunFolder, RunPaths, checkout_commit, lock_file
from confide.training import Settings, fit


def go(path, *, a=1, b=1, calls=None):
    """A run of two stages, the second after the first; returns the stages made this time."""
    calls = [] if calls is None else calls

    def stage(folder, name, option, after):
        return folder.stage(
            name,
            uses={"option": option},
            after=after,
            file=folder.path / f"{name}.json",
            make=lambda: calls.append(name) or {"made": name, "option": option},
            write=lambda record, target: formats.write_json(target, record),
            read=formats.read_json,
        )

    with RunFolder(path, {"a": a, "b": b}, seed=3) as folder:
        stage(folder, "first", a, ())
        stage(folder, "second", b, ("first",))
        return folder.computed


def test_a_second_call_makes_nothing(tmp_path):
    assert go(tmp_path) == ["first", "second"]
    assert go(tmp_path) == []


def test_a_changed_option_makes_only_what_depends_on_it(tmp_path):
    go(tmp_path)
    assert go(tmp_path, b=2) == ["second"]
    assert go(tmp_path, a=2, b=2) == ["first", "second"]


def test_a_damaged_or_missing_file_is_made_again(tmp_path):
    go(tmp_path)
    (tmp_path / "first.json").write_text("{}")
    assert go(tmp_path) == ["first"]
    (tmp_path / "second.json").unlink()
    assert go(tmp_path) == ["second"]


def test_the_manifest_says_what_is_needed_to_run_it_again(tmp_path):
    go(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["seed"] == 3
    assert manifest["config"] == {"a": 1, "b": 1}
    assert "torch" in manifest["versions"]
    assert manifest["stages"]["second"]["files"]["second.json"] == formats.checksum(tmp_path / "second.json")


def test_two_processes_do_not_write_one_folder(tmp_path):
    with RunFolder(tmp_path, {}, 0), pytest.raises(InputError, match="another holds it"), RunFolder(tmp_path, {}, 0):
        pass
    go(tmp_path)


def test_a_folder_of_another_version_is_left_alone(tmp_path):
    (tmp_path / "manifest.json").write_text('{"format": "run/99", "stages": {}}')
    with pytest.raises(InputError, match="in format 'run/99', newer than 'run/2' of this confide"):
        go(tmp_path)
    assert json.loads((tmp_path / "manifest.json").read_text())["format"] == "run/99"


def test_a_manifest_of_another_kind_is_left_alone(tmp_path):
    (tmp_path / "manifest.json").write_text('{"format": "other", "stages": {}}')
    with pytest.raises(InputError, match="must be a run folder of format 'run/2', got 'other'"):
        go(tmp_path)


def test_a_stage_made_in_the_first_format_is_done_under_the_name_of_that_time(tmp_path):
    go(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "first.json").rename(tmp_path / "older.json")
    files = manifest["stages"]["first"]["files"]
    manifest["stages"]["first"]["files"] = {"older.json": files.pop("first.json")}
    (tmp_path / "manifest.json").write_text(json.dumps({**manifest, "format": "run/1"}))
    assert go(tmp_path) == []
    assert go(tmp_path, b=2) == ["second"]
    assert json.loads((tmp_path / "manifest.json").read_text())["format"] == "run/2"


def test_a_key_is_that_of_the_first_format(tmp_path):
    # sha256 of {"after": [], "format": "run/1", "stage": "first", "uses": {"option": 1}}, as run/1 wrote it.
    assert RunFolder(tmp_path, {}, 0).key("first", {"option": 1}, ()) == "11307e5298e5ecaa651e5e12"


@pytest.mark.parametrize(
    ("name", "old"),
    [
        ("groups", "scores/bands.parquet"),
        ("groups", "difficulty.parquet"),
        ("label_groups", "scores/label_bands.parquet"),
        ("predicted_class", "scores/unlabelled.parquet"),
        ("predicted_class", "hardness.parquet"),
    ],
)
def test_scores_are_found_under_their_older_names(tmp_path, name, old):
    paths = RunPaths(tmp_path)
    assert paths.existing(paths.scores(name)) == paths.scores(name)
    (tmp_path / "scores").mkdir()
    (tmp_path / old).write_bytes(b"")
    assert paths.existing(paths.scores(name)) == tmp_path / old
    paths.scores("test").write_bytes(b"")
    assert paths.scored_splits() == {"test": tmp_path / "scores" / "test.parquet"}


def test_a_stage_that_fails_leaves_earlier_results(tmp_path):
    go(tmp_path)
    with RunFolder(tmp_path, {}, 3) as folder, pytest.raises(OSError, match="No space left"):
        folder.stage(
            "first",
            uses={"option": 9},
            file=folder.path / "first.json",
            make=dict,
            write=full_disk,
            read=formats.read_json,
        )
    assert go(tmp_path) == []


def full_disk(record, target):
    raise OSError(28, "No space left on device")


def test_a_run_removes_only_temporary_files_of_its_own(tmp_path):
    strangers = [tmp_path / ".notes.part", tmp_path / "film" / ".confide-0.part", tmp_path / ".confide-0.txt"]
    left = [tmp_path / ".confide-0.part", tmp_path / "models" / "plain" / "checkpoints" / ".confide-1.part"]
    for path in (*strangers, *left):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
    with disk.atomic(tmp_path / "written.json") as alive:
        alive.write_text("{}")
        with RunFolder(tmp_path, {}, 0):
            assert alive.exists()
    assert all(path.exists() for path in strangers)
    assert not any(path.exists() for path in left)


def test_a_training_folder_is_written_by_one_process_at_a_time(tmp_path):
    dataset = confide.load_dataset((np.eye(20), np.arange(20) % 2))
    settings = Settings(model="mlp", epochs=1, batch_size=8, device="cpu")
    with lock_file(tmp_path / ".lock", tmp_path), pytest.raises(InputError, match="another holds it"):
        fit(dataset, settings, folder=tmp_path)
    fit(dataset, settings, folder=tmp_path)


def test_a_note_on_data_comes_back_as_it_was_written(tmp_path):
    origin = Provenance(
        "folder",
        where="pets",
        other_files=OtherFiles(1, ("dog/notes.txt",)),
        image_size=(29, 31),
        counts={"test": 2},
        classes_without_samples={"test": ("cat",)},
    )
    note = DataNote.of(Dataset("pets", "image", {}, ("cat", "dog"), origin))
    note.save(tmp_path / "data.json")
    assert DataNote.load(tmp_path / "data.json") == note
    row = formats.read_json(tmp_path / "data.json")["provenance"]
    assert row["other_files"] == {"count": 1, "first": ["dog/notes.txt"]}
    assert "fingerprint" not in row


def test_a_checkout_names_its_commit_and_an_installed_package_none(tmp_path, monkeypatch):
    assert checkout_commit(tmp_path) is None
    (tmp_path / ".git").mkdir()
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text("#!/bin/sh\necho c0ffee; echo beside >&2\n")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(git.parent))
    assert checkout_commit(tmp_path) == "c0ffee"
    git.write_text("#!/bin/sh\nexit 1\n")
    assert checkout_commit(tmp_path) is None
    git.unlink()
    assert checkout_commit(tmp_path) is None


def test_the_folder_of_a_new_file_of_lines_is_flushed_and_that_of_an_old_one_is_not(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(disk, "flush_folder", flushed.append)
    for expected in ([tmp_path / "logs"], []):
        flushed.clear()
        with disk.appending(tmp_path / "logs" / "watch.jsonl") as lines:
            lines.write(b"one\n")
        assert flushed[-1:] == expected
    assert (tmp_path / "logs" / "watch.jsonl").read_text() == "one\none\n"
