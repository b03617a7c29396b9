"""Files of every format: the kept corpus of what once crashed, and a few hundred damaged ones, always the same."""

from __future__ import annotations

import os
from itertools import islice

import pytest

from tests.fuzz.targets import CORPUS, TARGETS, changes_by_hand, mutations, seed_of, tried

BY_NAME = {target.name: target for target in TARGETS}
EXAMPLES = {"evaluation.json": 8}  # each makes a whole report
KEPT = sorted(CORPUS.glob("*/*"))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_damaged_file_is_read_or_refused_in_one_line(target, tmp_path):
    assert tried(target, seed_of(target), tmp_path)
    outcomes = [tried(target, content, tmp_path) for content in islice(mutations(target, seed=0), 25)]
    # Some of the damage was seen; pictures that cannot be read are set aside.
    assert not all(outcomes) or target.file.startswith("pictures")


@pytest.mark.parametrize("target", [t for t in TARGETS if ".json" in t.file], ids=lambda target: target.name)
def test_a_field_changed_by_hand_is_read_or_refused_in_one_line(target, tmp_path):
    some = None if "FUZZ_EXAMPLES" in os.environ else EXAMPLES.get(target.file, 40)
    outcomes = [tried(target, content, tmp_path) for content in changes_by_hand(target, some)]
    assert not all(outcomes)


@pytest.mark.parametrize("kept", KEPT, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_crashed_once_does_not_crash_again(kept, tmp_path):
    tried(BY_NAME[kept.parent.name], kept.read_bytes(), tmp_path)
