import json

import pytest

from confide.checks import InputError
from confide.files import formats
from confide.store import RunFolder


def go(path, *, a=1, b=1, calls=None):
    """A run of two stages, the second after the first; returns the stages made this time."""
    calls = [] if calls is None else calls

    def stage(folder, name, option, after):
        return folder.stage(
            name,
            uses={"option": option},
            after=after,
            file=f"{name}.json",
            make=lambda: calls.append(name) or {"made": name, "option": option},
            write=lambda record, target: formats.write_json(target, record),
            read=formats.read_json,
        )

    with RunFolder(path, {"a": a, "b": b}, seed=3) as folder:
        stage(folder, "first", a, ())
        stage(folder, "second", b, ("first",))
        return folder.redone


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
    with pytest.raises(InputError, match="must be a run folder of format 'run/1', got 'run/99'"):
        go(tmp_path)
    assert json.loads((tmp_path / "manifest.json").read_text())["format"] == "run/99"


def test_a_stage_that_fails_leaves_earlier_results(tmp_path):
    go(tmp_path)
    with RunFolder(tmp_path, {}, 3) as folder, pytest.raises(OSError, match="No space left"):
        folder.stage("first", uses={"option": 9}, file="first.json", make=dict, write=full_disk, read=formats.read_json)
    assert go(tmp_path) == []


def full_disk(record, target):
    raise OSError(28, "No space left on device")
