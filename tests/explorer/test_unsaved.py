"""Tags and notes in real Chromium that meet a lost connection, a refusal, another tab, a closed page: none is lost."""

from __future__ import annotations

import pytest

from tests.explorer.conftest import cut_off, ids, open_first, wait_for_place, wait_for_sample, wait_for_tags

pytestmark = pytest.mark.slow


def test_a_note_is_kept_when_the_page_is_left_at_once(look, client, run_folder):
    page = look(client, "?split=test&sample=test%2Ftest-017")
    page.wait_for_selector("#drawer .neigh li")
    page.keyboard.press("n")
    page.keyboard.type("unsure")
    page.goto("about:blank")
    wait_for_tags(page, run_folder, [(None, None, "unsure")])
    page.complaints[:] = [c for c in page.complaints if c != "about:blank"]


def test_what_could_not_be_sent_is_kept_said_and_sent_again(look, client, run_folder):
    page = look(client, "?split=test&sort=confidence")
    open_first(page)
    cut_off(page)
    page.keyboard.press("d")
    page.locator("[data-notice=unsaved]", has_text="1 change is not saved yet").wait_for()
    page.keyboard.press("n")
    page.keyboard.type("in a tun")
    page.locator("[data-notice=unsaved]", has_text="2 changes are not saved yet").wait_for()
    page.keyboard.type("nel")  # after a pause: still one note
    page.locator("#note").evaluate("note => note.dispatchEvent(new Event('change'))")
    page.locator("[data-notice=unsaved]", has_text="2 changes are not saved yet").wait_for()
    assert page.locator("#drawer [data-tag=drop]").get_attribute("aria-pressed") == "false"
    assert page.locator("#drawer .state").inner_text() == "Not saved yet: drop, note."
    page.unroute("**/api/**")
    wait_for_tags(page, run_folder, [("drop", None, "in a tunnel")])
    page.wait_for_selector("#drawer [data-tag=drop][aria-pressed=true]")
    page.locator("[data-notice=unsaved]").wait_for(state="detached")
    page.wait_for_function("() => !document.querySelector('#cells .nopic')")  # pictures that failed are asked for again
    page.complaints[:] = [c for c in page.complaints if "ERR_FAILED" not in c]


def test_on_a_phone_what_is_unsaved_is_said_over_the_open_sample(look, client, run_folder):
    page = look(client, "?split=test&sort=confidence", width=375)
    first = open_first(page)
    (run_folder / "tags.sqlite").mkdir()
    page.locator("#drawer [data-tag=drop]").click()
    page.locator("[data-notice=unsaved]", has_text=f"Not saved: {first}.").wait_for()
    (run_folder / "tags.sqlite").rmdir()
    page.get_by_role("button", name="Send again").click()
    wait_for_tags(page, run_folder, [("drop", None, "")])
    page.complaints[:] = [c for c in page.complaints if "400" not in c]


def test_what_the_server_refuses_is_named_and_kept_to_be_sent_again(look, client, run_folder):
    page = look(client, "?split=test&sort=confidence")
    first = open_first(page)
    (run_folder / "tags.sqlite").mkdir()  # as good as read-only, also for a superuser
    page.keyboard.press("n")
    page.keyboard.type("precious")
    page.locator("[data-notice=unsaved]", has_text=f"Not saved: {first}.").wait_for()
    page.get_by_role("button", name="Next sample").click()
    wait_for_place(page, "2 of")
    assert "Not tagged" in page.locator("#drawer .saved").inner_text()
    page.get_by_role("button", name="Previous sample").click()
    wait_for_sample(page, first)
    assert page.locator("#note").input_value() == "precious"
    assert page.locator("#drawer .saved").inner_text().startswith("Not saved.")
    (run_folder / "tags.sqlite").rmdir()
    page.get_by_role("button", name="Send again").click()
    wait_for_tags(page, run_folder, [(None, None, "precious")])
    page.locator("[data-notice=unsaved]").wait_for(state="detached")
    page.complaints[:] = [c for c in page.complaints if "400" not in c]


