"""The pages that the site is made of, without building it."""

import inspect
import os
import re
import runpy
import xml.etree.ElementTree as ElementTree
from importlib import import_module
from pathlib import Path

import pytest

from confide.cli.list import FAMILIES, registry_of

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / "tutorials").glob("*.py"))
SITE = runpy.run_path(str(ROOT / "tools" / "site.py"))
TYPESET = runpy.run_path(str(ROOT / "tools" / "typeset.py"))


@pytest.mark.parametrize("family", FAMILIES)
def test_every_method_has_a_page_with_its_options_and_what_was_measured(family):
    for method in registry_of(family):
        page = SITE["method_page"](family, method)
        assert page.startswith(f"# {method.word}\n")
        assert all(f"| `{option}` |" in page for option in method.options)
        assert "**When to use it.** " in page
        assert "**When not.** " in page
        assert ("Not measured." in page) == (not SITE["measured"](family, method.word))


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in SITE["WITHOUT_FORMULA"]])
def test_a_drawn_formula_holds_all_that_its_docstring_says(family):
    back = {greek: name for name, greek in TYPESET["GREEK"].items()} | {
        "𝟙": "1",
        "∑": "sum",
        "×": "x",
        "∝": "proportionalto",
    }
    for method in registry_of(family):
        drawn = TYPESET["typeset"](method.summary)
        text = "".join(ElementTree.fromstring(f"<p>{drawn}</p>").itertext())  # also: it is well-formed
        for sign, name in back.items():
            text = text.replace(sign, name)
        said = method.summary.replace("sqrt(", "(")
        assert re.sub(r"[^A-Za-zÀ-ÿ0-9]", "", text) == re.sub(r"[^A-Za-zÀ-ÿ0-9]", "", said), method.word


@pytest.mark.parametrize(
    ("formula", "drawn"),
    [
        ("z / T", "<mfrac><mi>z</mi><mi>T</mi></mfrac>"),
        ("beta^n_k", "<msup><mi>β</mi><mrow><msub><mi>n</mi><mi>k</mi></msub></mrow></msup>"),
        ("sum_k q_k", "<munder><mo>∑</mo><mi>k</mi></munder>"),
        ("(1 - beta) / (1 + beta)", '<mfrac><mrow><mn>1</mn><mo form="infix">−</mo><mi>β</mi></mrow>'),
        ("1[y = k]", '<mn>𝟙</mn><mo fence="true" form="prefix">[</mo>'),
        ("sqrt(p)", "<msqrt><mi>p</mi></msqrt>"),
    ],
)
def test_a_formula_is_drawn_as_it_would_be_written(formula, drawn):
    assert drawn in TYPESET["typeset"](formula)


def test_words_are_no_formula():
    assert TYPESET["typeset"]("one number with a sign: 15 bins (empty ones too)") == (
        "one number with a sign: 15 bins (empty ones too)"
    )


def test_measured_numbers_are_the_rows_of_the_results():
    lines = (ROOT / "benchmarks/results/resplits/resplits.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| dac |")]
    assert len(rows) >= 2  # of 16 and of 50 epochs, and of other data
    page = SITE["method_page"]("calibrators", registry_of("calibrators").get("dac"))
    assert any(row in page for row in rows)
    assert "| logistic |" in SITE["method_page"]("calibrators", registry_of("calibrators").get("second_opinion"))


def test_facts_of_a_method_are_sentences_without_the_words_of_the_code():
    said = {word: " ".join(SITE["facts_of"](registry_of("metrics").get(word))) for word in ("ece", "aurc", "kde_ece")}
    assert said["ece"].startswith(
        "Average gap between confidence and accuracy over bins of equal width. Lower is better."
    )
    assert "times 1,000" in said["aurc"]
    assert "probability of every class" in said["kde_ece"]
    shown = [fact for family in FAMILIES for method in registry_of(family) for fact in SITE["facts_of"](method)]
    assert not re.search(r": (yes|no)\b|digits|argmax|_\w+:", " ".join(shown))
    known = {
        (name, value)
        for family in FAMILIES
        for method in registry_of(family)
        for name, value in {"all_probabilities": True, **method.spec.as_dict()}.items()
        if isinstance(value, (str, bool))
    }
    assert set(SITE["FACTS"]) <= known  # no sentence that is never said


def test_limits_of_options_have_all_their_digits():
    limits = {
        SITE["limits_of"](method, option)
        for family in FAMILIES
        for method in registry_of(family)
        for option in method.options
    }
    assert not any(re.search(r"\de[+-]?\d|inf", limit) for limit in limits if "`" not in limit)
    assert {"1 to 1,000,000", "above 0", "at least 0, below 1", "`newton`, `grid`"} <= limits


def fit_all(words: "dict[str, tuple[int, ...]]", *, weights: "list[float] | None" = None, seed: int = 0) -> "str":
    """Fit a*b of <all>, not `a*b`.

    Args:
        words: the first [line]
            and its second.
        weights: of samples.
        **options: those of the method.

    Returns:
        What it is.

    Example:
        >>> 1 + 1
        2
    """


