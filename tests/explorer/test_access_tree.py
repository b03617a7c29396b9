"""What axe-core finds wrong for readers by ear and by keyboard: nothing, in every view of the explorer."""

from __future__ import annotations

import pytest

from tests.conftest import axe_violations

pytestmark = pytest.mark.slow

VIEWS = ("panel=reliability&sample=test%2Ftest-017", "panel=confusion", "panel=map", "panel=slices", "view=compare")


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (1440, "dark"), (375, "light")])
def test_axe_finds_nothing(look, client, axe, view, width, scheme):
    page = look(client, f"?split=test&{view}", width=width, color_scheme=scheme)
    page.wait_for_timeout(1500)
    assert axe_violations(page, axe) == []
