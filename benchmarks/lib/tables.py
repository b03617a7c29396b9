"""An item's outcome as parquet, Markdown, LaTeX and, where it has curves, SVG, beside the numbers of the paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.lib import claims, titles
from benchmarks.lib.drawing import svg_of
from benchmarks.lib.items import NAMES, SMOKE, SMOKE_SAMPLES, Item, Outcome
from benchmarks.lib.results import CALIBRATED
from benchmarks.lib.values import Summary
from confide import files
from confide.results import LEVEL

STAGED = f", {CALIBRATED}"

OURS = "Confide"
"""The source of items that no paper has."""
QUESTION = "asked here: "
"""How a claim begins that no paper makes."""
MOST_POINTS = 12
"""Places on a figure's axis that the Markdown table shows, evenly spread; the parquet file has all."""

Row = list[str]


def write(item: Item, outcome: Outcome, folder: Path, scale: str) -> list[Path]:
    """Write NAME.parquet, NAME.md, NAME.tex and, of curves, NAME.svg; returns them."""
    paths = [folder / f"{item.name}.{ending}" for ending in ("parquet", "md", "tex", "svg")]
    _write_parquet(item, outcome, paths[0], scale)
    files.write_text(paths[1], markdown(item, outcome, scale))
    files.write_text(paths[2], latex(item, outcome))
    picture = svg_of(item, outcome)
    if picture is None:
        return paths[:3]
    files.write_text(paths[3], picture)
    return paths


def write_verdicts(outcomes: Sequence[tuple[Item, Outcome | None]], path: Path) -> Path:
    """One page with the verdict of every claim; items without an outcome keep the lines they had."""
    before = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows: list[str] = []
    for item, outcome in outcomes:
        link = f"[{item.source}]({item.name}.md)"
        if outcome is None:
            rows += [line for line in before if line.startswith(f"| {link} |")]
            continue
        for verdict in outcome.verdicts:
            cells = (link, verdict.claim, f"**{verdict.verdict}**", verdict.why)
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    words = ("reproduced", "partly", "not", "not testable here")
    papers = [row for row in rows if not row.startswith(f"| [{OURS}](")]
    counts = ", ".join(f"{sum(f'| **{word}** |' in row for row in papers)} {word}" for word in words)
    ours = sum(f"| {QUESTION}" in row for row in papers)
    beside = f" ({ours} of them asked here beside what they say)" if ours else ""
    lines = ["# Verdicts", "", f"Of {len(papers)} claims of the papers{beside}: {counts}.", ""]
    lines += [" ".join((claims.__doc__ or "").split()), "", "| paper | claim | verdict | why |", "|---|---|---|---|"]
    files.write_text(path, "\n".join([*lines, *rows]) + "\n")
    return path


def _write_parquet(item: Item, outcome: Outcome, path: Path, scale: str) -> None:
    rows = outcome.rows
    numbers = ("mean", "deviation", "low", "high", "difference", "p_value", "p_holm")
    columns = {name: np.array([getattr(row, name) for row in rows], dtype=np.float64) for name in numbers}
    words = {name: np.array([getattr(row, name) for row in rows], dtype=np.str_) for name in ("dataset", "method")}
    words |= {name: np.array([getattr(row, name) for row in rows], dtype=np.str_) for name in ("quantity", "baseline")}
    about = [outcome.about[row.dataset, row.method] for row in rows]
    words |= {name: np.array([str(note[name]) for note in about], dtype=np.str_) for name in ("hardware", "commit")}
    columns["seconds"] = np.array([note["seconds"] for note in about], dtype=np.float64)
    columns["x"] = np.array([math.nan if row.x is None else row.x for row in rows], dtype=np.float64)
    columns["seeds"] = np.array([row.seeds for row in rows], dtype=np.int64)
    files.write_table(path, {**words, **columns}, {"confide": "bench/1", "item": item.name, "scale": scale})


@dataclass(frozen=True)
class PageTable:
    """A table of a page, with a title where there are several."""

    title: str
    header: Row
    rows: tuple[tuple[str, ...], ...]


def tables_of(item: Item, outcome: Outcome) -> list[PageTable]:
    """The numbers of an item: those without a place on an axis beside the paper's, then the curves."""
    # A quantity that no row knows, such as a correlation of too few points, gets no column.
    known = {row.quantity for row in outcome.rows if math.isfinite(row.mean)}
    plain = [row for row in outcome.rows if row.x is None and row.quantity in known]
    points = [row for row in outcome.rows if row.x is not None and row.quantity in known]
    if item.staged:
        return [_by_stage(name, [row for row in plain if row.dataset == name]) for name in _datasets(plain)]
    first = [_plain(item, plain)] if plain or item.reported or not points else []
    return [*first, *_curves(item, points)]


