"""The page in real Chromium: it renders, answers, fits, and has nothing to complain of."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from confide import Predictions, evaluate
from confide.report import write_report
from confide.report.sections import SECTIONS
from tests.conftest import axe_violations

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address(evaluation, tmp_path_factory) -> str:
    return write_report(evaluation, tmp_path_factory.mktemp("page") / "report.html").as_uri()


@pytest.fixture
def opened(browser, address) -> Iterator[Any]:
    """Opens the page at a width; complaints and requests are kept, and must be none at the end."""
    contexts: list[Any] = []
    complaints: list[str] = []

    def open_at(width: int, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, accept_downloads=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: complaints.append(str(e)))
        page.on(
            "request", lambda r: complaints.append(r.url) if not r.url.startswith(("file:", "data:", "blob:")) else None
        )
        page.goto(address)
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.mark.parametrize("width", [375, 768, 1440])
def test_every_section_renders_and_the_page_never_scrolls_sideways(opened, width):
    page = opened(width)
    for name in (section.id for section in SECTIONS if not section.optional):
        assert page.locator(f"#{name}").bounding_box()["height"] > 60
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [375, 640, 768, 900, 1024, 1180, 1280, 1440])
def test_charts_show_one_drawing_and_text_stays_readable(opened, width):
    page = opened(width)
    assert page.locator(".vw:visible").count() + page.locator(".vn:visible").count() == page.locator(".vw").count()
    for _ in range(2):  # as it opens, and with every table of numbers open
        sizes = page.evaluate(
            """() => [...document.querySelectorAll('main svg text')].filter(t => t.checkVisibility())
               .map(t => parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a)"""
        )
        assert min(sizes) >= 11
        assert max(sizes) <= 14
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")


def test_a_mark_tells_its_value_on_hover_tap_and_arrow_keys(opened):
    page = opened(1440)
    svg = page.locator("#diagrams figure:visible svg").first
    told = page.locator(".value")
    box = page.evaluate(
        "(s) => { s.scrollIntoView(); return s.getBoundingClientRect().toJSON(); }", svg.element_handle()
    )
    x, y, words, *_ = json.loads(svg.get_attribute("data-values"))[0]
    scale = box["width"] / float(svg.get_attribute("viewBox").split()[2])
    page.mouse.move(box["x"] + x * scale, box["y"] + y * scale)
    assert told.inner_text() == words
    page.mouse.move(5, 5)
    assert told.is_hidden()
    svg.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert told.inner_text() == words
    page.keyboard.press("Escape")
    assert told.is_hidden()


def test_a_finger_on_one_chart_after_another_tells_each_value(opened):
    """The chart that was touched before loses the keyboard, and must not take the words of the next with it."""
    page = opened(375, has_touch=True)
    told, charts = page.locator(".value"), page.locator(".vn svg[data-values]:visible")
    for k in range(4):
        svg = charts.nth(k)
        svg.scroll_into_view_if_needed()
        box, (x, y, words, *_) = svg.bounding_box(), json.loads(svg.get_attribute("data-values"))[0]
        scale = box["width"] / float(svg.get_attribute("viewBox").split()[2])
        page.touchscreen.tap(box["x"] + x * scale, box["y"] + y * scale)
        page.wait_for_function("at => document.activeElement === at", arg=svg.element_handle())
        told.filter(has_text=words).wait_for()
        assert page.locator("svg .ring").count() == 1


def test_the_point_is_dragged_and_slider_and_readout_follow(opened):
    page = opened(1440)
    svg = page.locator(".vw .rcs")
    svg.scroll_into_view_if_needed()
    point = page.locator(".vw .op circle").first.bounding_box()
    box = svg.bounding_box()
    before = page.locator('[data-out="coverage"]').inner_text()
    page.mouse.move(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5, steps=6)
    page.mouse.up()
    coverage = page.locator('[data-out="coverage"]').inner_text()
    assert coverage != before
    assert 45 < float(coverage.rstrip("%\u202f")) < 55
    assert coverage in page.locator("#point").get_attribute("aria-valuetext")
    moved = page.locator(".vw .op circle").first.bounding_box()
    assert abs(moved["x"] + 8 - (box["x"] + box["width"] * 0.5)) < 6


def test_the_slider_moves_the_point_by_keyboard(opened):
    page = opened(1440)
    slider = page.locator("#point")
    slider.focus()
    before = page.locator('[data-out="threshold"]').inner_text(), int(slider.input_value())
    page.keyboard.press("ArrowLeft")
    assert int(slider.input_value()) == before[1] - 1
    assert page.locator('[data-out="threshold"]').inner_text() != before[0]


def test_a_ready_made_threshold_sets_the_point_and_its_promise(opened):
    page = opened(1440)
    for threshold, risk in (("0.594", 8), ("0.816", 5), ("0.931", 3)):
        button = page.locator(".jump", has_text=threshold)
        button.click()
        assert page.locator('[data-out="threshold"]').inner_text() == threshold
        assert f"At most {risk}\u202f% wrong" in page.locator('[data-out="promise"]').inner_text()
        spared = button.locator("xpath=ancestor::tr").locator("td").last.inner_text()
        assert page.locator('[data-out="spared"]').inner_text() == spared
    page.locator("#point").focus()
    page.keyboard.press("End")
    assert "No error rate is promised" in page.locator('[data-out="promise"]').inner_text()


def test_the_table_of_groups_sorts_by_a_click_on_its_head(opened):
    page = opened(1440)
    page.locator("summary", has_text="By group").click()
    table = page.locator("[data-sortable]")
    names = [head.inner_text() for head in table.locator("th[scope=col]").all()]
    column = names.index("Confidence minus accuracy")
    for _ in range(2):
        table.locator("th[scope=col] button").nth(column).click()
        cells = [row.locator("th, td").nth(column).inner_text() for row in table.locator("tbody tr").all()]
        values = [float(text.split()[0].replace("\u2212", "-")) for text in cells if text != "–"]
        down = table.locator("th[scope=col]").nth(column).get_attribute("aria-sort") == "descending"
        assert values == sorted(values, reverse=down)
        assert len(set(values)) > 1


def test_bins_switch_between_drawn_variants(opened):
    page = opened(1440)
    shown = page.locator("#diagrams figure[data-variant]:visible")
    assert [shown.nth(k).get_attribute("data-variant") for k in range(shown.count())] == ["width-15"] * 2
    page.get_by_role("button", name="Equal mass").click()
    page.get_by_role("button", name="20", exact=True).click()
    assert [shown.nth(k).get_attribute("data-variant") for k in range(shown.count())] == ["mass-20"] * 2
    assert page.get_by_role("button", name="Equal mass").get_attribute("aria-pressed") == "true"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_system_and_the_button(opened, scheme):
    page = opened(1440, color_scheme=scheme)
    colours = {"light": "rgb(255, 255, 255)", "dark": "rgb(15, 19, 22)"}
    background = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(background) == colours[scheme]
    page.locator("#theme").click()
    other = "light" if scheme == "dark" else "dark"
    assert page.evaluate(background) == colours[other]
    page.emulate_media(media="print")
    assert page.evaluate(background) == colours["light"]


def test_tips_open_on_focus_and_close_on_escape(opened):
    page = opened(1440)
    term = page.locator(".term").first
    term.focus()
    assert term.locator(".tip").is_visible()
    page.keyboard.press("Escape")
    assert not term.locator(".tip").is_visible()


def test_a_tip_lies_inside_a_phone(opened):
    page = opened(375, has_touch=True)
    for term in page.locator("thead .term").all()[:9:4]:
        term.focus()
        box = term.locator(".tip").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 375


def test_numbers_can_be_downloaded(opened, evaluation):
    page = opened(1440)
    for kind in ("csv", "json"):
        with page.expect_download() as waiting:
            page.locator(f'[data-download="{kind}"]').click()
        text = waiting.value.path().read_text()
        if kind == "json":
            assert len(json.loads(text)["measurements"]) == len(evaluation.measurements)
        else:
            assert len(text.splitlines()) == len(evaluation.measurements) + 1
            assert "class=<script>" in text


def test_a_class_named_script_is_text(opened):
    page = opened(1440)
    assert page.locator(".grow h4", has_text="<script>").count() == 1
    assert page.locator("body script").count() == 2


def test_targets_on_a_phone_are_large_enough(opened):
    page = opened(375)
    for selector in (".seg button", "#theme", ".data summary", ".jump", ".bar nav a"):
        for box in (e.bounding_box() for e in page.locator(selector).all()[:6]):
            if box:
                assert box["height"] >= 39.5, selector


def test_works_without_scripts(browser, address):
    context = browser.new_context(java_script_enabled=False, viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(address)
    assert page.locator("#diagrams figure[data-variant]:visible").count() == 2
    assert page.locator('[data-out="coverage"]').inner_text().endswith("%")
    assert not page.locator("#theme").is_visible()
    for dead in (
        "#point",
        ".drag",
        ".controls",
        "[data-download]",
        "#open-point",
        ".jump:enabled",
        "a[data-explorer][href]",
    ):
        assert page.locator(dead).locator("visible=true").count() == 0, dead
    context.close()


def test_contrast_of_all_text_is_at_least_four_and_a_half(opened):
    for scheme in ("light", "dark"):
        page = opened(1440, color_scheme=scheme)
        low = page.evaluate(CONTRAST)
        assert low == [], low[:5]


CONTRAST = """() => {
  const linear = x => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4;
  const light = c => { const v = c.match(/[\\d.]+/g).slice(0, 3).map(x => linear(x / 255));
    return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
  const bad = [];
  for (const e of document.querySelectorAll('main *, header *, footer *')) {
    if (!e.checkVisibility() || ![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    if (e.closest('.sr') || /\\bt[0-6]\\b/.test(e.getAttribute('class') || '') || e.tagName === 'title') continue;
    let ground = e;
    while (ground && getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)') ground = ground.parentElement;
    const back = ground ? getComputedStyle(ground).backgroundColor : 'rgb(255, 255, 255)';
    const front = e.ownerSVGElement ? getComputedStyle(e).fill : getComputedStyle(e).color;
    const a = light(front), b = light(back), ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) bad.push([e.tagName, e.textContent.slice(0, 30), front, back, ratio]);
  }
  return bad;
}"""


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (1440, "dark"), (375, "light"), (375, "dark")])
def test_axe_finds_nothing(opened, axe, width, scheme):
    assert axe_violations(opened(width, color_scheme=scheme), axe) == []


@pytest.mark.parametrize("width", [860, 900, 1024, 1180])
def test_the_contents_are_all_in_sight(opened, width):
    page = opened(width)
    nav = page.locator(".bar nav")
    assert nav.evaluate("e => e.scrollWidth <= e.clientWidth + 1 && e.scrollHeight <= e.clientHeight + 1")
    assert nav.locator("a").count() == page.locator("main section").count()


def test_a_long_name_of_a_model_stays_beside_its_numbers(browser, tmp_path):
    rng = np.random.default_rng(0)
    predictions = Predictions(rng.normal(size=(300, 3)), rng.integers(0, 3, 300))
    name = "a_model_with_a_very_long_name_that_does_not_end_soon"
    address = write_report(evaluate(predictions, model=name), tmp_path / "long.html").as_uri()
    for width in (1440, 1024, 375):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto(address)
        row = page.locator(".metrics tbody tr", has=page.locator("code")).first
        ends = row.evaluate("r => [r.querySelector('code'), r.querySelector('td')].map(e => e.getBoundingClientRect())")
        assert ends[0]["right"] <= ends[1]["right"] - 20, width  # numbers stand at the right of their cell
        over = "r => { const t = document.createRange(); t.selectNodeContents(r.querySelector('td'));"
        over += " return t.getBoundingClientRect().left - r.querySelector('code').getBoundingClientRect().right; }"
        assert row.evaluate(over) > 0, width
        page.close()


def test_on_paper_nothing_is_cut_and_heads_repeat(browser, address):
    """A4 with usual margins is 680 px wide."""
    context = browser.new_context(viewport={"width": 680, "height": 960})
    page = context.new_page()
    page.emulate_media(media="print")
    page.goto(address)
    beyond = "e => !e.closest('svg') && e.getBoundingClientRect().right > innerWidth + 1"
    found = f"[...document.querySelectorAll('main *')].filter({beyond}).map(e => e.outerHTML.slice(0, 80))"
    assert page.evaluate(f"() => {found}") == []
    heads = page.evaluate("() => [...document.querySelectorAll('thead')].map(e => getComputedStyle(e).display)")
    assert set(heads) == {"table-header-group"}
    titles = "[...document.querySelectorAll('.side, figcaption, h3, h4')].map(e => getComputedStyle(e).breakAfter)"
    assert set(page.evaluate(f"() => {titles}")) == {"avoid"}
    # A grid is torn at the end of a page, and what follows is printed over its last row; a figure in a line is whole.
    torn = "e => e.checkVisibility() && ['grid', 'flex'].includes(getComputedStyle(e).display)"
    rows = "[...document.querySelectorAll('.row, .row > .fig, .tiles')]"
    assert page.evaluate(f"() => {rows}.filter({torn}).map(e => e.className)") == []
    assert page.get_by_role("heading", name="Take the numbers").count() == 0  # there is nothing to press on paper
    context.close()


def test_in_forced_colours_drawings_keep_theirs(browser, address):
    context = browser.new_context(viewport={"width": 1024, "height": 900}, forced_colors="active")
    page = context.new_page()
    page.goto(address)
    dot = "#reliability svg .fw"
    colour = page.evaluate(f"() => getComputedStyle(document.querySelector('{dot}')).fill")
    ground = page.evaluate("() => getComputedStyle(document.querySelector('#reliability svg')).backgroundColor")
    assert colour == "rgb(168, 42, 6)"
    assert ground == "rgb(255, 255, 255)"
    context.close()


LONG = "صنف بالعربية من اليمين إلى اليسار"
NAMES = ("W" * 36, "混乱した長い日本語のクラス名", LONG, "हिन्दी में एक वर्ग", "<b>bold</b>", "a")


def _at_the_limit(kind: str) -> Predictions:
    labels, draws = np.arange(1200) % 6, np.random.default_rng(0)
    if kind == "too few":
        return Predictions(draws.normal(size=(12, 6)), labels[:12], split="test")
    if kind == "names":
        return Predictions(2 * np.eye(6)[labels] + draws.normal(size=(1200, 6)), labels, class_names=NAMES)
    # Confidences of 1 but for roundings, all right or all wrong: axes of one value.
    return Predictions(30.0 * np.eye(6)[labels], (labels + (kind == "all wrong")) % 6, split="test")


@pytest.mark.parametrize("kind", ["all right", "all wrong", "too few", "names"])
def test_no_text_of_a_drawing_leaves_it_or_lies_over_another(browser, tmp_path, kind):
    page = browser.new_page()
    page.goto(write_report(evaluate(_at_the_limit(kind), by="predicted"), tmp_path / "limit.html").as_uri())
    for width in (375, 1024, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = page.evaluate(
            """() => [...document.querySelectorAll('main svg')].filter(s => s.checkVisibility()).flatMap(s => {
              const all = s.getBoundingClientRect(), found = [];
              const texts = [...s.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
              texts.forEach(([words, a], k) => {
                if (a.left < all.left - 14 || a.right > all.right + 14) found.push(words);
                texts.slice(k + 1).forEach(([other, b]) => {
                  const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
                  const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
                  if (wide > 1.5 && high > 4) found.push(`${words} over ${other}`);
                });
              });
              return found;
            })"""
        )
        assert found == [], width
    page.close()
