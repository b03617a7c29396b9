"""Curves of an item as a picture that stands alone."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

from benchmarks.lib.claims import Trend
from benchmarks.lib.drawing import svg_of
from benchmarks.lib.items import Item, Outcome
from benchmarks.lib.tables import markdown, tables_of
from benchmarks.lib.values import Summary

ABOUT = {"hardware": "", "commit": "", "schedule": "", "seconds": 0.0}


def row(method: str, x: float | None, mean: float, quantity: str = "error", dataset: str = "cifar10") -> Summary:
    return Summary(dataset, method, quantity, x, mean, 0.5, mean - 1, mean + 1, 3)


def item(**more: object) -> Item:
    options = {"axes": {"": "epoch"}, **more}
    return Item("p9-figure1", "errors & epochs", "Nobody (2020), Figure 1", "none", "none", lambda study: [], **options)


def picture(rows: list[Summary], **more: object) -> ElementTree.Element:
    text = svg_of(item(**more), Outcome(tuple(rows), (), (), {}))
    assert text is not None
    return ElementTree.fromstring(text)


def marks(root: ElementTree.Element, word: str) -> list[ElementTree.Element]:
    space = "{http://www.w3.org/2000/svg}"
    return [one for one in root.iter() if one.tag.startswith(space) and word in one.get("class", "").split()]


def words(root: ElementTree.Element) -> list[str]:
    return [one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}text")]


def test_without_an_axis_there_is_no_picture():
    assert svg_of(item(), Outcome((row("focal", None, 3.0), row("focal", 1.0, math.nan)), (), (), {})) is None


def test_a_panel_per_dataset_and_quantity_and_a_line_per_method():
    rows = [
        row(method, x, 10 * x, quantity, dataset)
        for dataset in ("cifar10", "tiny32")
        for quantity in ("error", "ece")
        for method in ("focal", "<b>")
        for x in (1.0, 2.0, 3.0)
    ]
    root = picture(rows)
    told = words(root)
    titles = ["CIFAR-10: error", "Tiny-ImageNet-32: error", "CIFAR-10: ece", "Tiny-ImageNet-32: ece"]
    assert [word for word in told if ": " in word] == titles
    assert told.count("<b>") == 1  # as text, and once for all panels
    assert told.count("epoch") == 4
    assert len(marks(root, "ln")) == 4 * 2 + 2  # the names have a piece of their line
    assert len(marks(root, "bx")) == 4 * 2
    assert root.get("aria-label", "").startswith("errors & epochs")


def test_curves_lie_where_their_numbers_are():
    root = picture([row("focal", 0.0, 0.0), row("focal", 1.0, 5.0), row("focal", 2.0, 10.0)])
    line = [one for one in marks(root, "ln") if "L" in one.get("d", "")][-1].get("d", "")
    (x0, y0), (x1, y1), (x2, y2) = [tuple(map(float, p)) for p in re.findall(r"([\d.]+) ([\d.]+)", line)]
    assert x0 < x1 < x2
    assert y0 > y1 > y2  # upwards
    assert math.isclose(x1 - x0, x2 - x1, abs_tol=0.2)
    assert math.isclose(y0 - y1, y1 - y2, abs_tol=0.2)


def test_quartiles_are_a_band_around_the_median():
    rows = [
        row("focal", x, value, f"ece, {word}")
        for x in (1.0, 2.0)
        for word, value in (("lower quartile", 1.0), ("median", 4.0), ("upper quartile", 9.0))
    ]
    root = picture(rows)
    assert [word for word in words(root) if ": " in word] == ["CIFAR-10: ece"]
    assert len(marks(root, "bx")) == 1
    assert len(marks(root, "ln")) == 2


def test_quantities_of_one_method_share_a_panel_but_not_an_axis():
    rows = [row("adafocal", x, k, f"gamma of bin {k}") for k in (0, 7, 14) for x in (1.0, 2.0, 3.0)]
    assert "CIFAR-10: gamma of bin" in words(picture(rows))
    rows = [row("mean", float(x), x) for x in range(6)] + [row("noise", 0.1 * x, x) for x in range(6)]
    told = words(picture(rows, axes={"": "severity", "noise": "share"}))
    assert told.count("CIFAR-10: error") == 2
    assert {"severity", "share"} <= set(told)


def test_of_very_many_curves_those_that_claims_speak_of_have_a_colour():
    rows = [row(f"m{k}", x, k + x) for k in range(18) for x in (1.0, 2.0)]
    root = picture(rows, claims=(Trend("rises", ("m5",), "error"),))
    assert [word for word in words(root) if word.startswith("m")] == ["m5"]
    assert len(marks(root, "thin")) == 17
    fifteen = picture([one for one in rows if one.method not in ("m14", "m15", "m16", "m17")])
    assert len(marks(fifteen, "thin")) == 0
    assert len(marks(fifteen, "da")) == 2 * 7


def test_the_page_shows_the_picture_and_names_the_axis():
    outcome = Outcome((row("focal", 1.0, 3.0), row("focal", 2.0, 4.0)), (), (), {("cifar10", "focal"): ABOUT})
    page = markdown(item(), outcome, "lite")
    assert "![errors & epochs](p9-figure1.svg)" in page
    assert tables_of(item(), outcome)[0].title == "error along epoch"
    assert "| from | dataset | method | epoch | error |" in page
    none = Outcome((row("focal", None, 3.0),), (), (), {("cifar10", "focal"): ABOUT})
    assert "svg" not in markdown(item(), none, "lite")