def _plain(item: Item, rows: Sequence[Summary]) -> PageTable:
    """One row per dataset and method, then those of the paper."""
    quantities = list(dict.fromkeys([row.quantity for row in rows] + [reported.quantity for reported in item.reported]))
    cells_by_place: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        cells_by_place.setdefault(("here", shown_name(row.dataset), row.method), {})[row.quantity] = shown(row)
    for reported in item.reported:
        cells_by_place.setdefault(("paper", reported.dataset, reported.method), {})[reported.quantity] = (
            f"{reported.value:g}"
        )
    body = tuple((*place, *(cells.get(word, "") for word in quantities)) for place, cells in cells_by_place.items())
    return PageTable("", ["from", "dataset", "method", *quantities], body)


def _curves(item: Item, rows: Sequence[Summary]) -> list[PageTable]:
    """A table for the quantities of each axis: what has the same places has the same axis."""
    axes: dict[str, set[float | None]] = {}
    for row in rows:
        axes.setdefault(row.quantity, set()).add(row.x)
    groups: dict[frozenset[float | None], list[str]] = {}
    for quantity, places in axes.items():
        groups.setdefault(frozenset(places), []).append(quantity)
    return [_curve(item, [row for row in rows if row.quantity in words], words) for words in groups.values()]


def _curve(item: Item, rows: Sequence[Summary], quantities: Sequence[str]) -> PageTable:
    """One row per place on the axis."""
    axis = ", or ".join(dict.fromkeys(item.axis_of(row.quantity, row.method) for row in rows))
    places = _thinned([row.x for row in rows])
    cells_by_place: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        if row.x in places:
            place = ("here", shown_name(row.dataset), row.method, f"{row.x:g}")
            cells_by_place.setdefault(place, {})[row.quantity] = shown(row)
    body = tuple((*place, *(cells.get(word, "") for word in quantities)) for place, cells in cells_by_place.items())
    return PageTable(f"{', '.join(quantities)} along {axis}", ["from", "dataset", "method", axis, *quantities], body)


def _by_stage(dataset: str, rows: Sequence[Summary]) -> PageTable:
    """Two rows per method: as trained, and after its calibrator."""
    by_place: dict[tuple[str, str], dict[str, str]] = {}
    seeds: dict[str, int] = {}
    for row in rows:
        quantity, _, after = row.quantity.partition(STAGED)
        stage = CALIBRATED if row.quantity.endswith(STAGED) and not after else "raw"
        by_place.setdefault((row.method, stage), {})[quantity if stage == CALIBRATED else row.quantity] = shown(row)
        seeds[row.method] = max(seeds.get(row.method, 0), row.seeds)
    ordered = sorted(by_place, key=lambda place: (list(seeds).index(place[0]), place[1] == CALIBRATED))
    quantities = list(dict.fromkeys(word for place in ordered for word in by_place[place]))
    body = tuple(
        (name, stage, str(seeds[name]), *(by_place[name, stage].get(word, "-") for word in quantities))
        for name, stage in ordered
    )
    return PageTable(
        shown_name(dataset), ["method", "stage", "seeds", *(titles.heading(word) for word in quantities)], body
    )


def _datasets(rows: Sequence[Summary]) -> list[str]:
    return list(dict.fromkeys(row.dataset for row in rows))


def shown_name(dataset: str) -> str:
    """A dataset as people write it."""
    return claims.named(dataset, NAMES)


def shown(row: Summary) -> str:
    """Mean ± standard deviation, with a star where the test against the baseline is clear."""
    mark = "*" if math.isfinite(row.p_holm) and row.p_holm < LEVEL else ""
    digits = titles.digits(row.quantity, row.mean)
    spread = f" ± {row.deviation:.{digits}f}" if math.isfinite(row.deviation) else ""
    return f"{number(row.mean, digits)}{spread}{mark}"


def number(value: float, digits: int) -> str:
    """A value with so many decimals; small ones keep two figures."""
    if not math.isfinite(value):
        return "-"
    return f"{value:.2g}" if 0 < abs(value) < 10 ** (1 - digits) else f"{value:.{digits}f}"


