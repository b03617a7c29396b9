"""The site: what is in docs/, a page for every method, the tutorials with what they print, results, and a reference.

python tools/site.py build/site            # needs the extra `docs`; `make docs` does it
python tools/site.py build/site --quick    # without running the tutorials and the demo

Everything is gathered into a folder beside the target, with the links of the repository, and handed to mkdocs, which
stops at a link that leads nowhere. Numbers come from benchmarks/results; a method without any is "not measured".
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from confide.cli.list import FAMILIES, registry_of
from confide.registry import ADVICE, Interval, Method

sys.path.insert(0, str(Path(__file__).parent))
from snapshot import record
from typeset import typeset

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"

# Measured quality and cost: rows of result pages whose first cell is the method's word.

MEASURED = {
    "losses": ("papers/main.md", "losses_cpu.md", "losses_h200.md", "training.md"),
    "difficulty": ("people.md", "difficulty.md"),
    "calibrators": ("resplits/resplits.md", "second_opinion.md", "resplits/travelling.md", "calibrators.md"),
    "trust": ("trust_cifar10.md", "trust_text.md", "trust_speed.md"),
    "sets": ("sets_validity.md", "sets_speed.md"),
    "metrics": ("coverage.md", "metrics.md"),
    "shift": ("shift_cifar10.md", "shift_speed.md"),
}
"""Family -> pages of results, relative to benchmarks/results."""
ROWS = {
    ("calibrators", "second_opinion"): ("gaussian", "gaussian, classes kept", "logistic", "knn"),
    ("calibrators", "travelling"): ("batch", "sample"),
}
"""Methods whose rows are called otherwise: one for each of their options."""
MOST_TABLES = 4
WITHOUT_FORMULA = ("features", "models", "data")


@dataclass(frozen=True)
class ResultTable:
    """A table of a page of results, or some of its rows, under the heading that it has there."""

    page: str
    heading: str
    head: str
    rule: str
    rows: tuple[str, ...]


def tables_of(page: str) -> Iterator[ResultTable]:
    """Every table of a page of results."""
    block: list[str] = []
    heading = ""
    for line in [*(RESULTS / page).read_text(encoding="utf-8").splitlines(), ""]:
        if line.startswith("|"):
            block.append(line)
        elif block:
            if len(block) > 2 and re.fullmatch(r"[|\s:-]+", block[1]):
                yield ResultTable(page, heading, block[0], block[1], tuple(block[2:]))
            block = []
        if line.startswith("#"):
            heading = line.lstrip("# ")


def measured(family: str, word: str) -> list[ResultTable]:
    """What the results say of a method."""
    names = "|".join(map(re.escape, ROWS.get((family, word), (word,))))
    about = re.compile(rf"\|\s*`?(?:{names})`?\s*\|")
    several = []
    for page in MEASURED.get(family, ()):
        for table in tables_of(page):
            if rows := tuple(row for row in table.rows if about.match(row)):
                several.append(replace(table, rows=rows))
    return several[:MOST_TABLES]


# A page for every method, from its registry.


def options_table(method: Method[Any], known: dict[str, str]) -> list[str]:
    """A row for each option; where the registry knows limits of any, a column of them."""
    limits = {option: limits_of(method, option) for option in method.options}
    head = ["option", "default", *(["values"] if any(limits.values()) else []), "meaning"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for option, default in method.options.items():
        cells = [f"`{option}`", f"`{default!r}`", known.get(option, "").replace("|", "\\|")]
        if "values" in head:
            cells.insert(2, limits[option])
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def limits_of(method: Method[Any], option: str) -> str:
    """Where the values of an option lie, as the registry checks it."""
    choices = getattr(method.spec, "choices", {}).get(option)
    if choices:
        return ", ".join(f"`{value}`" for value in choices)
    if isinstance(method.options[option], bool):
        return "`True`, `False`"
    if option not in (ranges := getattr(method.spec, "ranges", {})):
        return ""
    interval = Interval(*ranges[option])
    # A limit that only keeps numbers finite is none to a reader.
    low, high = (None if abs(limit) >= 1e9 else limit for limit in interval[:2])
    low_word, high_word = "above " if interval.low_open else "at least ", "below " if interval.high_open else "at most "
    if low is None or high is None:
        ends = (
            [low_word + readable(low)] if low is not None else [high_word + readable(high)] if high is not None else []
        )
        return "".join(ends) or "any"
    if interval.low_open or interval.high_open:
        return f"{low_word}{readable(low)}, {high_word}{readable(high)}"
    return f"{readable(low)} to {readable(high)}"


def readable(number: float) -> str:
    """A limit with all its digits: 1,000,000 and 0.000001."""
    text = f"{number:,.12f}".rstrip("0").rstrip(".")
    return text.replace("-", "−")


def parts_of(doc: str) -> tuple[str, str, dict[str, str]]:
    """First line, the text before the sections, and the sections of a docstring."""
    first, _, rest = doc.partition("\n")
    pieces = re.split(r"^(Args|Returns|Raises|Example|Attributes):\s*$", rest, flags=re.M)
    return first, pieces[0].strip(), dict(zip(pieces[1::2], pieces[2::2], strict=True))


def arguments_of(section: str) -> dict[str, str]:
    """Argument -> what it means."""
    pairs = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section, re.M)
    return {name: re.sub(r"\s+", " ", text) for name, text in pairs}


def example_of(section: str) -> str:
    lines = [line[4:] for line in section.strip("\n").splitlines()]
    return "```pycon\n" + "\n".join(lines).rstrip() + "\n```"


def method_page(family: str, method: Method[Any]) -> str:
    """Formula, when to use it, paper, options, what was measured, an example."""
    first, text, sections = parts_of(inspect.getdoc(method.function) or method.summary)
    advice = method.advice
    own = [part for part in re.split(r"\n\s*\n", text) if part and not part.startswith(ADVICE)]
    what = escape(first) if family in WITHOUT_FORMULA else typeset(first)
    lines = [f"# {method.word}", "", f'<div class="formula">{what}</div>', ""]
    lines += [re.sub(r"\n(?=\S)", " ", part) + "\n" for part in own]
    lines += facts_of(method)
    if advice.when:
        lines += [f"**When to use it.** {sentence(advice.when)}", "", f"**When not.** {sentence(advice.when_not)}", ""]
    lines += [f"**Paper.** {method.paper}.", ""]
    if advice.differs:
        lines += [f"**Differs from** {advice.differs}".replace("the errata", "[the errata](../../docs/errata.md)"), ""]
    elif family not in WITHOUT_FORMULA and not method.paper.startswith("Confide"):
        lines += ["**Differs from the paper:** in nothing that is known.", ""]
    if method.options:
        lines += ["## Options", "", *options_table(method, arguments_of(sections.get("Args", ""))), ""]
    if family == "losses" and method.needs:
        lines += [f"With every batch it needs {', '.join(f'`{need}`' for need in method.needs)}.", ""]
    lines += ["## Measured", ""]
    results = measured(family, method.word)
    if not results:
        lines += ["Not measured.", ""]
    for result in results:
        source = f"../../benchmarks/results/{result.page}"
        lines += [f"**{result.heading}** ([{result.page}]({source}) says how):", ""]
        lines += [result.head, result.rule, *result.rows, ""]
    if "Example" in sections:
        lines += ["## Example", "", example_of(sections["Example"]), ""]
    return "\n".join(lines)


def sentence(text: str) -> str:
    """A line of advice as a sentence; words of methods stay small."""
    return text[0].upper() + text[1:]


# What a spec says to a reader. What only the library needs of it, such as how an interval is drawn, is not here.
FACTS: dict[tuple[str, Any], str] = {
    ("soft", True): "Takes soft labels too.",
    ("batch", True): "The value of a sample depends on its batch.",
    ("stateful", True): "Keeps a state from batch to batch: make it once for a training.",
    ("keeps_argmax", True): "Predicted classes stay.",
    ("keeps_argmax", False): "Predicted classes may change.",
    ("yields", "logits"): "Gives logits.",
    ("yields", "probabilities"): "Gives probabilities.",
    ("wants", "features"): "Needs features of the samples.",
    ("wants", "features if given"): "Uses features where there are some.",
    ("wants", "opinions"): "Needs features of the samples, or a second model's outputs.",
    ("wants", "members"): "Needs several predictions of each sample.",
    ("whole", True): "Looks at all samples of a call together.",
    ("trained", False): "Nothing is fitted.",
    ("learns_errors", True): "Learns from the errors that the model makes.",
    ("fit_on", "training"): "Best fitted on training samples.",
    ("target", "correct"): "Learns whether a prediction is right.",
    ("target", "p_true"): "Learns the probability of the true class.",
    ("source", "features"): "Made from features.",
    ("source", "log"): "Made from a training log.",
    ("label_free", True): "The labels of the samples that it scores are not looked at.",
    ("labels", False): "Needs no labels.",
    ("better", "higher"): "Higher is better.",
    ("better", "lower"): "Lower is better.",
    ("all_probabilities", True): "Needs the probability of every class.",
    ("unit", "%"): "Shown in %.",
    ("unit", "pts"): "Shown in points.",
    ("unit", "nats"): "Shown in nats.",
    ("unit", "× 1000"): "Shown times 1,000.",
    ("of_class", True): "Looks at one class against the rest.",
    ("kind", "image"): "For images.",
    ("kind", "text"): "For text.",
    ("kind", "benchmark"): "One of the 15 corruptions of the benchmark.",
    ("kind", "extra"): "One of the corruptions that the benchmark's authors added.",
    ("kind", "domain"): "Another style of the same picture.",
    ("colour", True): "Needs three channels.",
}
"""Field of a spec and its value -> a sentence."""


def facts_of(method: Method[Any]) -> list[str]:
    """What the family says of a method, in sentences."""
    facts = method.spec.as_dict()
    if method.family == "metric" and facts.pop("whole", False):  # of a metric it means another thing
        facts["all_probabilities"] = True
    said = [facts["meaning"]] if "meaning" in facts else []
    plain = {name: value for name, value in facts.items() if isinstance(value, (str, bool))}
    said += [FACTS[fact] for fact in plain.items() if fact in FACTS]
    if isinstance(kept := facts.get("keeps_argmax"), tuple):
        said.append(f"Predicted classes stay with `{kept[0]}={kept[1]!r}`.")
    return [" ".join(said), ""] if said else []


# The tutorials, cell by cell, with what they print.


def cells_of(source: str) -> tuple[str, list[tuple[str, str]]]:
    """The docstring, and (title, code) of every cell."""
    doc = re.match(r'"""(.*?)"""\n', source, re.S)
    assert doc is not None
    cells = re.split(r"^# %% ?(.*)\n", source[doc.end() :], flags=re.M)
    return doc[1].strip(), list(zip(cells[1::2], (code.strip("\n") for code in cells[2::2]), strict=True))


def tutorial_page(path: Path, *, run: bool = True) -> str:
    """A tutorial as a page; one whose packages are missing is shown without output, and says so."""
    doc, cells = cells_of(path.read_text(encoding="utf-8"))
    title, _, text = doc.partition("\n")
    lines = [f"# {title.rstrip('.')}", "", text.strip(), "", f"The script: `tutorials/{path.name}`.", ""]
    space: dict[str, Any] = {"__name__": "__main__"}
    for head, code in cells:
        lines += [f"## {head.partition(':')[0].rstrip('.')}" if len(head) < 50 else f"**{head}**", ""]
        lines += ["```python", code, "```", ""]
        if run:
            output = io.StringIO()
            try:
                with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
                    exec(compile(code, str(path), "exec"), space)
            except ModuleNotFoundError as error:
                run = False
                lines += [f"*Not run here: {error}.*", ""]
            if printed := output.getvalue().rstrip():
                lines += ["```text", printed, "```", ""]
    return "\n".join(lines)


# The reference, from docstrings.

MODULES = (
    *("confide", "confide.metrics", "confide.calibrators", "confide.sets", "confide.decisions", "confide.trust"),
    *("confide.difficulty", "confide.losses", "confide.training", "confide.features", "confide.models", "confide.data"),
    *("confide.evaluation", "confide.monitor", "confide.answers", "confide.plot", "confide.shift"),
)


def reference_page(name: str) -> str:
    """Every public function and class of a module that has no page of its own."""
    module = import_module(name)
    methods = {method.function for family in FAMILIES for method in registry_of(family)}
    lines = [f"# {name}", "", (inspect.getdoc(module) or "").replace(" -> ", " → "), ""]
    for word in sorted(set(getattr(module, "__all__", None) or dir(module))):
        if word.startswith("_"):
            continue
        thing = getattr(module, word)
        if not (inspect.isfunction(thing) or inspect.isclass(thing)) or thing in methods:
            continue
        if not (thing.__module__ or "").startswith("confide"):
            continue
        lines += [f"## {word}", "", "```python", f"{word}{signature_of(thing)}", "```", ""]
        lines += documented(inspect.getdoc(thing) or "")
    return "\n".join(lines)


def documented(doc: str) -> list[str]:
    """A docstring as text: its arguments as a list, its example as code."""
    first, text, sections = parts_of(doc)
    lines = [prose(first), ""]
    if text:
        # What is indented in a docstring is code or a table of words: as it stands.
        lines += ["```text", text, "```", ""] if re.search(r"^ {2,}\S", text, re.M) else [prose(text), ""]
    for title, section in sections.items():
        if title == "Example":
            lines += [example_of(section), ""]
            continue
        entries = re.findall(r"^ {4}(\*{0,2}\w[\w, *]*): (.*(?:\n {8}.*)*)", section, re.M)
        listed = title in ("Args", "Attributes", "Raises")
        if listed and len(entries) == len(re.findall(r"^ {4}\S", section, re.M)):
            lines += [f"**{title}**", "", *(f"- `{name}`: {prose(meaning)}" for name, meaning in entries), ""]
        else:
            lines += [f"**{title}**", "", prose(section), ""]
    return lines


def prose(text: str) -> str:
    """Words of a docstring as markdown, paragraphs kept: no sign of theirs is markup but the backtick."""
    paragraphs = (re.sub(r"\s+", " ", part).strip() for part in re.split(r"\n\s*\n", text.strip()))
    pieces = (re.split(r"(`[^`]*`)", part) for part in paragraphs)
    marked = re.compile(r"([\\*_\[\]<>#|])")
    return "\n\n".join("".join(p if p[:1] == "`" else marked.sub(r"\\\1", p) for p in piece) for piece in pieces)


WIDEST_SIGNATURE = 88


def signature_of(thing: Any) -> str:
    """On one line, or an argument a line; annotations as they are written."""
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return "(...)"
    line = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(signature))
    if inspect.isclass(thing):
        line = line.removesuffix(" -> None")
    if len(thing.__name__ + line) <= WIDEST_SIGNATURE:
        return line
    marks = re.match(r"\((.*)\)( -> .*)?$", line, re.S)
    assert marks is not None
    parts, depth = [""], 0
    for sign in marks[1]:
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and not depth:
            parts.append("")
        else:
            parts[-1] += sign
    return "(\n" + "".join(f"    {part.strip()},\n" for part in parts) + ")" + (marks[2] or "")


# The tree of pages.

GUIDES = {
    "Evaluate": "metrics",
    "Calibrate": "calibration",
    "Decide": "decisions",
    "Prediction sets": "sets",
    "Trust": "trust",
    "Difficulty and label errors": "difficulty",
    "Train": "training",
    "Losses": "losses",
    "Shift": "shift",
    "Monitor": "monitor",
    "Explore": "explorer",
    "Scale": "scale",
    "Generated answers": "answers",
    "Several labels": "multilabel",
    "Pixels and boxes": "dense",
    "Data": "data",
    "The report": "report",
}
"""Title -> page of docs/."""
SPEED = {
    "Losses on a CPU": "losses_cpu",
    "Losses on a GPU": "losses_h200",
    "Metrics": "metrics",
    "Calibrators": "calibrators",
    "Prediction sets": "sets_speed",
    "Trust predictors": "trust_speed",
    "Difficulty": "difficulty",
    "Corruptions": "shift_speed",
}
"""Title -> page of benchmarks/results."""
SEARCHED = {"methods": 4, "docs": 3, "docs/errata.md": 0.5, "benchmarks": 0.1, "CHANGELOG.md": 0.1}
"""Folder or page -> how much a match there counts in the search, 1 elsewhere: methods and guides before figures."""
WORDS_END = r"[\s\u200b\-,:!=\[\]()\"`/]+|\.(?!\d)|&[lg]t;"
"""What parts words in the search: `Predictions.multilabel(` is found by "multilabel"."""
OVERVIEWS = {
    "methods": {},
    "metrics": {"Every metric": "metrics"},
    "which_method": {
        "A calibrator": "calibrators",
        "What may change": "calibrators",
        "A prediction set": "sets",
        "Trust in": "trust",
        "A loss": "losses",
        "A difficulty": "difficulty",
    },
}
"""Page of docs/ whose words of methods lead to their pages -> how its headings begin -> family."""
TOGETHER = re.compile(r"(?<=\d) ([±→]) (?=\d)")
IN_CELLS = re.compile(r"(?<=\d) (?:(x|×) (?=\d)|(?=(?:ms|MB|GB|%)(?:[\s;,)|]|$)))")
"""Where a table's cell does not break: within a size, and between a number and its unit."""
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


