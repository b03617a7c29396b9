"""Every demonstration in the errata runs as it stands."""

import re
import runpy
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "errata.md").read_text(encoding="utf-8")
SET_UP, *DEMONSTRATIONS = re.findall(r"```python\n(.*?)```", PAGE, re.S)


def run(code, folder, names):
    file = folder / "demonstration.py"
    file.write_text(code, encoding="utf-8")
    return runpy.run_path(str(file), init_globals=names)


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    return run(SET_UP, tmp_path_factory.mktemp("errata"), {})


def test_every_section_has_a_demonstration():
    sections = re.split(r"^## ", PAGE, flags=re.M)[1:]
    for section in sections:
        assert "```python" in section, section.splitlines()[0]


def test_a_demonstration_shows_the_error_beside_what_is_right():
    for section in re.split(r"^## ", PAGE, flags=re.M)[1:]:
        code = "".join(re.findall(r"```python\n(.*?)```", section, re.S))
        if "difficulty weights" not in section.lower() and "Confusion score" not in section:
            assert re.search("printed|released", code), section.splitlines()[0]


def test_every_demonstration_holds_in_its_order(tmp_path, names):
    for code in DEMONSTRATIONS:
        assert "assert" in code
        names = run(code, tmp_path, names)