def test_the_reference_shows_arguments_as_a_list_and_long_signatures_on_several_lines():
    assert SITE["signature_of"](fit_all) == (
        "(\n    words: dict[str, tuple[int, ...]],\n    *,\n    weights: list[float] | None = None,\n"
        "    seed: int = 0,\n) -> str"
    )
    shown = "\n".join(SITE["documented"](inspect.getdoc(fit_all)))
    assert shown.startswith("Fit a\\*b of \\<all\\>, not `a*b`.\n")  # no word is markup
    assert "- `words`: the first \\[line\\] and its second.\n- `weights`: of samples.\n- `**options`: " in shown
    assert "**Returns**\n\nWhat it is.\n" in shown
    assert "```pycon\n>>> 1 + 1\n2\n```" in shown


@pytest.mark.parametrize("name", SITE["MODULES"])
def test_the_reference_says_all_that_its_docstrings_say(name):
    page = SITE["reference_page"](name)
    words, page = re.findall(r"^## (\w+)$", page, re.M), re.sub(r"^```\w*$", "", page, flags=re.M)
    page = re.sub(r"[^A-Za-zÀ-ÿ0-9]", "", page)
    module = import_module(name)
    for word in words:
        doc = re.sub(r"^Example:$", "", inspect.getdoc(getattr(module, word)) or "", flags=re.M)
        assert re.sub(r"[^A-Za-zÀ-ÿ0-9]", "", doc) in page, word


def test_words_of_methods_in_overviews_lead_to_their_pages():
    pages = {
        name: SITE["with_method_links"]((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"), headings)
        for name, headings in SITE["OVERVIEWS"].items()
    }
    for family in FAMILIES:
        for method in registry_of(family):
            place = SITE["method_place"](family, method.word)
            assert f"[`{method.word}`](../{place})" in pages["methods"], (family, method.word)
            if family == "metrics":
                assert f"| [`{method.word}`](../{place}) |" in pages["metrics"]
    chosen = pages["which_method"]
    for place in ("calibrators/temperature", "sets/lac", "trust/mcp", "losses/adafocal", "difficulty/rmd"):
        assert f"](../methods/{place}.md)" in chosen, place
    assert 'by="class"`, `by=' in chosen  # options stay as they are


def test_a_value_stays_beside_its_spread():
    assert SITE["with_known_links"]("| 0.2164 ± 0.0058 | 2.07 → 0.49 | a → b |") == (
        "| 0.2164\u00a0±\u00a00.0058 | 2.07\u00a0→\u00a00.49 | a → b |"
    )


def test_a_cell_keeps_sizes_and_units_together_and_code_its_spaces():
    assert SITE["with_known_links"]("| 50,000 x 1,000 | 306.7 ms | 7 MB; 3 % |") == (
        "| 50,000\u00a0x\u00a01,000 | 306.7\u00a0ms | 7\u00a0MB; 3\u00a0% |"
    )
    assert SITE["with_known_links"]("x = 5 % 2\n    sleep 3 ms") == "x = 5 % 2\n    sleep 3 ms"


def test_a_page_that_would_ask_another_server_is_found(tmp_path):
    (tmp_path / "good.html").write_text(
        '<a href="https://example.org">read</a> <img src="a.png"> <script src="../b.js"></script> <code>https://x.y</code>'
    )
    assert SITE["requests_elsewhere"](tmp_path) == []
    for bad in (
        '<script async src="https://cdn.example.org/x.js">',
        '<link rel="stylesheet" href="//fonts.example.org/css">',
        "<img alt='' src='http://example.org/a.png'>",
        "<style>a { background: url(https://example.org/a.png) }</style>",
    ):
        (tmp_path / "bad.html").write_text(bad)
        assert len(SITE["requests_elsewhere"](tmp_path)) == 1, bad


def test_every_guide_of_the_menu_is_a_page():
    assert all((ROOT / "docs" / f"{name}.md").exists() for name in SITE["GUIDES"].values())


def test_every_page_of_results_that_the_site_reads_is_there():
    assert all((SITE["RESULTS"] / page).exists() for pages in SITE["MEASURED"].values() for page in pages)
    assert all((SITE["RESULTS"] / f"{name}.md").exists() for name in SITE["SPEED"].values())


def test_the_tutorials_are_eight_and_the_page_names_them():
    page = (ROOT / "docs" / "tutorials.md").read_text(encoding="utf-8")
    assert len(TUTORIALS) == 8
    for path in TUTORIALS:
        assert f"`tutorials/{path.name}`" in page
        assert "```python" in SITE["tutorial_page"](path, run=False)


@pytest.mark.slow
@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default")
def test_a_tutorial_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))
    page = SITE["tutorial_page"](path)
    assert "```text" in page or "Not run here" in page


def test_methods_and_guides_count_more_in_the_search_than_pages_of_figures(tmp_path):
    pages = ["methods/sets/aps.md", "docs/sets.md", "tutorials/1.md", "docs/errata.md", "benchmarks/results/sets.md"]
    for page in pages:
        SITE["write"](tmp_path / page, "# aps\n")
    SITE["rank"](tmp_path)
    found = [re.search(r"boost: (\S+)", (tmp_path / page).read_text()) for page in pages]
    counts = [1.0 if boost is None else float(boost[1]) for boost in found]
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) == len(counts)
    assert all((tmp_path / page).read_text().endswith("# aps\n") for page in pages)
    assert "multilabel" in re.split(SITE["WORDS_END"], "of `Predictions.multilabel(logits)`")
