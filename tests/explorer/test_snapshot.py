"""The read-only snapshot that the site shows: recorded answers, the explorer's own page, no server."""

import functools
import json
import runpy
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.explorer.conftest import CELL, make_run

SNAPSHOT = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "snapshot.py"))


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    folder = tmp_path_factory.mktemp("snapshot")
    SNAPSHOT["record"](make_run(folder / "run"), folder / "site")
    return folder / "site"


def test_a_snapshot_holds_the_first_view_its_samples_and_their_pictures(snapshot):
    answers = json.loads((snapshot / "snapshot.json").read_text(encoding="utf-8"))["answers"]
    cells = answers["rows?count=240&from=0&split=test"]["cells"]
    assert len(cells) == answers["find?split=test"]["count"] == 80
    assert all((snapshot / "pictures" / str(cell["row"])).exists() for cell in cells)
    assert f"sample?row={cells[0]['row']}" in answers
    scripts = "".join(path.read_text(encoding="utf-8") for path in (snapshot / "assets").glob("*.js"))
    assert "/api/picture" not in scripts


def test_a_snapshot_tells_nothing_of_the_machine_it_was_made_on(snapshot):
    text = (snapshot / "snapshot.json").read_text(encoding="utf-8") + (snapshot / "index.html").read_text("utf-8")
    assert str(snapshot.parent) not in text


@pytest.mark.slow
def test_a_snapshot_works_in_a_browser_and_keeps_no_tags(snapshot, browser):
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=str(snapshot)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.new_page()
    errors, asked = [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    try:
        address = f"http://127.0.0.1:{server.server_port}/"
        page.goto(f"{address}index.html")
        page.wait_for_selector(CELL)
        page.locator(CELL).first.click()
        page.wait_for_selector("#drawer img")
        page.select_option("#sort", "confidence")
        page.wait_for_selector(CELL)
        page.get_by_role("button", name="Confidently wrong").click()
        page.wait_for_function("document.querySelector('#count').textContent.length > 0")
        assert errors == []
        assert all(url.startswith((address, "data:")) for url in asked)
        assert not any("/api/" in url for url in asked)
    finally:
        page.close()
        server.shutdown()
        server.server_close()
