"""CIFAR-10 under shift, from the cells of the lite grid: one page of tables, drawings, and the report.

    python -m benchmarks.papers.shift_page

Writes benchmarks/results/shift_cifar10.md and beside it a folder of the drawings and report.html; takes seconds and
needs only benchmarks/results/lite/cells. (Cui et al., 2023, Figure 3 and Table 4; Ghosh et al., 2022, Figure 6.)
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.lib import titles
from benchmarks.lib.results import Result, Results
from benchmarks.lib.shift import REPORTED_METRICS, STAGES, shift_evaluation
from benchmarks.lib.sources import OOD
from benchmarks.lib.values import Value, summaries
from confide import files
from confide.metrics import table_words
from confide.report import section_drawings, write_report
from confide.results import About, Evaluation

DATASET = "cifar10"
MODEL = "resnet18"
METHODS = (
    "cross_entropy",
    "difficulty_entropy",
    "adafocal",
    "selective_au",
    "selective_au_released",
    "confide",
    "entropy_regularization",
)
OOD_SETS = {"tiny32": "Tiny-ImageNet-32", "textures": "DTD"}
BASELINE = "cross_entropy"

Cells = Mapping[str, Mapping[int, Result]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cells", default="benchmarks/results/lite", help="folder of the grid's results")
    parser.add_argument("--out", default="benchmarks/results", help="where the page and its folder are written")
    args = parser.parse_args()
    written = write_page(Path(args.cells), Path(args.out))
    if not written:
        raise SystemExit(
            f"{args.cells} holds no cell of CIFAR-10 under shift; run `python -m benchmarks grid`, or unpack one"
        )
    for path in written:
        print(f"wrote {path}, {path.stat().st_size / 1000:.0f} kB")


def write_page(folder: Path, out: Path) -> list[Path]:
    """The page, the drawings and the report; nothing where no cell was tested under shift."""
    results = Results((folder,), folder / "prepared")
    results.check_alike()
    cells = {name: results.of(DATASET, name, MODEL) for name in METHODS}
    cells = {name: {s: r for s, r in seeds.items() if r.get("shift")} for name, seeds in cells.items()}
    cells = {name: seeds for name, seeds in cells.items() if seeds}
    every = [result for seeds in cells.values() for result in seeds.values()]
    if not every:
        return []
    evaluation = shift_evaluation(
        results,
        DATASET,
        METHODS,
        model=MODEL,
        ood_sets=OOD_SETS,
        about=About(
            title="CIFAR-10 under shift",
            data="CIFAR-10, ResNet-18; 2,000 test images in each of 16 x 5 cells",
            hardware=", ".join(sorted({str(cell["hardware"]) for cell in every})),
            commit=", ".join(sorted({str(cell["commit"]) for cell in every})),
            commands=("python -m benchmarks grid --data cifar10=DIR --data tiny32=DIR --data textures=FILE", command()),
            sections=("models", "shift", "training", "made"),
            extra={"training": training_of(every)},
        ),
    )
    place = out / f"shift_{DATASET}"
    paths = [write_report(evaluation, place / "report.html")]
    drawn = drawings(evaluation, place)
    page = out / f"shift_{DATASET}.md"
    files.write_text(page, "\n".join(markdown(cells, evaluation, drawn, every)) + "\n")
    return [page, *paths, *(path for path, _ in drawn)]


def command() -> str:
    return "python -m benchmarks.papers.shift_page"


def training_of(every: Sequence[Result]) -> str:
    """The schedule that all cells share."""
    settings = every[0]["settings"]
    return f"{settings['epochs']} epochs, batch {settings['batch_size']}, learning rate {settings['learning_rate']:g}"


def drawings(evaluation: Evaluation, folder: Path) -> list[tuple[Path, str]]:
    """The figures of the report's section on shift as SVG files, with their captions."""
    for old in folder.glob("*.svg"):
        old.unlink()
    drawings = []
    for drawing in section_drawings(evaluation, "shift"):
        path = folder / f"{drawing.name}.svg"
        files.write_text(path, drawing.svg)
        drawings.append((path, drawing.caption))
    return drawings


WITH_FREIGHT_CARS = "98f3a6c"
"""Commit whose cells took one more class of Tiny-ImageNet for out-of-distribution."""


def markdown(
    cells: Cells, evaluation: Evaluation, drawn: Sequence[tuple[Path, str]], every: Sequence[Result]
) -> list[str]:
    """The page."""
    seeds = " or ".join(sorted({str(len(seeds_of_method)) for seeds_of_method in cells.values()}))
    lines = ["# CIFAR-10 under shift", ""]
    lines.append(
        f"ResNet-18 trained here ({training_of(every)}), mean ± standard deviation over {seeds} seeds. Sixteen "
        "corruptions at five severities of 2,000 test images, spread evenly over the 10,000 of the clean columns; "
        "one temperature for all images, fitted on clean validation images (the recipe's own calibrator, by "
        "difficulty: [main](papers/main.md)). ECE with 15 bins of equal width (with bins of equal mass: "
        "[p1-figure3](papers/p1-figure3.md)). * differs from cross_entropy: paired t-test over the seeds, "
        "Holm-corrected over the methods, p < 0.05."
    )
    lines += ["", "The same with every chart, interactive: [report.html](shift_cifar10/report.html).", ""]
    lines += [f"{warning}" for warning in evaluation.warnings]
    lines += ["", "## Clean, and mean of the 80 cells", "", *means(cells)]
    lines += ["", "## ECE by severity", "", *by_severity(cells)]
    lines += ["", "## Out-of-distribution images", ""]
    lines += ["Tiny-ImageNet-32 without the classes that CIFAR-10 shows, and textures (DTD); from logits alone."]
    early = sorted(cell["name"].partition("resnet18-")[2] for cell in every if cell["commit"] == WITH_FREIGHT_CARS)
    if early:
        lines.append(
            f"Cells of an earlier list of classes also saw 50 freight cars as out-of-distribution: {', '.join(early)}."
        )
    lines.append("")
    lines += ood(cells)
    lines += ["", "## Figures", ""]
    for path, caption in drawn:
        lines += [f"![{caption}](shift_{DATASET}/{path.name})", "", caption, ""]
    lines += ["## The grid", "", "Mean over the seeds, as trained, at severities 1 / 2 / 3 / 4 / 5.", ""]
    for metric in REPORTED_METRICS:
        head = f"<details><summary>{titles.heading(metric)}</summary>"
        lines += [head, "", *grid(cells, metric), "", "</details>", ""]
    hardware = ", ".join(sorted({str(cell["hardware"]) for cell in every}))
    commits = ", ".join(sorted({str(cell["commit"]) for cell in every}))
    day = max(str(cell["made"])[:10] for cell in every)
    lines.append(f"Cells: {hardware}; {day}, commit {commits}. This page: `{command()}`.")
    return lines