def _thinned(places: Sequence[float | None]) -> set[float]:
    known = sorted({x for x in places if x is not None})
    if len(known) <= MOST_POINTS:
        return set(known)
    return {known[k] for k in np.linspace(0, len(known) - 1, MOST_POINTS).round().astype(int)}


def markdown(item: Item, outcome: Outcome, scale: str) -> str:
    """The page of an item."""
    lines = [
        f"# {item.source}: {item.title}",
        "",
        f"Paper: {item.setting}",
        "",
        f"Here ({scale} scale): {_setting_text(item, scale)}",
        "",
    ]
    lines += ["## Claims", ""]
    lines += [f"- **{verdict.verdict}**: {verdict.claim} ({verdict.why})" for verdict in outcome.verdicts] or ["- none"]
    if any(row.x is not None and math.isfinite(row.mean) for row in outcome.rows):
        lines += ["", f"![{item.title}]({item.name}.svg)"]
    lines += ["", "## Numbers"]
    for table in tables_of(item, outcome):
        lines += ["", f"### {table.title}"] if table.title else []
        lines += ["", "| " + " | ".join(table.header) + " |", "|" + "---|" * len(table.header)]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table.rows]
    lines += ["", _foot(item, outcome, scale)]
    if outcome.rescued:
        lines += ["", f"Repeated with clipped gradients, for they had failed: {', '.join(outcome.rescued)}."]
    if outcome.missing:
        lines += ["", f"Not there ({len(outcome.missing)} cells): {', '.join(outcome.missing[:8])}"]
        lines[-1] += ", ..." if len(outcome.missing) > 8 else ""
    return "\n".join(lines) + "\n"


def _setting_text(item: Item, scale: str) -> str:
    if scale == "smoke":
        epochs = SMOKE.training["epochs"]
        return f"a small network, {epochs} epochs on {SMOKE_SAMPLES} embedded images: it runs, no more."
    return item.here if scale == "lite" else "the paper's settings, as far as data was at hand."


def _foot(item: Item, outcome: Outcome, scale: str) -> str:
    notes = [note for note in outcome.about.values() if note["commit"] or note["hardware"]]
    parts = [_seeds_line(outcome), *titles.units(row.quantity for row in outcome.rows if math.isfinite(row.mean))]
    if any(row.baseline for row in outcome.rows):
        parts.append(
            f"* a paired t-test over seeds against {item.baseline}, Holm-corrected over the methods, has p < 0.05."
        )
    for word, name in (("Training", "schedule"), ("Hardware", "hardware"), ("Commit", "commit")):
        several = dict.fromkeys(
            part for note in notes for part in str(note[name]).split(", " if name == "commit" else "\n")
        )
        listed = ", ".join(filter(None, several))
        parts += [f"{word}: {listed}."] if listed else []
    return " ".join([*parts, f"Command: `python -m benchmarks {item.name} --scale {scale}`."])


def _seeds_line(outcome: Outcome) -> str:
    """How many seeds are behind the numbers, by dataset."""
    spread = [row for row in outcome.rows if row.seeds > 1]
    if not spread:
        return "One number each, without a spread over seeds." if outcome.rows else "No numbers yet."
    counts_by_dataset = []
    for dataset in _datasets(spread):
        counts = sorted({row.seeds for row in spread if row.dataset == dataset})
        counts_by_dataset.append(
            f"{shown_name(dataset)} {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))}"
        )
    return f"Mean ± standard deviation over seeds ({'; '.join(counts_by_dataset)}); a number without ± is one."


def latex(item: Item, outcome: Outcome) -> str:
    """The tables for a paper, with booktabs."""
    lines = [f"% {item.source}: {item.title}", r"% needs \usepackage{booktabs}"]
    for table in tables_of(item, outcome):
        words = sum(1 for word in table.header if word in ("from", "dataset", "method", "stage"))
        lines += [f"% {table.title}"] if table.title else []
        lines += ["\\begin{tabular}{" + "l" * words + "r" * (len(table.header) - words) + "}", "\\toprule"]
        lines.append(" & ".join(map(escaped, table.header)) + " \\\\\n\\midrule")
        lines += [" & ".join(map(escaped, row)) + " \\\\" for row in table.rows]
        lines += ["\\bottomrule", "\\end{tabular}"]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Text as LaTeX shows it."""
    special = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "±": r"$\pm$"}
    special |= {"<": "$<$", ">": "$>$", "|": "$|$", "×": r"$\times$"}
    special |= {"{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(letter, letter) for letter in text)