# The colours of the report: paper, ink and one accent. A table keeps its words whole and scrolls inside itself.
CSS = """:root, [data-md-color-scheme="default"] {
  --md-default-bg-color: #fff; --md-default-fg-color: #14181c; --md-default-fg-color--light: #626c76;
  --md-typeset-color: #14181c; --md-typeset-a-color: #0a6478; --md-accent-fg-color: #0a6478;
  --md-code-bg-color: #f3f5f6; --md-code-fg-color: #14181c; --md-code-hl-comment-color: #626c76;
  --md-typeset-table-color: #d8dde1;
}
[data-md-color-scheme="slate"] {
  --md-default-bg-color: #0f1316; --md-default-fg-color: #e8ebed; --md-default-fg-color--light: #909aa4;
  --md-typeset-color: #e8ebed; --md-typeset-a-color: #62bfd2; --md-accent-fg-color: #62bfd2;
  --md-code-bg-color: #181d21; --md-code-fg-color: #e8ebed; --md-code-hl-comment-color: #909aa4;
  --md-typeset-table-color: #2c343a;
}
[data-md-color-scheme] { --md-primary-fg-color: var(--md-default-bg-color);
  --md-primary-bg-color: var(--md-default-fg-color); --md-primary-bg-color--light: var(--md-default-fg-color--light);
  --md-shadow-z2: none; }
.md-header, .md-tabs { background: var(--md-default-bg-color); color: var(--md-default-fg-color); }
.md-header--shadow { box-shadow: none; }
.md-header { border-bottom: 1px solid var(--md-typeset-table-color); }
.md-tabs { border-bottom: 1px solid var(--md-default-fg-color); }
.md-tabs__link { opacity: 1; color: var(--md-default-fg-color--light); }
.md-tabs__item--active .md-tabs__link { color: var(--md-typeset-a-color); font-weight: 600; }
.md-search__form { background: var(--md-code-bg-color); }
.md-search__input, .md-search__form .md-icon { color: var(--md-default-fg-color); }
.md-search__input::placeholder { color: var(--md-default-fg-color--light); }
.md-grid { max-width: 68rem; }
.md-typeset h1, .md-typeset h2, .md-typeset h3 { color: inherit; font-weight: 600; letter-spacing: -.015em; }
.md-typeset h1 { margin-bottom: .8em; }
.md-typeset table:not([class]) { font-variant-numeric: tabular-nums lining-nums; }
.md-typeset table:not([class]) th { min-width: 0; vertical-align: bottom; }
.md-typeset table:not([class]) :is(th, td) { padding: .6em .9em; }
.md-typeset table:not([class]) code { word-break: normal; overflow-wrap: normal; }
.md-typeset .formula { margin: 1em 0; padding: .8em 1em; background: var(--md-code-bg-color); line-height: 2.2; }
.md-typeset .formula math { font-size: 1.15em; }
"""
LOGO = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" fill="none">
<style>path { stroke: #14181c } .line { stroke: #0a6478 }
@media (prefers-color-scheme: dark) { path { stroke: #e8ebed } .line { stroke: #62bfd2 } }</style>
<path d="M1 1v14h14" stroke-width="2"/><path d="M4.5 11.5L14 2" class="line" stroke-width="2.4"/></svg>
"""
"""The sign of the report, as a file: it follows the system, not the button of the page."""


def with_known_links(text: str) -> str:
    """A link to a file of the repository that is no page becomes its words; a value stays beside its spread."""

    def kept(link: re.Match[str]) -> str:
        target = link[2]
        if re.match(r"[a-z]+:", target) or target.endswith(".md"):
            return link[0]
        return f"`{link[1].strip('`')}`"

    text = TOGETHER.sub("\u00a0\\1\u00a0", LINK.sub(kept, text))
    return re.sub(r"^\|.*", lambda row: IN_CELLS.sub(unbroken, row[0]), text, flags=re.M)


def unbroken(gap: re.Match[str]) -> str:
    return f"\u00a0{gap[1]}\u00a0" if gap[1] else "\u00a0"


def with_method_links(text: str, headings: dict[str, str]) -> str:
    """Words of methods lead to their pages; their family is the first cell of the row, or what the heading is about."""
    about, lines = "", []
    for line in text.splitlines():
        if line.startswith("#"):
            title = line.lstrip("# ")
            about = next((family for head, family in headings.items() if title.startswith(head)), "")
        first = line.split("|")[1].strip() if line.startswith("|") else ""
        family = first if first in FAMILIES else about
        for word in registry_of(family).names() if family else ():
            line = re.sub(rf"(?<!\[)`{re.escape(word)}`", f"[`{word}`](../{method_place(family, word)})", line)
        lines.append(line)
    return "\n".join(lines) + "\n"


def method_place(family: str, word: str) -> str:
    """The page of a method, from the root of the site."""
    return f"methods/{family}/{word.rstrip(':')}.md"


def gather(source: Path, *, run: bool = True) -> dict[str, Any]:
    """Write all pages into a folder; returns the settings of mkdocs."""
    pages = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "ROADMAP.md")]
    pages += [*(ROOT / "docs").glob("*.md"), *RESULTS.rglob("*.md"), ROOT / "CODE_OF_CONDUCT.md"]
    for page in pages:
        target = source / page.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(with_known_links(page.read_text(encoding="utf-8")), encoding="utf-8")
    for name, headings in OVERVIEWS.items():
        page = source / "docs" / f"{name}.md"
        write(page, with_method_links(page.read_text(encoding="utf-8"), headings))
    write(source / "site.css", CSS)
    write(source / "icon.svg", LOGO)
    shutil.copytree(ROOT / "docs" / "images", source / "docs" / "images")
    for picture in RESULTS.rglob("*.png"):
        shutil.copy(picture, source / picture.relative_to(ROOT))
    live = live_of(source) if run else []
    menus = methods_of(source), tutorials_of(source, run), references_of(source)
    rank(source)
    return settings_of(source, *menus, live)


def rank(source: Path) -> None:
    """Tell the search at the head of every page how much it counts."""
    for page in source.rglob("*.md"):
        place = page.relative_to(source)
        boost = SEARCHED.get(place.as_posix(), SEARCHED.get(place.parts[0], 1))
        if boost != 1:
            page.write_text(
                f"---\nsearch:\n  boost: {boost}\n---\n{page.read_text(encoding='utf-8')}", encoding="utf-8"
            )


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def methods_of(source: Path) -> list[Any]:
    """Pages of all methods, and the menu over them."""
    menu: list[Any] = [{"All methods": "docs/methods.md"}]
    for family in FAMILIES:
        entries = []
        for method in registry_of(family):
            place = method_place(family, method.word)
            write(source / place, method_page(family, method))
            entries.append({method.word: place})
        menu.append({family.replace("-", " ").capitalize(): entries})
    return menu


def tutorials_of(source: Path, run: bool) -> list[Any]:
    """Pages of the tutorials; the pages that they write become pages of the site."""
    menu: list[Any] = [{"All tutorials": "docs/tutorials.md"}]
    before = Path.cwd()
    for path in sorted((ROOT / "tutorials").glob("*.py")):
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                page = tutorial_page(path, run=run)
            finally:
                os.chdir(before)
            for html in Path(folder).glob("*.html"):
                (source / "tutorials").mkdir(exist_ok=True)
                shutil.copy(html, source / "tutorials" / f"{path.stem}-{html.name}")
                page += f"\nThe page it wrote: [{html.name}]({path.stem}-{html.name}).\n"
        write(source / "tutorials" / f"{path.stem}.md", page)
        menu.append({page.partition("\n")[0].lstrip("# "): f"tutorials/{path.stem}.md"})
    return menu


LIVE = """# Live

[The report of the demo](../live/report.html): what `confide demo` ends with.

[The explorer on the same run](../live/index.html), read only: sort, filter by one thing at a time, open samples.
`confide explore` on a run of yours shows all of it, and keeps tags.

Both were made when this site was built, by `confide demo --epochs 2` and `tools/snapshot.py`; the demo itself trains
for 10 epochs.
"""


def live_of(source: Path) -> list[Any]:
    """The report of a short demo and a snapshot of its explorer, which work without a server of ours."""
    run = source.with_name("demo")
    command = [sys.executable, "-m", "confide", "demo", "--out", str(run), "--epochs", "2", "--quiet"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    record(run, source / "live")
    write(source / "docs" / "live.md", LIVE)
    return [{"Live": "docs/live.md"}]


def references_of(source: Path) -> list[Any]:
    menu = []
    for name in MODULES:
        write(source / "reference" / f"{name}.md", reference_page(name))
        menu.append({name: f"reference/{name}.md"})
    return menu


def settings_of(
    source: Path, methods: list[Any], tutorials: list[Any], reference: list[Any], live: list[Any]
) -> dict[str, Any]:
    """The settings of mkdocs: nothing is fetched from elsewhere."""
    guides = [{title: f"docs/{name}.md"} for title, name in GUIDES.items()]
    start = [
        {"Confide": "README.md"},
        {"Five minutes": "docs/start.md"},
        {"Which method": "docs/which_method.md"},
        *live,
    ]
    results = [
        {"Findings": "docs/findings.md"},
        {"Verdicts on the papers": "benchmarks/results/papers/verdicts.md"},
        {"All losses": "benchmarks/results/papers/main.md"},
        {"Five splits of CIFAR-10": "benchmarks/results/resplits/resplits.md"},
        {"Speed": [{title: f"benchmarks/results/{name}.md"} for title, name in SPEED.items()]},
        {"Errata of the papers": "docs/errata.md"},
    ]
    about = ["docs/architecture.md", "docs/bench.md", "CONTRIBUTING.md", "ROADMAP.md", "CHANGELOG.md", "SECURITY.md"]
    colours = [
        {
            "media": f"(prefers-color-scheme: {scheme})",
            "scheme": name,
            "primary": "custom",
            "accent": "custom",
            "toggle": {"icon": icon, "name": f"to {other}"},
        }
        for scheme, name, icon, other in (
            ("light", "default", "material/weather-night", "dark"),
            ("dark", "slate", "material/weather-sunny", "light"),
        )
    ]
    return {
        "site_name": "Confide",
        "docs_dir": str(source),
        "theme": {
            "name": "material",
            "font": False,
            "favicon": "icon.svg",
            "icon": {"logo": "material/chart-line"},
            "palette": colours,
            "features": ["navigation.tabs", "navigation.indexes", "content.code.copy", "search.suggest"],
        },
        "plugins": [{"material/search": {"separator": WORDS_END}}],
        "use_directory_urls": False,
        "extra_css": ["site.css"],
        "markdown_extensions": ["tables", "admonition", "pymdownx.highlight", "pymdownx.superfences"],
        "validation": {"links": {"not_found": "warn", "anchors": "info", "unrecognized_links": "info"}},
        "nav": [
            {"Start": start},
            {"Guides": guides},
            {"Tutorials": tutorials},
            {"Methods": methods},
            {"Results": results},
            {"Reference": reference},
            {"Coming from": "docs/coming_from.md"},
            {"About": about},
        ],
    }


# What a page would fetch from elsewhere, by itself: a link that a reader follows is none of it.

ELSEWHERE = re.compile(
    r"""<(?:script|img|link|iframe|source|video|audio|object|embed)\b[^>]*?\b(?:src|href|srcset|data)=["']?(?:https?:)?//"""
    r"""|url\(\s*["']?(?:https?:)?//|@import\s+["'](?:https?:)?//""",
    re.I,
)


def requests_elsewhere(folder: Path) -> list[str]:
    """Pages and styles that would ask another server, each with the place."""
    found = []
    for page in sorted(folder.rglob("*")):
        if page.suffix in (".html", ".css"):
            text = page.read_text(encoding="utf-8")
            found += [f"{page.relative_to(folder)}: {text[m.start() : m.end() + 40]}" for m in ELSEWHERE.finditer(text)]
    return found


def main() -> None:
    target = Path(sys.argv[1]).resolve()
    source = target.with_name(target.name + "-source")
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    settings = gather(source, run="--quick" not in sys.argv)
    config = source.with_name("mkdocs.yml")
    config.write_text(yaml.safe_dump({**settings, "site_dir": str(target)}, sort_keys=False), encoding="utf-8")
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # an advertisement, not a warning of this build
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-f", str(config)]
    subprocess.run(command, check=True, env=quiet)
    if places := requests_elsewhere(target):
        raise SystemExit("these would be fetched from elsewhere:\n" + "\n".join(places))
    print(f"{sum(1 for _ in target.rglob('*.html'))} pages: {target / 'index.html'}")
    print(f"search works where it is served: python -m http.server -d {target}")


if __name__ == "__main__":
    main()
