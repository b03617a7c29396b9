"""The page of `confide score` in real Chromium: on a phone nothing lies over anything else."""

from __future__ import annotations

import pytest

from confide.cli.main import main

pytestmark = pytest.mark.slow
BOXES = """all => all.map(e => e.getBoundingClientRect()).filter(r => r.width)
    .map(r => [r.x, r.y, r.right, r.bottom])"""


@pytest.mark.parametrize("width", [375, 1280])
def test_pictures_and_buttons_stand_beside_each_other(browser, tmp_path, monkeypatch, width):
    monkeypatch.chdir(tmp_path)
    assert main(["score", "fashion-sample", "--split", "val", "-o", "s.parquet"]) == 0
    page = browser.new_page(viewport={"width": width, "height": 900})
    complaints: list[str] = []
    page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.goto((tmp_path / "s.html").as_uri())
    boxes = [page.eval_on_selector_all(selector, BOXES) for selector in (".eight .thumb", "#filter button")]
    page.close()
    assert complaints == []
    assert len(boxes[0]) == 10 * 2 * (6 if width < 640 else 8)
    assert len(boxes[1]) == 7
    for found in boxes:
        assert all(right <= width for _, _, right, _ in found)
        for k, (x, y, right, bottom) in enumerate(found):
            for a, b, c, d in found[k + 1 :]:
                assert right <= a + 0.5 or c <= x + 0.5 or bottom <= b + 0.5 or d <= y + 0.5
