"""What a page tells to type is understood: every command of the pages and of the verbs' examples, every config."""

import argparse
import pkgutil
import re
import runpy
import shlex
import textwrap
from importlib import import_module
from pathlib import Path

import pytest
import torch
import yaml

import confide
from confide.cli.main import VERBS
from confide.config import load_config
from confide.metrics import METRICS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands_of(text):
    """Lines that begin with `confide VERB` or `python -m benchmarks`, without what is said about them beside."""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if found := re.match(r"\s*(?:confide |python -m (benchmarks)(?![.\w]))([a-z-]*)(.*)", line):
            bench, verb, rest = found.groups()
            verb = bench or verb
            yield verb, re.split(r"\s#|\s{3,}(?=\S+ \S+ )", rest)[0]


def understood(verb, rest):
    assert verb in (*VERBS, "benchmarks")
    place = "benchmarks.__main__" if verb == "benchmarks" else f"confide.cli.{verb.replace('-', '_')}"
    module = import_module(place)
    parser = argparse.ArgumentParser(exit_on_error=False)
    module.configure(parser)
    for flag in ("--json", "--quiet"):
        parser.add_argument(flag, action="store_true")
    try:
        parser.parse_args(shlex.split(rest))
    except (SystemExit, argparse.ArgumentError) as error:
        pytest.fail(f"confide {verb}{rest}: {error}")


def test_the_metric_that_a_page_adds_is_shown_with_its_unit(monkeypatch, capsys):
    monkeypatch.setattr(METRICS, "_methods", dict(METRICS._methods))
    text = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    (block,) = [one for one in re.findall(r"```python\n(.*?)```", text, re.S) if "@metric(" in one]
    exec(block, {"confide": confide, "p": confide.Predictions([[2.0, 0.0], [0.0, 1.0]], [0, 0])})
    assert capsys.readouterr().out == "Error rate %\n"


@pytest.mark.parametrize("page", ["answers.md", "multilabel.md", "dense.md"])
def test_the_example_of_a_kind_of_predictions_prints_what_its_page_says(page, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    block, *_ = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.S)
    exec(compile(block, page, "exec"), {})
    assert capsys.readouterr().out.splitlines() == re.findall(r"^# (.*)$", block, re.M)


