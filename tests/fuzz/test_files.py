"""Files of every format: the kept corpus of what once crashed, and a few hundred damaged ones, always the same."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.fuzz.targets import CORPUS, TARGETS, mutations, seed_of, tried

BY_NAME = {target.name: target for target in TARGETS}
KEPT = sorted(CORPUS.glob("*/*"))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_damaged_file_is_read_or_refused_in_one_line(target, tmp_path):
    assert tried(target, seed_of(target), tmp_path)
    outcomes = [tried(target, content, tmp_path) for content in islice(mutations(target, seed=0), 25)]
    # Some of the damage was seen; pictures that cannot be read are set aside.
    assert not all(outcomes) or target.file.startswith("pictures")


@pytest.mark.parametrize("kept", KEPT, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_crashed_once_does_not_crash_again(kept, tmp_path):
    tried(BY_NAME[kept.parent.name], kept.read_bytes(), tmp_path)
