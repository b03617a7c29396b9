"""Several people, several tabs, and one who changes their mind, in real Chromium: nobody's tag is lost or misplaced."""

from __future__ import annotations

import pytest

from confide.explorer.tags import SampleTag, TagFile
from tests.explorer.conftest import (
    cut_off,
    ids,
    open_first,
    wait_for_actions,
    wait_for_count,
    wait_for_neighbours,
    wait_for_sample,
    wait_for_tags,
)
from tests.explorer.test_why import write_evaluation

pytestmark = pytest.mark.slow


def forgive(page, *words):
    page.complaints[:] = [c for c in page.complaints if not any(word in c for word in words)]


def test_keys_never_tag_the_sample_in_sight_when_the_next_cannot_be_loaded(look, client, run_folder):
    order = ids(client, split="test", sort="confidence")
    page = look(client, "?split=test&sort=confidence")
    open_first(page)
    wait_for_neighbours(page, 2)
    cut_off(page)
    page.keyboard.press("ArrowRight")
    wait_for_sample(page, order[1])  # it was fetched ahead
    page.keyboard.press("ArrowRight")
    page.locator(".coming", has_text="cannot be loaded").wait_for()
    for key in ("d", "k", "r", "ArrowRight", "d"):
        page.keyboard.press(key)
    assert f"still {order[1]}" in page.locator(".coming").inner_text()
    page.unroute("**/api/**")
    wait_for_sample(page, order[2])
    page.keyboard.press("k")
    wait_for_actions(page, run_folder, {order[2]: "keep"})
    forgive(page, "ERR_FAILED")


def test_who_cannot_step_on_may_stay_and_tag(look, client, run_folder):
    page = look(client, "?split=test&sort=confidence")
    first = open_first(page)
    wait_for_neighbours(page, 2)
    cut_off(page)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.locator(".coming button").click()
    shown = page.locator("#drawer h2").inner_text()
    page.keyboard.press("d")
    page.unroute("**/api/**")
    wait_for_actions(page, run_folder, {shown: "drop"})
    assert first != shown
    forgive(page, "ERR_FAILED")


def test_two_tabs_see_each_others_tags(look, client):
    one, two = (look(client, "?split=test&sort=confidence") for _ in range(2))
    first = open_first(one)
    open_first(two)
    one.keyboard.press("d")
    two.wait_for_selector("#drawer [data-tag=drop][aria-pressed=true]")
    two.locator("[data-part=tag] label", has_text="drop").wait_for()
    two.wait_for_function("() => document.querySelector('#cells li:not([hidden]) u').textContent === 'drop'")
    assert two.locator("#drawer h2").inner_text() == first


def test_a_write_over_what_someone_else_wrote_is_refused_and_said(look, client, run_folder):
    page = look(client, "?split=test&sort=confidence")
    first = open_first(page)
    row = client.get("locate", split="test", id=first, **{"in": "test"})["row"]
    page.route("**/api/changes*", lambda route: None)  # it does not hear of it
    client.put(f"tag?row={row}", {"action": "keep"})
    page.keyboard.press("d")
    page.locator("[data-notice=unsaved]", has_text="someone else changed it meanwhile: it is keep").wait_for()
    wait_for_tags(page, run_folder, [("keep", None, "")])
    page.wait_for_selector("#drawer [data-tag=keep][aria-pressed=true]")
    page.get_by_role("button", name="Send again").click()
    wait_for_tags(page, run_folder, [("drop", None, "")])
    forgive(page, "409")


def test_a_second_explorers_tags_appear_without_a_restart(look, serve, run_folder):
    client, other = serve(run_folder), TagFile(run_folder / "tags.sqlite")
    page = look(client, "?split=test&sort=confidence")
    first = open_first(page)
    other.put(SampleTag("test", first, "drop"))
    page.wait_for_selector("#drawer [data-tag=drop][aria-pressed=true]")
    page.locator("[data-part=tag] label", has_text="drop").click()
    wait_for_count(page, 1)
    other.close()


