"""Every calibration error on a page stands beside what a perfectly calibrated model would show."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

import numpy as np
import torch

from confide import Predictions, evaluate
from confide.cli.result_tables import run_table
from confide.cli.shift import shift_tables
from confide.evaluation import Subject, shift_grid
from confide.records import Split
from confide.report import notebook_view, render_report
from confide.results import Evaluation, join

NAMED = re.compile(r"\bECE\b|calibration error", re.I)
LEVEL = re.compile(r"chance|perfectly calibrated", re.I)
VOID = {"br", "circle", "col", "hr", "img", "input", "line", "link", "meta", "path", "rect"}
BLOCKS = {"figure", "table", "dl", "p", "li", "h1", "h2", "h3"}


@dataclass
class Node:
    """An element of a page; its label counts as text."""

    tag: str
    classes: set[str]
    parts: list[Node | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        if self.tag in ("script", "style") or "tip" in self.classes:
            return ""
        return " ".join(part if isinstance(part, str) else part.text for part in self.parts)

    @property
    def is_block(self) -> bool:
        """What is read as one: a figure with its titles, a table, a sentence, a tile."""
        return self.tag in BLOCKS

    def blocks(self) -> list[Node]:
        """The outermost blocks of a page, and tiles, which are plain boxes around a heading."""
        heads = [part for part in self.parts if isinstance(part, Node) and part.tag == "h2"]
        if self.is_block or (heads and self.tag == "div"):
            return [self]
        return [block for part in self.parts if isinstance(part, Node) for block in part.blocks()]


class Tree(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.stack = [Node("root", set())]
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        node = Node(tag, set((named.get("class") or "").split()), [named.get("aria-label") or ""])
        self.stack[-1].parts.append(node)
        if tag not in VOID:
            self.stack.append(node)

    def handle_endtag(self, tag: str) -> None:
        while len(self.stack) > 1 and tag in {node.tag for node in self.stack}:
            if self.stack.pop().tag == tag:
                break

    def handle_data(self, data: str) -> None:
        self.stack[-1].parts.append(data)


def without_level(page: str) -> list[str]:
    """Blocks of a page that show a calibration error and do not say what chance would show."""
    blocks = [" ".join(block.text.split()) for block in Tree(page).stack[0].blocks()]
    return [text[:160] for text in blocks if NAMED.search(text) and re.search(r"\d", text) and not LEVEL.search(text)]


def drawn(n: int = 400, seed: int = 0) -> Predictions:
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, 4, generator=draw, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(1), 1, generator=draw)[:, 0]
    return Predictions(2 * logits, labels, columns={"site": np.arange(n) % 3})


def test_the_walk_finds_an_error_without_its_chance_level():
    assert without_level("<figure><h3>ECE by epoch</h3><svg aria-label='from 3.1 to 2.0'></svg></figure>")
    assert without_level("<div><h2>Calibration error</h2><p>3.1 points</p></div>")
    assert not without_level("<figure><h3>ECE by epoch</h3><p>3.1, by chance 1.2</p></figure>")


def test_every_calibration_error_of_a_page_has_its_chance_level(evaluation):
    pages = {
        "everything": render_report(evaluation),
        "all metrics, by group": render_report(evaluate(drawn(), "all", by=["class", "site"])),
        "two runs": render_report(join([evaluate(drawn(seed=k), model=f"run {k}") for k in range(2)])),
        "a notebook": notebook_view(evaluate(drawn())),
    }
    assert {name: without_level(page) for name, page in pages.items()} == {name: [] for name in pages}


def test_a_page_without_intervals_says_that_no_chance_level_was_measured(evaluation):
    plain = replace(
        evaluation,
        measurements=tuple(replace(m, chance=None, chance_high=None, p_value=None) for m in evaluation.measurements),
        curves=tuple(
            replace(c, columns={k: v for k, v in c.columns.items() if not k.endswith("by_chance")})
            for c in evaluation.curves
        ),
    )
    page = render_report(plain)
    assert "the log has no chance level" in page
    assert "chance level not measured" in page


class Steady:
    """A trust predictor that says 90 % of every prediction."""

    scale = "probability"

    def __call__(self, predictions: Predictions, features: object) -> np.ndarray:
        return np.full(len(predictions), 0.9)


def shifted() -> Evaluation:
    """Two corruptions of sixty images whose class is the brightest channel, at two stages, with a trust predictor."""
    draw, labels = np.random.default_rng(0), np.arange(60) % 3
    images = draw.integers(90, 130, (60, 3, 32, 32), dtype=np.uint8)
    images[np.arange(60), labels] += 25

    def by_channel(batch: torch.Tensor) -> tuple[torch.Tensor, None]:
        return 60 * batch.float().mean(dim=(2, 3)) / 255, None

    def halved(predictions: Predictions) -> Predictions:
        return predictions.with_logits(predictions.logits / 2)

    subject = Subject(by_channel, {"half": halved}, {"steady": Steady()}, identity="one")
    split = Split(images, labels, np.array([f"image-{i}" for i in range(60)]))
    return shift_grid(split, {"a": subject}, words=["fog", "impulse_noise"], severities=(1, 5))


def test_errors_under_shift_have_the_chance_level_of_their_own_cells():
    found = shifted()
    cells = [m for m in found.measurements if m.metric == "ece" and (m.group or "").startswith("shift=")]
    assert all(m.chance is not None for m in cells)
    assert all(
        (m.chance_high is None) == (m.group in ("shift=mean", "shift=severity 1", "shift=severity 5")) for m in cells
    )
    page = render_report(found)
    assert without_level(page) == []
    for score in (None, "trust:steady"):
        own = [m for m in cells if m.chance_high is not None and (m.score == score or (score is None and m.plain))]
        last = max(m.chance_high for m in own if m.stage == ("raw" if score else "half"))
        assert f"by chance up to {100 * last:.1f} points" in page


def test_tables_of_shift_and_of_a_run_print_the_chance_level_beside_the_error():
    shift = "\n".join(shift_tables(shifted()))
    assert "in brackets: what perfectly calibrated models would show by chance" in shift
    for line in shift.splitlines():
        if line.split()[1:2] == ["ece"]:
            assert line.count("(") == 3, line
    run = run_table(evaluate(drawn()))
    assert re.search(r"±\d+\.\d \(\d+\.\d\)\*", run), run
