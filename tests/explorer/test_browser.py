"""The explorer in real Chromium: filters, brushing, tags, comparison, a million rows, and nothing to complain of."""

from __future__ import annotations

import re

import numpy as np
import pytest

from confide.predictions import Predictions
from confide.records import Scores
from tests.explorer.conftest import count, cut_off, open_first, wait_for_count, wait_for_tags

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("width", [375, 768, 900, 1024, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_renders_and_never_scrolls_sideways(look, client, width, scheme):
    page = look(client, width=width, color_scheme=scheme)
    assert count(page) == 80
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert (
        page.evaluate("getComputedStyle(document.body).backgroundColor")
        == {
            "light": "rgb(255, 255, 255)",
            "dark": "rgb(15, 19, 22)",
        }[scheme]
    )
    page.wait_for_selector("#cells img[src]")
    open_first(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.goto(f"http://127.0.0.1:{client.port}/?split=test&view=compare")
    page.wait_for_selector(".mx button")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_it_opens_at_the_calibrator_that_the_report_speaks_of(look, client):
    page = look(client)
    stages = page.locator("#stage option").evaluate_all("options => options.map((o) => o.value)")
    assert stages == ["raw", "temperature", "vector"]
    assert page.locator("#stage").input_value() == "temperature"


def test_filters_chips_and_the_address_agree(look, client):
    page = look(client)
    wrong = client.get("find", split="test", outcome="wrong")["count"]
    page.get_by_role("button", name="Wrong", exact=True).click()
    wait_for_count(page, wrong)
    assert "outcome=wrong" in page.url
    page.locator("[data-part=verdict] label", has_text="mislabelled").click()
    both = client.get("find", split="test", outcome="wrong", verdict="wrong label")["count"]
    wait_for_count(page, both)
    again = look(client, page.url.split("/")[-1])
    assert count(again) == both
    assert again.locator(".chip").all_inner_texts() == ["split test ×", "wrong ×", "looks mislabelled ×"]
    again.locator(".chip", has_text="mislabelled").click()
    wait_for_count(again, wrong)
    again.get_by_role("button", name="Clear all").click()
    wait_for_count(again, 180)


def test_pairs_say_right_or_wrong_and_nothing_of_classes(look, serve, tmp_path):
    Predictions.from_pairs([0, 1, 0], [0.2, 0.5, 0.9]).save(tmp_path / "p.csv")
    page = look(serve(tmp_path / "p.csv"))
    page.wait_for_selector("[data-row]")
    cells = page.locator("#cells li:not([hidden]) button").all_inner_texts()
    assert [("right" in text, "wrong" in text) for text in cells[:3]] == [(False, True), (True, False), (False, True)]
    assert "Right or wrong and confidence." in page.locator("#foot").inner_text()
    assert page.get_by_role("button", name="Confused classes").count() == 0
    open_first(page)
    assert page.locator("#drawer dl").inner_text().split("\n")[:2] == ["Answer", "wrong, 20\u202f%"]


def test_a_range_is_brushed_and_moved_by_keys(look, client):
    page = look(client)
    page.wait_for_selector("#cells li:not([hidden]) img[src]")
    box = page.locator("[data-part=difficulty] svg").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 20, steps=5)
    page.mouse.up()
    page.wait_for_function("() => location.search.includes('difficulty=')")
    low, high = (float(v) for v in re.search(r"difficulty=([\d.e-]+?)\.\.([\d.e-]+)", page.url).groups())
    wait_for_count(page, client.get("find", split="test", difficulty=f"{low}..{high}")["count"])
    page.get_by_role("slider", name="Difficulty, at most").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function(f"() => !location.search.includes('..{high}')")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Difficulty, at most"


def test_user_columns_open_and_filter(look, client):
    page = look(client)
    page.locator(".own summary", has_text="camera").click()
    page.locator(".own label", has_text="studio").click()
    wait_for_count(page, 27)
    page.locator(".own summary", has_text="width").click()
    page.locator(".own .brush").wait_for()


def test_the_drawer_shows_everything_and_the_keys_tag(look, client, run_folder):
    page = look(client, "?split=test&sort=confidence")
    page.locator("#cells li:not([hidden]) button[data-row]").first.click()
    page.wait_for_selector("#drawer .neigh li")
    titles = page.locator("#drawer h3").all_inner_texts()
    assert titles == ["Tag", "Top four classes", "Nearest in feature space", "Score parts", "Over training"]
    assert page.locator("#drawer .neigh li").count() == 6
    page.keyboard.press("d")
    page.wait_for_selector("#drawer [data-tag=drop][aria-pressed=true]")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("() => document.querySelector('.pos').textContent.startsWith('2 of')")
    page.keyboard.press("r")
    page.wait_for_selector("#drawer .saved select")
    page.locator("#drawer .saved select").select_option(label="coat")
    page.wait_for_function("() => document.querySelector('#drawer .saved').textContent.includes('Saved')")
    page.keyboard.press("Tab")
    page.locator("#drawer .tags button", has_text="Note").click()
    page.locator("#note").fill("seen twice")
    page.wait_for_function("() => document.querySelectorAll('#cells li:not([hidden]) u:not(:empty)').length === 2")
    page.locator("[data-part=tag] label", has_text="relabel").wait_for()
    wait_for_tags(page, run_folder, [("drop", None, ""), ("relabel", 1, "seen twice")])
    page.keyboard.press("Escape")
    page.locator("body").click(position={"x": 700, "y": 120})
    page.reload()
    page.wait_for_selector("#cells li:not([hidden]) u:not(:empty)")


def test_the_open_sample_stands_in_the_address(look, client):
    page = look(client, "?split=test&sample=test%2Ftest-017")
    page.wait_for_selector("#drawer h2")
    assert page.locator("#drawer h2").inner_text() == "test-017"
    assert "of 80" in page.locator(".pos").inner_text()


def test_the_grid_is_walked_by_keys(look, client):
    page = look(client, "?split=test")
    page.locator("#cells li:not([hidden]) button[data-row]").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    columns = page.evaluate(
        "new Set([...document.querySelectorAll('#cells li:not([hidden])')].map(l => l.getBoundingClientRect().x)).size"
    )
    assert page.evaluate("+document.activeElement.dataset.at") == columns + 1
    page.keyboard.press("Enter")
    page.wait_for_selector("#drawer h2")
    assert f"{columns + 2} of 80" in page.locator(".pos").inner_text()


def test_two_models_are_compared_and_a_cell_becomes_a_filter(look, client):
    page = look(client, "?split=test")
    page.get_by_role("button", name="Compare").click()
    page.wait_for_selector(".mx button")
    cells = client.get("compare", split="test", with_="other-loss")["cells"]
    assert page.locator(".mx button").all_inner_texts() == [str(cells[c]) for c in ("rr", "rw", "wr", "ww")]
    page.locator(".mx button").nth(1).click()  # of the two chosen at first, leave only "only other-loss right"
    page.wait_for_function("() => document.querySelectorAll('.mx [aria-pressed=true]').length === 1")
    page.get_by_role("button", name="Show these in the grid").click()
    wait_for_count(page, cells["wr"])
    assert "only other-loss right ×" in page.locator(".chip").all_inner_texts()


def test_marks_of_the_charts_tell_their_values(look, client):
    page = look(client, "?split=test&split=val&panel=reliability")
    told = page.locator(".value")
    page.locator("#panel svg").nth(2).focus()
    page.keyboard.press("ArrowRight")
    told.filter(has_text="The surest").wait_for()
    page.keyboard.press("Escape")
    told.wait_for(state="hidden")
    page.locator("#panel .dot").first.focus()
    told.filter(has_text="Says").wait_for()
    page.locator("[data-part=confidence] svg").hover()
    told.filter(has_text=re.compile(r"%: \d+$")).wait_for()
    page.goto(f"http://127.0.0.1:{client.port}/?split=test&view=compare")
    page.locator("svg.brush2").focus()
    page.keyboard.press("ArrowRight")
    told.filter(has_text="other-loss").wait_for()
    page.keyboard.press("Enter")
    page.wait_for_selector("#drawer .neigh li")
    told.wait_for(state="hidden")
    sample = page.locator("#drawer h2").inner_text()
    page.locator("#drawer svg", has_text="Epoch").focus()  # the parts of a sample come one by one
    page.keyboard.press("ArrowRight")
    told.filter(has_text="Epoch 2").wait_for()
    assert page.locator("#drawer h2").inner_text() == sample


@pytest.mark.parametrize("width", [880, 900, 1024])
def test_beside_an_open_sample_no_control_is_covered(look, client, width):
    page = look(client, "?split=test&sample=test%2Ftest-017", width=width)
    page.wait_for_selector("#drawer .neigh li")
    edge = page.locator("#drawer").bounding_box()["x"]
    for control in page.locator(".tool > :visible").all():
        box = control.bounding_box()
        assert box["x"] + box["width"] <= edge, control.inner_text()


def test_what_a_brush_takes_in_stays_as_clear_as_the_rest(look, client):
    page = look(client, "?split=test&view=compare")
    chart = page.locator("svg.brush2")
    box = chart.bounding_box()
    page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + 0.1 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 0.8 * box["height"], steps=4)
    page.mouse.up()
    page.get_by_role("button", name="Clear the area").wait_for()
    place = "(svg, name) => [...svg.children].findIndex(e => e.matches(name))"
    assert chart.evaluate(place, ".frame") < chart.evaluate(place, ".mark")


def test_export_and_save_view(look, client):
    page = look(client, "?split=test&outcome=wrong")
    page.locator("#export").click()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="CSV").click()
    lines = waiting.value.path().read_text().strip().split("\n")
    assert len(lines) == count(page) + 1
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Save view").click()
    page.get_by_label("Name of this view").fill("<b>wrong ones</b>")
    page.keyboard.press("Enter")
    page.locator(".views a").wait_for()
    assert page.locator(".views a").inner_text() == "<b>wrong ones</b>"
    assert client.get("views")["views"] == [["<b>wrong ones</b>", "split=test&outcome=wrong"]]


