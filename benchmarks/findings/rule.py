"""What the rule of benchmarks/results/findings.md says of the trainings that are kept: its points 3 and 4."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import ROOT
from benchmarks.findings.cells import markdown
from benchmarks.findings.trials import rows_of
from benchmarks.lib import titles
from confide import files

FINDINGS = ROOT / "benchmarks" / "results" / "findings"
ROUNDS = {"tuning": 1, "questions": 2, "settled": 3}
"""Folders of what is kept. From the third round on, averaged weights have batch-norm statistics of their own."""
LAST, SEEDS = 3, 5
"""The round that decides, and the seeds of each loss that is still near after its first."""
SEED = re.compile(r"_seed\d+$")
Name = tuple[int, str]
"""A variant of a round."""


def rule_text() -> str:
    """What point 4 of the rule says: of the trainings of seed 0, and of the losses trained with every seed."""
    (rows, _), losses = kept_rows(), banded_losses()
    first = {
        name: row
        for name, row in rows.items()
        if name in losses and row["settings"]["seed"] == 0 and (name[0] == LAST or not row["settings"].get("average"))
    }
    whole = _with_every_seed(rows)
    return "\n\n".join(
        line
        for line in (
            _choice(rows, losses, {name: [name] for name in first}),
            f"Over {SEEDS} seeds: {_choice(rows, losses, whole)}" if len(whole) > 1 else "",
        )
        if line
    )


def seeds_table() -> str:
    """What point 4 reads where every seed is trained: means over seeds, best NLL first."""
    (rows, _), losses = kept_rows(), banded_losses()
    several = _with_every_seed(rows)
    lines = {}
    for name, some in several.items():
        stages = [rows[name]["judge_mirror"] for name in some]
        nll = np.array([losses[name].astype(np.float64).mean() for name in some])
        mean, error = apart(losses, some, several[LAST, "plain"])
        lines[nll.mean()] = [
            f"`{name[1]}`",
            titles.spread("accuracy", [row["none"]["accuracy"] for row in stages]),
            titles.mean("confidence_gap", [row["none"]["gap"] for row in stages]),
            titles.spread("nll", nll),
            f"{mean:+.4f} ± {error:.4f}" if name[1] != "plain" else "-",
        ]
    head = ["variant", *map(titles.heading, ("accuracy", "confidence_gap, raw", "nll")), "to cross-entropy"]
    return markdown(head, [lines[key] for key in sorted(lines)])


def _with_every_seed(rows: Iterable[Name]) -> dict[Name, list[Name]]:
    """The losses of the last round that are trained with every seed, each with its trainings."""
    several: dict[Name, list[Name]] = {}
    for name in rows:
        several.setdefault((name[0], SEED.sub("", name[1])), []).append(name)
    return {name: some for name, some in several.items() if name[0] == LAST and len(some) == SEEDS}


def _choice(rows: Mapping[Name, Any], losses: Mapping[Name, Any], candidates: Mapping[Name, Sequence[Name]]) -> str:
    """Point 4 among candidates, each with its trainings: the near ones, and of these the best at its own confidence."""
    plain = (LAST, "plain")
    if plain not in candidates:
        return ""

    def mean(name: Name, word: str) -> float:
        return float(np.mean([rows[training]["judge_mirror"]["none"][word] for training in candidates[name]]))

    def nll(name: Name) -> float:
        return float(np.mean([losses[training].astype(np.float64).mean() for training in candidates[name]]))

    best = min(candidates, key=nll)
    least = mean(plain, "accuracy") - 0.002
    near = []
    for name, some in candidates.items():
        difference, error = apart(losses, some, candidates[best])
        if difference <= 2 * error and mean(name, "accuracy") >= least:
            near.append(name)
    chosen = min(near, key=lambda name: abs(mean(name, "gap")))
    listed = ", ".join(_title(name) for name in near)
    return (
        f"Lowest NLL: {_title(best)}. Within two standard errors of it: {listed}. Of these, confidence is nearest to "
        f"accuracy with {_title(chosen)}."
    )


def _title(name: Name) -> str:
    return f"`{name[1]}` (round {name[0]})"


def kept_rows() -> tuple[dict[Name, dict[str, Any]], dict[Name, Any]]:
    """All lines, and the NLL of every judging sample, by round and variant."""
    rows: dict[Name, dict[str, Any]] = {}
    losses: dict[Name, Any] = {}
    for folder, turn in ROUNDS.items():
        rows |= {(turn, row["variant"]): row for row in rows_of(FINDINGS / folder)}
        path = FINDINGS / folder / "nll.npz"
        losses |= {(turn, name): values for name, values in files.read_table(path)[0].items()} if path.exists() else {}
    return rows, losses


def banded_losses() -> dict[Name, Any]:
    """The NLL of every judging sample after a temperature by band, the calibrator of point 3, by round and variant."""
    probs: dict[Name, Any] = {}
    for folder, turn in ROUNDS.items():
        path = FINDINGS / folder / "by_band.npz"
        probs |= {(turn, name): values for name, values in files.read_table(path)[0].items()} if path.exists() else {}
    return probs


def by_band_table() -> str:
    """One temperature against one a band of difficulty, means over the trainings of a loss: point 3 of the rule."""
    lines = []
    for folder, turn in ROUNDS.items():
        path = FINDINGS / folder / "by_band.json"
        several: dict[str, list[dict[str, Any]]] = {}
        for name, row in (files.read_json(path) if path.exists() else {}).items():
            several.setdefault(SEED.sub("", name), []).append(row)
        for name, some in several.items():
            stages = [[row[stage] for row in some] for stage in ("temperature", "by_band")]
            nll, risk = (
                [titles.mean(metric, [row[metric] for row in stage]) for stage in stages] for metric in ("nll", "aurc")
            )
            away = [(row["temperature"]["nll"] - row["by_band"]["nll"]) / row["error"] for row in some]
            cools = [np.mean([row["temperatures"][k] for row in some]) for k in range(len(some[0]["temperatures"]))]
            lines.append(
                [
                    str(turn),
                    f"`{name}`",
                    str(len(some)),
                    *nll,
                    f"{min(away):.1f}",
                    *risk,
                    " ".join(f"{row:.2f}" for row in cools),
                ]
            )
    nll_heads, risk_heads = (
        [titles.heading(f"{metric}, {stage}") for stage in ("one T", "T by band")] for metric in ("nll", "aurc")
    )
    head = ["round", "variant", "seeds", *nll_heads, "better by at least (standard errors)", *risk_heads]
    head.append("T from easy to hard")
    return markdown(head, lines) if lines else ""


def apart(losses: Mapping[Name, Any], names: Sequence[Name], others: Sequence[Name]) -> tuple[float, float]:
    """Mean and standard error of the paired difference in NLL of two variants, mirrored, over samples and seeds."""
    first, second = (np.stack([losses[name] for name in sorted(some)]).astype(np.float64) for some in (names, others))
    each = first.mean(axis=0) - second.mean(axis=0)
    error = each.std(ddof=1) / np.sqrt(len(each))
    if len(names) > 1 and len(names) == len(others):
        error = np.hypot(error, (first - second).mean(axis=1).std(ddof=1) / np.sqrt(len(names)))
    return float(each.mean()), float(error)