def test_two_tabs_add_to_one_sample_and_neither_undoes_the_other(look, client, run_folder):
    one, two = (look(client, "?split=test&sample=test%2Ftest-017") for _ in range(2))
    for page in (one, two):
        page.wait_for_selector("#drawer .neigh li")
    one.keyboard.press("d")
    one.wait_for_selector("#drawer [data-tag=drop][aria-pressed=true]")
    two.keyboard.press("n")
    two.keyboard.type("seen in the second tab")
    wait_for_tags(two, run_folder, [("drop", None, "seen in the second tab")])
    two.wait_for_selector("#drawer [data-tag=drop][aria-pressed=true]")


def test_tags_that_wait_behind_another_are_kept_when_the_page_is_left(look, client, run_folder):
    order = ids(client, split="test", sort="confidence")
    page = look(client, "?split=test&sort=confidence")
    open_first(page)
    client.lag.late = {"tag": (0.4, 0)}
    page.keyboard.press("d")
    page.keyboard.press("ArrowRight")
    wait_for_sample(page, order[1])
    page.keyboard.press("k")
    page.keyboard.press("n")
    page.keyboard.type("twice")
    page.goto("about:blank")
    wait_for_tags(page, run_folder, [("drop", None, ""), ("keep", None, "twice")])
    page.complaints[:] = [c for c in page.complaints if c != "about:blank"]


def test_of_two_tags_that_wait_when_the_page_is_left_the_last_one_counts(look, client, run_folder):
    order = ids(client, split="test", sort="confidence")
    page = look(client, "?split=test&sort=confidence")
    open_first(page)
    client.lag.late = {"tag": (2.5, 0)}  # the first is not answered before the page is left
    page.keyboard.press("k")
    page.keyboard.press("ArrowRight")
    wait_for_sample(page, order[1])
    for key in ("r", "d"):  # a new label must not come with the tag that took its place
        page.keyboard.press(key)
    page.goto("about:blank")
    wait_for_tags(page, run_folder, [("keep", None, ""), ("drop", None, "")])
    page.complaints[:] = [c for c in page.complaints if c != "about:blank"]


def test_a_tag_taken_back_while_it_is_sent_stays_taken_back_when_the_page_is_left(look, client, run_folder):
    page = look(client, "?split=test&sort=confidence")
    open_first(page)
    client.lag.late = {"tag": (1.5, 0)}
    for key in ("d", "d", "n"):
        page.keyboard.press(key)
    page.keyboard.type("looked at")
    page.goto("about:blank")
    wait_for_tags(page, run_folder, [(None, None, "looked at")])
    page.complaints[:] = [c for c in page.complaints if c != "about:blank"]


def test_an_export_waits_for_the_tags_on_their_way(look, client):
    page = look(client, "?split=test&sort=confidence")
    first = open_first(page)
    client.lag.late = {"tag": (0.8, 0)}
    page.keyboard.press("d")
    page.locator("#export").click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="CSV").click()
    line = next(t for t in waiting.value.path().read_text().splitlines() if first in t)
    assert '"drop"' in line or ",drop," in line


NOTE = 'line one\nline two <b onclick="x()">bold</b> 👩‍🔬 עברית =1+1 "quoted", \\ and \t end'


def test_a_note_of_any_letters_comes_back_as_it_was(look, client, run_folder):
    page = look(client, "?split=test&sample=test%2Ftest-017")
    page.wait_for_selector("#drawer .neigh li")
    page.keyboard.press("n")
    page.locator("#note").fill(NOTE)
    wait_for_tags(page, run_folder, [(None, None, NOTE)])
    page.reload()
    page.wait_for_selector("#note:not([hidden])")
    assert page.locator("#note").input_value() == NOTE


def test_a_note_that_is_too_long_is_said_and_not_thrown_away(look, client):
    page = look(client, "?split=test&sort=confidence")
    first = open_first(page)
    page.keyboard.press("n")
    page.locator("#note").fill("x" * 100_000)
    page.locator("[data-notice=unsaved]", has_text="a note must have at most 10,000 letters, got 100,000").wait_for()
    page.get_by_role("button", name="Next sample").click()
    wait_for_place(page, "2 of")
    page.get_by_role("button", name="Previous sample").click()
    wait_for_sample(page, first)
    assert len(page.locator("#note").input_value()) == 100_000
    page.locator("#note").fill("short")
    page.locator("[data-notice=unsaved]").wait_for(state="detached")
    page.complaints[:] = [c for c in page.complaints if "400" not in c]