def test_a_class_named_script_is_text_everywhere(look, client):
    page = look(client, "?split=test&label=2")
    assert "label <script>alert(1)</script> ×" in page.locator(".chip").all_inner_texts()
    page.locator("#cells li:not([hidden]) button[data-row]").first.click()
    page.wait_for_selector("#drawer .neigh li")
    assert page.locator("#drawer dd").first.inner_text() == "<script>alert(1)</script>"
    assert page.locator("body script").count() == 0


def test_when_nothing_fits_the_blamed_filter_is_a_button(look, client):
    page = look(client, "?split=test&difficulty=1000..&outcome=wrong")
    assert "No sample fits" in page.locator("#nothing").inner_text()
    page.locator("#nothing .chip").click()
    wait_for_count(page, client.get("find", split="test", outcome="wrong")["count"])


def test_wrong_parts_of_a_link_are_left_out_and_said_and_the_rest_is_shown(look, client):
    page = look(client, "?split=test&nonsense=1&outcome=wrong&label=99&sort=colour")
    wait_for_count(page, client.get("find", split="test", outcome="wrong")["count"])
    words = page.locator("[data-notice=dropped]").inner_text()
    assert all(word in words for word in ("no column 'nonsense'", "below 4, got '99'", "sort must be"))
    assert page.url.endswith("/?split=test&outcome=wrong")
    assert page.locator(".chip").all_inner_texts() == ["split test ×", "wrong ×"]


