"""An item's outcome as parquet, Markdown and LaTeX, beside the numbers of the paper."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from confide.bench import claims
from confide.bench.item import NAMES, SMOKE, SMOKE_SAMPLES, Item, Outcome
from confide.core import files

MOST_POINTS = 12
"""Places on a figure's axis that the Markdown table shows, evenly spread; the parquet file has all."""

Row = list[str]


def write(item: Item, outcome: Outcome, folder: Path, scale: str) -> list[Path]:
    """Write NAME.parquet, NAME.md and NAME.tex; returns them."""
    paths = [folder / f"{item.name}.{ending}" for ending in ("parquet", "md", "tex")]
    _write_parquet(item, outcome, paths[0], scale)
    files.write_text(paths[1], markdown(item, outcome, scale))
    files.write_text(paths[2], latex(item, outcome))
    return paths


def write_verdicts(found: Sequence[tuple[Item, Outcome]], path: Path) -> Path:
    """One page with the verdict of every claim."""
    lines = ["# Verdicts", "", " ".join((claims.__doc__ or "").split()), ""]
    lines += ["| paper | claim | verdict | why |", "|---|---|---|---|"]
    for item, outcome in found:
        for one in outcome.verdicts:
            cells = (f"[{item.source}]({item.name}.md)", one.claim, f"**{one.verdict}**", one.why)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    files.write_text(path, "\n".join(lines) + "\n")
    return path


def _write_parquet(item: Item, outcome: Outcome, path: Path, scale: str) -> None:
    rows = outcome.rows
    numbers = ("mean", "deviation", "low", "high", "difference", "p_value", "p_holm")
    columns = {name: np.array([getattr(row, name) for row in rows], dtype=np.float64) for name in numbers}
    words = {name: np.array([getattr(row, name) for row in rows], dtype=np.str_) for name in ("dataset", "method")}
    words |= {name: np.array([getattr(row, name) for row in rows], dtype=np.str_) for name in ("quantity", "baseline")}
    about = [outcome.about[row.dataset, row.method] for row in rows]
    words |= {name: np.array([str(one[name]) for one in about], dtype=np.str_) for name in ("hardware", "commit")}
    columns["seconds"] = np.array([one["seconds"] for one in about], dtype=np.float64)
    columns["x"] = np.array([math.nan if row.x is None else row.x for row in rows], dtype=np.float64)
    columns["seeds"] = np.array([row.seeds for row in rows], dtype=np.int64)
    files.write_table(path, {**words, **columns}, {"confide": "bench/1", "item": item.name, "scale": scale})


def header_of(item: Item, outcome: Outcome) -> Row:
    """Columns: where from, dataset, method, x in figures, quantities in the order they came."""
    quantities = dict.fromkeys(row.quantity for row in outcome.rows)
    quantities |= dict.fromkeys(one.quantity for one in item.reported)
    points = any(row.x is not None for row in outcome.rows)
    return ["from", "dataset", "method", *(["x"] if points else []), *quantities]


def body_of(item: Item, outcome: Outcome) -> list[Row]:
    """Rows found here, then those of the paper."""
    header = header_of(item, outcome)
    quantities = header[4 if "x" in header else 3 :]
    found: dict[tuple[str, str, float | None], dict[str, str]] = {}
    for row in outcome.rows:
        mark = "*" if math.isfinite(row.p_holm) and row.p_holm < 0.05 else ""
        spread = f" ± {number(row.deviation)}" if math.isfinite(row.deviation) else ""
        found.setdefault((row.dataset, row.method, row.x), {})[row.quantity] = f"{number(row.mean)}{spread}{mark}"
    shown = _thinned([place[2] for place in found])
    rows = []
    for (dataset, name, x), cells in found.items():
        if x is None or x in shown:
            place = [] if "x" not in header else ["" if x is None else f"{x:g}"]
            rows.append(["here", NAMES.get(dataset, dataset), name, *place, *(cells.get(q, "") for q in quantities)])
    told: dict[tuple[str, str], dict[str, str]] = {}
    for one in item.reported:
        told.setdefault((one.dataset, one.method), {})[one.quantity] = f"{one.value:g}"
    for (dataset, name), cells in told.items():
        place = [""] if "x" in header else []
        rows.append(["paper", dataset, name, *place, *(cells.get(q, "") for q in quantities)])
    return rows


def number(value: float) -> str:
    """Three significant digits at least, no exponent for what tables hold."""
    if not math.isfinite(value):
        return "-"
    size = abs(value)
    return f"{value:.2f}" if size >= 10 else f"{value:.3f}" if size >= 0.01 or size == 0 else f"{value:.2g}"


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
        f"Here ({scale} scale): {_told(item, scale)}",
        "",
    ]
    lines += ["## Claims", ""]
    lines += [f"- **{one.verdict}**: {one.claim} ({one.why})" for one in outcome.verdicts] or ["- none"]
    header, rows = header_of(item, outcome), body_of(item, outcome)
    lines += ["", "## Numbers", ""]
    lines += ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    lines += ["", _foot(item, outcome, scale)]
    if outcome.rescued:
        lines += ["", f"Repeated with clipped gradients, for they had failed: {', '.join(outcome.rescued)}."]
    if outcome.missing:
        lines += ["", f"Not there ({len(outcome.missing)} cells): {', '.join(outcome.missing[:8])}"]
        lines[-1] += ", ..." if len(outcome.missing) > 8 else ""
    return "\n".join(lines) + "\n"


def _told(item: Item, scale: str) -> str:
    if scale == "smoke":
        epochs = SMOKE.training["epochs"]
        return f"a small network, {epochs} epochs on {SMOKE_SAMPLES} embedded images: it runs, no more."
    return item.here if scale == "lite" else "the paper's settings, as far as data was at hand."


def _foot(item: Item, outcome: Outcome, scale: str) -> str:
    seeds = sorted({row.seeds for row in outcome.rows})
    told = [one for one in outcome.about.values() if one["commit"] or one["hardware"]]
    hardware = ", ".join(dict.fromkeys(str(one["hardware"]) for one in told)) or "this machine"
    commits = ", ".join(dict.fromkeys(word for one in told for word in str(one["commit"]).split(", "))) or "unknown"
    schedules = ", ".join(dict.fromkeys(str(one["schedule"]) for one in told if one["schedule"]))
    test = (
        f" * a paired t-test over seeds against {item.baseline}, Holm-corrected over the table, has p < 0.05."
        if any(row.baseline for row in outcome.rows)
        else ""
    )
    return (
        f"Mean ± standard deviation over {' or '.join(map(str, seeds)) or 'no'} seeds; percentages, but AURC x 1000, "
        f"NLL and entropy in nats.{test} Training: {schedules or 'none'}. Hardware: {hardware}. Commit: {commits}. "
        f"Command: `confide bench {item.name} --scale {scale}`."
    )


def latex(item: Item, outcome: Outcome) -> str:
    """The table for a paper, with booktabs."""
    header, rows = header_of(item, outcome), body_of(item, outcome)
    lines = [
        f"% {item.source}: {item.title}",
        "\\begin{tabular}{" + "l" * 3 + "r" * (len(header) - 3) + "}",
        "\\toprule",
    ]
    lines.append(" & ".join(map(escaped, header)) + " \\\\\n\\midrule")
    lines += [" & ".join(map(escaped, row)) + " \\\\" for row in rows]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


def escaped(text: str) -> str:
    """Text as LaTeX shows it."""
    special = {"\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "±": r"$\pm$"}
    special |= {"{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(letter, letter) for letter in text)
