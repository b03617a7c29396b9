"""Models under shift: every corruption at every severity, streamed, resumable by cell, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from confide import shift
from confide.core.door import InputError, did_you_mean
from confide.core.progress import Progress
from confide.core.records import Split
from confide.core.results import Evaluation
from confide.evaluation.shift_cells import Cell, Notebook, Outputs, Row, Subject, about_samples, measure, predictions_of
from confide.evaluation.shift_tables import Measured, evaluation_of

KINDS = ("benchmark", "corruptions", "corruptions19", "domain", "attacks", "all")
EPSILONS = {
    "fgsm": (1 / 255, 2 / 255, 4 / 255, 8 / 255, 16 / 255),
    "pgd": (1 / 255, 2 / 255, 4 / 255, 8 / 255, 16 / 255),
    "recolour": (0.02, 0.04, 0.06, 0.08, 0.1),
}
"""The severities of an attack: the largest change of a value."""


def shift_grid(
    split: Split,
    subjects: Mapping[str, Subject],
    *,
    words: str | Sequence[str] = "corruptions",
    severities: Sequence[int] = shift.SEVERITIES,
    form: str = "auto",
    seed: int = 0,
    folder: str | Path | None = None,
    batch_size: int = 1000,
    device: str | torch.device = "cpu",
    intervals: bool = True,
    **about: Any,
) -> Evaluation:
    """Accuracy, ECE, NLL, AURC and AUROC of error detection in every cell, their means, and the curves to draw.

    Images are spoilt batch by batch and never kept; what is kept are the rows of a finished cell.

    Args:
        split: clean test images, uint8 `n c h w`.
        subjects: models by name.
        words: a kind (benchmark, corruptions, corruptions19, domain, attacks, all) or words of shifts and attacks.
        form: `32` or `224`; `auto` takes the nearer.
        folder: where finished cells are kept; a second call goes on from them.
        device: where images are spoilt and handed to the models.
        intervals: of the clean images' metrics; the cells have values alone.
        about: what the report says of it.
    """
    if not subjects or not len(split):
        raise InputError("a grid needs at least one model and one image, got none")
    chosen = words_of(words, subjects, channels=int(np.asarray(split.inputs[np.arange(1)]).shape[1]))
    if not severities or any(s not in shift.SEVERITIES for s in severities):
        raise InputError(f"severities must be whole numbers from 1 to 5, got {tuple(severities)}")
    cells = [Cell("clean", 0), *(Cell(word, int(s)) for word in chosen for s in sorted(set(severities)))]
    _check_cells(cells, split, form)
    notebook = Notebook(None if folder is None else Path(folder), about_samples(split, seed, form))
    maker = Maker(split, seed, form, batch_size, torch.device(device))
    found: dict[tuple[str, Cell], list[Row]] = {}
    with Progress("shift grid", len(cells) * len(subjects)) as progress:
        for cell in cells:
            for name, rows in _one_cell(cell, subjects, notebook, maker):
                found[name, cell] = rows
                progress.step(1, f"{cell.name} {name}")
    clean = {name: maker.predict(Cell("clean", 0), [subject])[0] for name, subject in subjects.items()}
    measured = Measured(found, tuple(cells), len(split))
    predictions = {name: one[0] for name, one in clean.items()}
    return evaluation_of(measured, predictions, subjects, seed=seed, intervals=intervals, **about)


def _check_cells(cells: Sequence[Cell], split: Split, form: str) -> None:
    """A shift that cannot be applied to these images is told before the first cell, not after hours."""
    first = torch.from_numpy(np.ascontiguousarray(split.inputs[np.arange(1)]))
    for cell in cells:
        if cell.word in shift.ATTACKS:
            shift.check_attack(first, cell.word)
        elif cell.severity:
            shift.check_shift(first, cell.word, cell.severity, form)


def words_of(words: str | Sequence[str], subjects: Mapping[str, Subject], channels: int = 3) -> tuple[str, ...]:
    """The words of a kind that these images and models allow, or the words given, checked."""
    known = (*shift.names(), *shift.ATTACKS.names())
    given = (words,) if isinstance(words, str) and words in known else words
    if not isinstance(given, str):
        for word in given:
            if word not in known:
                raise InputError(f"no shift or attack named '{word}'; {did_you_mean(word, known)}")
        if not given:
            raise InputError("a grid needs at least one shift, got none")
        return tuple(dict.fromkeys(given))
    if given not in KINDS:
        raise InputError(f"no kind or word '{given}' of shifts; {did_you_mean(given, (*KINDS, *known))}")
    attacks = shift.ATTACKS.names() if given in ("attacks", "all") else ()
    if given == "all" and any(subject.attacked is None for subject in subjects.values()):
        attacks = ()
    found = (*(() if given == "attacks" else shift.names(given)), *attacks)
    colour = {m.word for family in (shift.SHIFTS, shift.ATTACKS) for m in family if m.facts.get("colour")}
    return tuple(word for word in found if channels == 3 or word not in colour)


class Maker:
    """Makes the images of a cell, batch by batch, and hands them to the models."""

    def __init__(self, split: Split, seed: int, form: str, batch_size: int, device: torch.device) -> None:
        self.split, self.seed, self.form, self.batch_size, self.device = split, seed, form, batch_size, device

    def predict(self, cell: Cell, subjects: Sequence[Subject]) -> list[tuple[Any, Any]]:
        """(predictions, features) of every model on the images of the cell."""
        outputs: list[list[Outputs]] = [[] for _ in subjects]
        for start in range(0, len(self.split), self.batch_size):
            rows = np.arange(start, min(start + self.batch_size, len(self.split)))
            clean = torch.from_numpy(np.ascontiguousarray(self.split.inputs[rows])).to(self.device)
            shared = None if cell.word in shift.ATTACKS else self._spoilt(cell, clean, rows)
            for subject, parts in zip(subjects, outputs, strict=True):
                images = self._attacked(cell, clean, rows, subject) if shared is None else shared
                with torch.no_grad():
                    logits, features = subject.forward(images)
                parts.append((logits.cpu(), None if features is None else features.cpu()))
        return [predictions_of(parts, self.split) for parts in outputs]

    def _spoilt(self, cell: Cell, clean: Tensor, rows: Any) -> Tensor:
        if not cell.severity:
            return clean
        made: Tensor = shift.corrupt(
            clean, cell.word, cell.severity, ids=self.split.ids[rows], seed=self.seed, form=self.form
        )
        return made

    def _attacked(self, cell: Cell, clean: Tensor, rows: Any, subject: Subject) -> Tensor:
        if subject.attacked is None:
            raise InputError(f"attack '{cell.word}' needs a model with a gradient; give the subject `attacked`")
        return shift.attack(
            subject.attacked,
            clean,
            self.split.labels[rows],
            cell.word,
            ids=self.split.ids[rows],
            seed=self.seed,
            epsilon=EPSILONS[cell.word][cell.severity - 1],
        )


def _one_cell(
    cell: Cell, subjects: Mapping[str, Subject], notebook: Notebook, maker: Maker
) -> list[tuple[str, list[Row]]]:
    """Rows of every model: read where they were made before, measured where not."""
    kept = {name: notebook.read(name, subject, cell) for name, subject in subjects.items()}
    missing = [name for name, rows in kept.items() if rows is None]
    made = maker.predict(cell, [subjects[name] for name in missing]) if missing else []
    for name, (predictions, features) in zip(missing, made, strict=True):
        rows = measure(predictions, features, subjects[name])
        notebook.write(name, subjects[name], cell, rows)
        kept[name] = rows
    return [(name, rows) for name, rows in kept.items() if rows is not None]