def test_missing_pictures_leave_the_rows(look, serve, run_folder):
    (run_folder / "pictures.npz").unlink()
    page = look(serve(run_folder))
    page.locator("[data-notice=pictures]").wait_for()
    assert "Pictures are not shown" in page.locator("#notices").inner_text()
    words = page.locator("#cells.none li:not(.sk):not([hidden]) .words").first
    words.wait_for()  # the rows are asked for again once it is known that there are no pictures
    assert words.inner_text().startswith("test-")


def test_scores_alone_are_shown(look, serve, tmp_path):
    Scores(np.arange(50), np.linspace(0, 1, 50), "loss", {}, np.arange(50) % 2).save(tmp_path / "s.parquet")
    page = look(serve(tmp_path / "s.parquet"))
    assert count(page) == 50
    assert not page.locator("#model-pick").is_visible()
    page.locator("#cells li:not([hidden]) button[data-row]").first.click()
    page.wait_for_selector("#drawer .empty")
    assert "No top classes" in page.locator("#drawer").inner_text()


def test_sliders_of_tiny_numbers_are_plain_numbers_to_a_screen_reader(look, serve, tmp_path):
    logits = np.column_stack([np.linspace(9, 18, 50), np.zeros(50)])
    Predictions(logits, np.zeros(50, dtype=np.int64)).save(tmp_path / "p.parquet")
    page = look(serve(tmp_path / "p.parquet"))
    sliders = page.locator("[data-part=loss] [role=slider]").all()
    assert len(sliders) == 2
    for name in ("aria-valuemin", "aria-valuemax", "aria-valuenow"):
        assert all(re.fullmatch(r"-?\d+(\.\d+)?", slider.get_attribute(name)) for slider in sliders), name


def test_a_lost_connection_is_said_and_mended(look, serve, run_folder):
    client = serve(run_folder)
    page = look(client)
    cut_off(page)
    page.get_by_role("button", name="Wrong", exact=True).click()
    page.wait_for_selector("[data-notice=lost]")
    assert "reconnects by itself" in page.locator("[data-notice=lost]").inner_text()
    page.unroute("**/api/**")
    page.wait_for_selector("[data-notice=lost]", state="detached")
    wait_for_count(page, client.get("find", split="test", outcome="wrong")["count"])
    page.complaints[:] = [c for c in page.complaints if "ERR_FAILED" not in c]