def row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def tabled(header: Sequence[str], values: Sequence[Value], metrics: Mapping[str, str]) -> list[str]:
    """A row a dataset and method, a column a quantity, here with its metric; tested against the baseline."""
    texts_by_row: dict[tuple[str, str], dict[str, str]] = {}
    for summary in summaries(list(values), BASELINE):
        mark = "*" if math.isfinite(summary.p_holm) and summary.p_holm < 0.05 else ""
        digits = titles.info(metrics[summary.quantity]).digits + titles.MORE_DIGITS
        spread = f" ± {summary.deviation:.{digits}f}" if math.isfinite(summary.deviation) else ""
        text = f"{summary.mean:.{digits}f}{spread}{mark}" if math.isfinite(summary.mean) else "-"
        texts_by_row.setdefault((summary.dataset, summary.method), {})[summary.quantity] = text
    lines = [row(header), "|" + "---|" * len(header)]
    for (dataset, method), texts in texts_by_row.items():
        names = [*dataset.split("|"), method] if dataset else [method]
        lines.append(row([*names, *(texts.get(q, "") for q in metrics)]))
    return lines


def means(cells: Cells) -> list[str]:
    """Accuracy, ECE, NLL, AURC and AUROC of error detection on clean images and over the cells."""
    values, columns, metrics = [], {}, {}
    for name, seeds in cells.items():
        for seed, result in seeds.items():
            for metric in REPORTED_METRICS:
                for stage in STAGES if metric in ("ece", "nll") else STAGES[:1]:
                    title = titles.heading(metric) + (" after T" if stage != "raw" else "")
                    shifted = [cell[stage][metric] for cell in result["shift"].values()]
                    numbers = {"clean": result["measured"][stage][metric], "shifted": sum(shifted) / len(shifted)}
                    for where, number in numbers.items():
                        quantity = f"{metric} {stage} {where}"
                        columns[quantity], metrics[quantity] = f"{title}, {where}", metric
                        values.append(Value("", name, quantity, seed, titles.scaled(metric, number)))
    lines = tabled(["method", *columns.values()], values, metrics)
    counts = ", ".join(f"{name} {len(seeds)}" for name, seeds in cells.items())
    return [*lines, "", f"Seeds: {counts}."]


def by_severity(cells: Cells) -> list[str]:
    """Median over the corruptions at each severity, as trained and after temperature scaling."""
    values = []
    for stage in STAGES:
        for name, seeds in cells.items():
            for seed, result in seeds.items():
                for severity in range(1, 6):
                    some = [c[stage]["ece"] for key, c in result["shift"].items() if key.endswith(f"-{severity}")]
                    some.sort()
                    middle = (some[(len(some) - 1) // 2] + some[len(some) // 2]) / 2
                    stage_title = "as trained" if stage == "raw" else "after temperature"
                    values.append(Value(stage_title, name, str(severity), seed, titles.scaled("ece", middle)))
    header = ["stage", "method", *(f"severity {s}" for s in range(1, 6))]
    metrics = {str(severity): "ece" for severity in range(1, 6)}
    return [*tabled(header, values, metrics), "", f"{titles.heading('ece')}, median over the corruptions."]


def ood(cells: Cells) -> list[str]:
    """The metrics of out-of-distribution data by set, score and method."""
    metrics = table_words("ood")
    values = [
        Value(f"{name_of_set}|{score}", name, metric, seed, titles.scaled(metric, result[OOD][word][score][metric]))
        for word, name_of_set in OOD_SETS.items()
        for score in ("msp", "entropy", "max_logit", "energy", "margin")
        for name, seeds in cells.items()
        for seed, result in seeds.items()
        if score in result.get(OOD, {}).get(word, {})
        for metric in metrics
    ]
    return tabled(
        ["out-of-distribution set", "score", "method", *map(titles.heading, metrics)], values, {m: m for m in metrics}
    )


def grid(cells: Cells, metric: str) -> list[str]:
    """A row a corruption, a column a method, five severities in a cell."""
    words = dict.fromkeys(
        key.rpartition("-")[0] for seeds in cells.values() for r in seeds.values() for key in r["shift"]
    )
    lines = [row(["corruption", *cells]), "|" + "---|" * (len(cells) + 1)]
    for word in words:
        texts = []
        for seeds in cells.values():
            by_severity = [[r["shift"][f"{word}-{s}"]["raw"][metric] for r in seeds.values()] for s in range(1, 6)]
            texts.append(" / ".join(titles.info(metric).number(sum(c) / len(c)) for c in by_severity))
        lines.append(row([word, *texts]))
    return lines


if __name__ == "__main__":
    main()
