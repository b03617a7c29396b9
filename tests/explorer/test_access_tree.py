"""What axe-core finds wrong for readers by ear and by keyboard: nothing, in every view of the explorer."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def axe() -> str:
    """axe-core as a script: the file that AXE_CORE names, or that of the package axe-core-python."""
    named = os.environ.get("AXE_CORE")
    package = find_spec("axe_core_python")
    if named is None and package is not None and package.submodule_search_locations:
        named = next(map(str, Path(package.submodule_search_locations[0]).rglob("axe.min.js")), None)
    if named is None:
        pytest.skip("axe-core is not installed (AXE_CORE=axe.min.js, or the package axe-core-python)")
    return Path(named).read_text(encoding="utf-8")


VIEWS = ("panel=reliability&sample=test%2Ftest-017", "panel=confusion", "panel=map", "panel=slices", "view=compare")


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("width", [1440, 375])
def test_axe_finds_nothing(look, client, axe, view, width):
    page = look(client, f"?split=test&{view}", width=width)
    page.wait_for_timeout(1500)
    page.evaluate(f"{axe};0")
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    assert [(v["id"], [n["html"][:120] for n in v["nodes"][:3]]) for v in found] == []