def test_three_hundred_thousand_rows_scroll_to_their_end_on_a_phone(look, serve, tmp_path):
    n = 300_000
    Scores(np.arange(n), np.arange(n, dtype=float), "loss", {}, np.arange(n) % 9).save(tmp_path / "s.parquet")
    page = look(serve(tmp_path / "s.parquet"), width=375)
    assert page.locator("#cells li:not([hidden])").count() < 60
    assert page.evaluate("document.getElementById('cells').offsetHeight") <= 8_000_000
    page.evaluate("document.getElementById('grid').scrollTop = 1e9")
    page.wait_for_function(
        f"() => [...document.querySelectorAll('#cells button[data-row]')].some(b => +b.dataset.at === {n - 1})"
    )
    last = page.locator(f"#cells button[data-at='{n - 1}']")
    assert last.locator(".words").inner_text() == "0"
    page.locator("#cells li:not([hidden]) button[data-row]").first.focus()
    page.keyboard.press("Home")
    page.wait_for_selector("#cells button[data-at='0'][data-row]")


def test_targets_on_a_phone_are_large_enough(look, client):
    page = look(client, "?split=test&outcome=wrong", width=375)
    page.locator("#filters").click()
    for selector in (
        ".btn:visible",
        ".chip:visible",
        "#rail label:visible",
        "#rail .seg button",
        ".pick:visible select",
    ):
        for box in (e.bounding_box() for e in page.locator(selector).all()[:8]):
            assert box["height"] >= 33 if "label" in selector else box["height"] >= 39.5, selector


def test_contrast_of_all_text_is_at_least_four_and_a_half(look, client):
    for scheme in ("light", "dark"):
        page = look(client, "?split=test&outcome=wrong&sample=test%2Ftest-017", color_scheme=scheme)
        page.wait_for_selector("#drawer .neigh li")
        low = page.evaluate(CONTRAST)
        assert low == [], low[:5]


CONTRAST = """() => {
  const linear = x => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4;
  const light = c => { const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => linear(x / 255));
    return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
  const bad = [];
  for (const e of document.querySelectorAll('body *')) {
    if (!e.checkVisibility() || ![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    if (e.closest('.sr, .skip, title, option, :disabled') || e.tagName === 'TITLE') continue;
    let ground = e;
    while (ground && getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)') ground = ground.parentElement;
    const back = ground ? getComputedStyle(ground).backgroundColor : 'rgb(255, 255, 255)';
    const front = e.ownerSVGElement ? getComputedStyle(e).fill : getComputedStyle(e).color;
    const a = light(front), b = light(back), ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) bad.push([e.tagName, e.textContent.slice(0, 30), front, back, ratio]);
  }
  return bad;
}"""


def test_suspects_the_operating_point_and_cells_of_the_report_open_their_samples(look, serve, run_folder):
    """Where the explorer shows the report these are links; in the file they are none."""
    from dataclasses import replace

    from confide import evaluate, write_report
    from confide.predictions import Predictions
    from confide.results import Sample

    predictions = Predictions.load(run_folder / "predictions" / "plain-test.parquet", split="test")
    doubt = 1 - predictions.probabilities().amax(1).numpy()
    found = evaluate(predictions, model="plain", trust={"other": -doubt * doubt})
    suspect = Sample("suspect", predictions.ids[3], "coat", "bag", verdict="wrong label")
    found = replace(found, samples=(suspect,))
    found.save(run_folder / "evaluation.json")
    page = look(serve(run_folder), "?split=test")
    home = page.url.split("/?")[0]
    page.goto(f"{home}/report")
    page.locator("#difficulty .suspects li a").first.click()
    page.wait_for_selector("#drawer:not([hidden])")
    assert f"sample=test%2F{predictions.ids[3]}" in page.url

    page.goto(f"{home}/report")
    accepted = page.locator("[data-out=coverage]").inner_text()
    page.locator("#open-point [data-open=accepted]").click()
    page.wait_for_selector("#cells li:not(.sk) button[data-row]")
    assert count(page) == round(float(accepted.removesuffix("\u202f%")) / 100 * len(predictions))

    page.goto(f"{home}/report")
    cell = page.locator("#trust .q a[href]").first
    number = int(cell.inner_text().replace(",", ""))
    if number:
        cell.click()
        page.wait_for_selector("#cells li:not(.sk) button[data-row]")
        assert count(page) == number

    file = write_report(found, run_folder / "alone.html")
    page.goto(file.as_uri())
    assert page.locator("a[data-explorer][href], #open-point:not([hidden])").count() == 0
    page.complaints.clear()  # the file is no page of the server