@pytest.mark.parametrize("page", ["docs/methods.md", "docs/metrics.md"])
def test_the_tables_of_methods_are_those_of_the_registries(page):
    tool = runpy.run_path(str(ROOT / "tools/write_method_table.py"))
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "made by tools/write_method_table.py" in text
    assert tool["renewed"](text) == text, f"run: python tools/write_method_table.py {page}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_is_understood(page):
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:\w*)\n(.*?)```", text, re.S) + re.findall(r"^(?: {4}.*\n)+", text, re.M)
    # Within a sentence an option alone may be named; N stands for a number.
    spoken = re.findall(r"`(confide [a-z-]+ [^-`][^`]*)`", text)
    for verb, rest in commands_of("\n".join([*blocks, *(one for one in spoken if "..." not in one)])):
        understood(verb, re.sub(r"\bN\b", "2", rest))


@pytest.mark.parametrize("verb", VERBS)
def test_every_example_of_a_verb_is_understood(verb):
    example = import_module(f"confide.cli.{verb.replace('-', '_')}").EXAMPLE
    found = list(commands_of(example))
    assert found
    for one, rest in found:
        assert one == verb
        understood(one, rest)


def test_the_experiment_of_the_training_page_is_a_config():
    (text,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "training.md").read_text(encoding="utf-8"), re.S)
    written = yaml.safe_load(text)
    config = load_config(written)
    assert set(written) == set(config.as_dict())
    assert [loss.name for loss in config.losses] == ["cross_entropy", "focal 2"]


@pytest.mark.parametrize(
    ("page", "first"), [("CONTRIBUTING.md", '   """My loss."""'), ("docs/losses.md", '@loss("mine"')]
)
def test_the_loss_that_a_page_adds_trains(monkeypatch, page, first):
    # A registered word would stay for the tests that loop over the registry.
    monkeypatch.setattr(confide.losses.LOSSES, "_methods", dict(confide.losses.LOSSES._methods))
    text = (ROOT / page).read_text(encoding="utf-8")
    (block,) = [one for one in re.findall(r"```python\n(.*?)```", text, re.S) if first in one]
    code = textwrap.dedent(re.sub(r"^fit\(.*\n", "", block, flags=re.M))
    exec(compile(code, page, "exec"), {"__name__": "own"})
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)).requires_grad_()
    confide.losses.create("mine", strength=2.0)(logits, torch.tensor([0, 1, 2, 0, 1, 2])).backward()
    assert torch.isfinite(logits.grad).all()
    assert logits.grad.abs().sum() > 0
    assert "mine" in confide.losses.names()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page):
    for place, anchor in re.findall(r"\]\(([^)#\s]+)#?([^)\s]*)\)", page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", place):
            continue
        target = page.parent / place
        assert target.exists(), place
        if anchor:
            heads = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.M)
            assert anchor in {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}, (place, anchor)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_exists(page):
    text = page.read_text(encoding="utf-8")
    for place in re.findall(r"`((?:confide|benchmarks|tests|docs|tools)/[\w./*-]+)`", text):
        # A name with capitals such as pN_*.py stands for several files.
        pattern = re.sub(r"[A-Z]+", "*", place.rstrip("/")) if "*" in place else place.rstrip("/")
        assert list(ROOT.glob(pattern)), place


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_of_the_package_that_a_page_uses_exists(page):
    for name in set(re.findall(r"\bconfide(?:\.[A-Za-z_]+)+\b", page.read_text(encoding="utf-8"))) - {
        "confide.losses.mine"
    }:
        assert pkgutil.resolve_name(name) is not None, name


def test_the_tree_of_the_architecture_is_the_tree():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^  ([a-z_]+(?:\.py|/))", text, re.M)) | set(re.findall(r"\b([a-z]+\.py)[,:]", text))
    there = {p.name + "/" * p.is_dir() for p in (ROOT / "confide").iterdir() if not p.name.startswith("_")} - {
        "py.typed"
    }
    assert there <= named
    assert {name for name in named if name.endswith("/")} <= there


def test_the_graph_of_the_architecture_is_the_one_that_imports_are_held_to():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = re.search(r"## Who imports whom\n\n```\n(.*?)```", text, re.S)[1].splitlines()
    contract = re.search(r"\nlayers = \[\n(.*?)\n\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.S)[1]
    layers = [set(re.findall(r"\w+", line)) for line in contract.splitlines()]
    assert [set(re.findall(r"\w+", line)) for line in drawn] == layers


def test_the_architecture_names_the_function_of_every_verb():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = re.search(r"## What a verb calls\n(.*?)\n## ", text, re.S)[1]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    assert {verb for verbs, _ in rows for verb in re.findall(r"`([a-z-]+)`", verbs)} == set(VERBS) - {
        "completion",
        "doctor",
        "list",
    }
    assert all("`confide." in called for _, called in rows)


RESULTS = ROOT / "benchmarks" / "results"
FIGURE = re.compile(r"(?<![\w.,])(\d*\.\d+|\d+(?= ?(?:%|points)))(?![\w.]) ?(%|points|GB|ms)?")
SCALES = {"%": (1, 100), "points": (1, 100), "GB": (1, 1e-3), "ms": (1, 1e3, 1e-3)}
"""What a page may have done to a number of the results to give it this unit."""
GUARDED = [page for page in PAGES if "benchmarks/results" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", GUARDED, ids=lambda page: page.name)
def test_a_figure_beside_a_link_to_results_stands_there(page):
    text = page.read_text(encoding="utf-8")
    typed = re.sub(r"<!-- made by.*?<!-- /made -->|^```.*?^```$", "", text, flags=re.S | re.M)
    for paragraph in re.split(r"\n\s*\n|\n(?=[|*-])", typed):
        pages = [RESULTS / name for name in re.findall(r"benchmarks/results/([\w/]+\.md)", paragraph)]
        numbers = re.findall(r"\.?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?", "\n".join(map(Path.read_text, pages)))
        there = [float(number.rstrip(",").replace(",", "")) for number in numbers]
        for figure, unit in FIGURE.findall(re.sub(r"\]\([^()]*\)|`[^`]*`", "", paragraph)) if pages else ():
            half = 0.5000001 * 10.0 ** -len(figure.partition(".")[2])
            near = any(abs(n * scale - float(figure)) <= half for n in there for scale in SCALES.get(unit, (1,)))
            assert near, f"{figure} {unit} is not in {', '.join(p.name for p in pages)}"
