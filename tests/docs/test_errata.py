"""Every demonstration in the errata runs as it stands."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "errata.md").read_text(encoding="utf-8")
SET_UP, *DEMONSTRATIONS = re.findall(r"```python\n(.*?)```", PAGE, re.S)
TITLES = re.findall(r"^## (.*)$", PAGE, re.M)


@pytest.fixture(scope="module")
def names():
    space = {}
    exec(compile(SET_UP, "errata set-up", "exec"), space)
    return space


def test_every_section_has_a_demonstration():
    sections = re.split(r"^## ", PAGE, flags=re.M)[1:]
    for section in sections:
        assert "```python" in section, section.splitlines()[0]


@pytest.mark.parametrize("number", range(len(DEMONSTRATIONS)))
def test_a_demonstration_holds(number, names):
    assert "assert" in DEMONSTRATIONS[number]
    exec(compile(DEMONSTRATIONS[number], f"errata {number}", "exec"), names)