def test_back_and_forward_walk_through_filters_and_samples(look, client):
    order = ids(client, split="test", sort="confidence")
    wrong = client.get("find", split="test", outcome="wrong")["count"]
    page = look(client, "?split=test&sort=confidence")
    page.get_by_role("button", name="Wrong", exact=True).click()
    wait_for_count(page, wrong)
    page.get_by_role("button", name="Any", exact=True).click()
    wait_for_count(page, 80)
    open_first(page)
    page.wait_for_timeout(1100)  # quick steps are one
    page.keyboard.press("ArrowRight")
    wait_for_sample(page, order[1])
    page.go_back()
    wait_for_sample(page, order[0])
    page.go_back()
    page.locator("#drawer").wait_for(state="hidden")
    page.go_back()
    wait_for_count(page, wrong)
    page.go_back()
    wait_for_count(page, 80)
    page.go_forward()
    wait_for_count(page, wrong)
    page.go_forward()
    page.go_forward()
    wait_for_sample(page, order[0])


def test_tags_are_taken_back(look, client, run_folder):
    page = look(client, "?split=test&sort=confidence")
    first = open_first(page)
    page.keyboard.press("k")
    page.wait_for_selector("#drawer [data-tag=keep][aria-pressed=true]")
    page.keyboard.press("d")
    page.locator(".toast", has_text=f"{first}: drop.").wait_for()
    page.keyboard.press("Control+z")
    wait_for_actions(page, run_folder, {first: "keep"})
    page.wait_for_selector("#drawer [data-tag=keep][aria-pressed=true]")
    page.locator(".toast", has_text="Taken back").wait_for()
    page.keyboard.press("Control+z")
    wait_for_actions(page, run_folder, {})
    page.keyboard.press("Control+z")
    page.locator(".toast", has_text="nothing to take back").wait_for()


def test_quick_undos_are_answered_in_their_order(look, client, run_folder):
    page = look(client, "?split=test&sort=confidence")
    first = open_first(page)
    page.keyboard.press("k")
    page.locator(".toast", has_text=f"{first}: keep.").wait_for()
    held = []
    page.route("**/undo*", lambda route: held.append(route))
    with page.expect_request("**/undo*"):
        page.keyboard.press("Control+z")
        page.keyboard.press("Control+z")
    assert page.locator(".toast", has_text="nothing to take back").count() == 0  # the first is not answered yet
    held[0].continue_()
    page.locator(".toast", has_text="nothing to take back").wait_for()
    wait_for_actions(page, run_folder, {})


def test_a_suggested_class_is_taken_in_one_key(look, client, run_folder):
    page = look(client, "?split=test&sample=test%2Ftest-017")
    page.wait_for_selector("#drawer .accept")
    page.keyboard.press("a")
    wait_for_tags(page, run_folder, [("relabel", 2, "")])


def test_a_picture_is_looked_at_closely(look, client):
    page = look(client, "?split=test&sample=test%2Ftest-017")
    page.locator("#drawer .look").click()
    page.locator("dialog .empty", has_text="Not here whole").wait_for()  # an array has no files
    page.keyboard.press("+")
    assert "scale(1.25)" in page.locator(".pane img").first.get_attribute("style")
    page.keyboard.press("Escape")
    forgive(page, "404")


def test_a_dot_of_the_report_opens_its_samples(look, serve, run_folder):
    write_evaluation(run_folder)
    client = serve(run_folder)
    page = look(client, "?split=test")
    page.get_by_role("link", name="Report", exact=True).click()
    chart = page.locator("svg[data-values*='prediction=']").first
    chart.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/?split=test&model=plain&stage=raw&prediction=*")
    page.locator(".chip", has_text="predicted").wait_for()
    assert page.locator("[data-notice=dropped]").count() == 0
