"""What axe-core finds wrong for readers by ear and by keyboard: nothing, in every view of the explorer."""

from __future__ import annotations

import pytest

from tests.conftest import axe_violations
from tests.explorer.conftest import CELL

pytestmark = pytest.mark.slow

VIEWS = {
    "panel=reliability&sample=test%2Ftest-017": "#panel svg",
    "panel=confusion": "#panel table, #panel .empty",
    "panel=map": "canvas.map[aria-label]",
    "panel=slices": "#panel .slices, #panel .empty",
    "view=compare": ".mx button",
}
SIZES = [(1440, "light"), (1440, "dark"), (375, "light"), (375, "dark")]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_axe_finds_nothing(look, client, axe, view, width, scheme):
    page = look(client, f"?split=test&{view}", width=width, color_scheme=scheme)
    page.locator(VIEWS[view]).first.wait_for(state="attached")
    page.wait_for_load_state("networkidle")
    assert axe_violations(page, axe) == []


@pytest.mark.parametrize(("width", "scheme"), SIZES)
def test_axe_finds_nothing_in_dialogs_selections_and_toasts(look, client, axe, width, scheme):
    page = look(client, "?split=test&outcome=wrong&nonsense=1", width=width, color_scheme=scheme)
    page.locator(CELL).first.click(modifiers=["Control"])
    page.locator("#bulk:not([hidden])").wait_for()
    assert axe_violations(page, axe) == []
    page.locator("#export").click()
    page.locator("dialog[open]").wait_for()
    assert axe_violations(page, axe) == []
    page.keyboard.press("Escape")
    # A notice goes after eight seconds, which may be over on a busy machine before axe looks: here it stays.
    page.add_init_script(
        "const later = setTimeout;"
        "window.setTimeout = (what, ms, ...more) => later(what, ms === 8000 ? 1e9 : ms, ...more);"
    )
    page.goto(page.url.split("/?")[0] + "/?split=test&sample=test%2Ftest-017")
    page.wait_for_selector("#drawer .accept")
    page.keyboard.press("a")
    page.locator(".toast .lnk").first.wait_for()
    assert axe_violations(page, axe) == []
    page.locator("#drawer .look").click()
    page.locator("dialog[open] .pane").first.wait_for()
    page.wait_for_load_state("networkidle")
    assert axe_violations(page, axe) == []
    page.complaints[:] = [c for c in page.complaints if "404" not in c]  # an array has no whole picture
