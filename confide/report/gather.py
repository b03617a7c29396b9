"""From paths to one Evaluation: files, run folders that may be unfinished, and several side by side."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from confide.checks import InputError
from confide.files.formats import TABLE_ENDINGS
from confide.results import About, ComparedRow, Evaluation, join
from confide.store import RunPaths

WHOLE = "evaluation.json"
PARTS = "evaluations"  # one file per model and stage, written before a run is concluded


def gather(paths: Sequence[str | Path]) -> Evaluation:
    """The evaluation of a file or run folder, or of several side by side.

    Args:
        paths: evaluation.json files or run folders; of an unfinished run what is there is taken, with a warning.

    Returns:
        One Evaluation.

    Raises:
        InputError: a path does not exist, or holds no evaluation.

    Example:
        >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1, 1])
        >>> confide.evaluate(p, "accuracy", intervals=False).save("evaluation.json")
        >>> confide.report.gather(["evaluation.json"]).value("accuracy")
        0.75
    """
    if not paths:
        raise InputError("a report needs at least one evaluation or run folder, got none")
    evaluations = [load(path) for path in paths]
    if len(evaluations) == 1:
        return evaluations[0]
    joined = side_by_side(evaluations, _names(paths))
    commands = (*joined.about.commands, shlex.join(["confide", "report", *map(str, paths)]))
    return replace(joined, about=replace(joined.about, commands=commands))


def load(path: str | Path) -> Evaluation:
    """The evaluation of one file or run folder; of an unfinished run what is there, with a warning."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path} must be an evaluation or a run folder, but it does not exist; check the path")
    if path.suffix in TABLE_ENDINGS:
        raise InputError(f"{path} holds a table, not an evaluation; measure predictions first: confide evaluate {path}")
    if not path.is_dir():
        return Evaluation.load(path)
    if (path / WHOLE).exists():
        return Evaluation.load(path / WHOLE)
    parts, finish = sorted((path / PARTS).glob("*.json")), RunPaths(path).finish_command
    if not parts:
        has_config = RunPaths(path).config.exists()
        mend = f"finish it with: {finish}" if has_config else "name a folder that run or evaluate made"
        raise InputError(f"{path} must hold {WHOLE}, but has none yet; {mend}")
    warning = (
        f"The run in {path} is not finished: {len(parts)} of its evaluations are shown, without paired tests, "
        f"galleries and training curves. Finish it with: {finish}"
    )
    joined = join([Evaluation.load(part) for part in parts])
    known = About(
        title=path.resolve().name,
        commands=(finish,),
        missing=dict.fromkeys(("training", "trust", "shift"), "The run is not finished."),
    )
    return replace(joined, about=joined.about.over(known), warnings=(*joined.warnings, warning))


def _names(paths: Sequence[str | Path]) -> list[str]:
    """A short name for each path: the folder's, or the file's without suffix; numbered where they repeat."""
    names = []
    for path in map(Path, paths):
        inside = path.name == WHOLE and path.resolve().parent.name
        names.append(inside or (path.name if path.is_dir() else path.stem))
    repeated = Counter(names)
    return [f"{name} {k + 1}" if repeated[name] > 1 else name for k, name in enumerate(names)]


def side_by_side(evaluations: Sequence[Evaluation], names: Sequence[str]) -> Evaluation:
    """All evaluations in one; models of the same name get the name of their run.

    Args:
        evaluations: of the runs.
        names: of the runs.

    Returns:
        One Evaluation, with warnings that no paired test was made, and where sizes differ.

    Example:
        >>> p = confide.Predictions([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 3.0]], [0, 1, 1, 1])
        >>> evaluation = confide.evaluate(p, "accuracy", intervals=False)
        >>> both = confide.report.side_by_side([evaluation, evaluation], ["monday", "friday"])
        >>> sorted({m.model for m in both.measurements})
        ['model (friday)', 'model (monday)']
    """
    seen = Counter(model for evaluation in evaluations for model in {m.model for m in evaluation.measurements})
    renamed = []
    for evaluation, name in zip(evaluations, names, strict=True):
        clashes = {m.model: f"{m.model} ({name})" for m in evaluation.measurements if seen[m.model] > 1}
        renamed.append(_rename(evaluation, clashes) if clashes else evaluation)
    joined = join(renamed)
    warnings = [*joined.warnings, f"{len(names)} runs stand side by side; no paired test was made between them."]
    sizes = [max((m.n for m in evaluation.measurements if m.group is None), default=0) for evaluation in evaluations]
    if len(set(sizes)) > 1:
        listed = ", ".join(f"{size:,} in {name}" for size, name in zip(sizes, names, strict=True))
        warnings.append(f"The runs were measured on different samples ({listed}); their rows cannot be compared.")
    commands = tuple(dict.fromkeys(command for evaluation in evaluations for command in evaluation.about.commands))
    about = replace(joined.about, title=", ".join(names), runs=tuple(names), commands=commands)
    return replace(joined, about=about, warnings=tuple(warnings))


def _rename(evaluation: Evaluation, names: Mapping[str, str]) -> Evaluation:
    """The evaluation with its models renamed wherever they are named."""

    def renamed(row: Any) -> Any:
        return replace(row, model=names.get(row.model, row.model))

    about = replace(
        evaluation.about,
        stages={str(renamed(ComparedRow.of(row))): note for row, note in evaluation.about.stages.items()},
        focus=names.get(evaluation.about.focus or "", evaluation.about.focus),
    )
    return replace(
        evaluation,
        measurements=tuple(map(renamed, evaluation.measurements)),
        curves=tuple(map(renamed, evaluation.curves)),
        comparisons=tuple(replace(c, a=renamed(c.a), b=renamed(c.b)) for c in evaluation.comparisons),
        operating_points=tuple(map(renamed, evaluation.operating_points)),
        about=about,
    )
