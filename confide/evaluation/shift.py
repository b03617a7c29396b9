"""Models under shift: every corruption at every severity, streamed, resumable by cell; and the measurements and
curves of the grid.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from confide import metrics, shift
from confide.checks import InputError, did_you_mean
from confide.evaluation.evaluate import evaluate
from confide.files import disk, formats
from confide.predictions import Predictions
from confide.progress import Progress
from confide.records import Split
from confide.results import BOX, MEAN_OF_CELLS, OF_SEVERITY, TAILS, About, Curve, Evaluation, Measurement, group_of

# One cell of the grid: a model on one corruption at one severity.

CHANCES = ("confidence_gap", "ece")
"""Also measured of trust predictors whose values are chances of being right (`scale` probability or logit)."""

BatchOutputs = tuple[Tensor, Tensor | None]


@dataclass(frozen=True, eq=False)
class Subject:
    """A model to test under shift.

    Args:
        forward: uint8 images `n c h w` -> logits `n k` and features `n d` (or None).
        stages: fitted calibrators by word.
        trust: fitted trust predictors by word; one with a `scale` of probability or logit is also held to its chances.
        difficulty: (features, labels) -> difficulty of the samples, such as RMD.
        attacked: images in [0, 1] -> logits with a gradient.
        identity: changes when the model does: cells made by another one are not used.
        class_names: of the classes, in their order.
    """

    forward: Callable[[Tensor], BatchOutputs]
    stages: Mapping[str, Callable[[Predictions], Predictions]] = field(default_factory=dict)
    trust: Mapping[str, Callable[[Predictions, Any], Any]] = field(default_factory=dict)
    difficulty: Callable[[Any, Any], Any] | None = None
    attacked: Callable[[Tensor], Tensor] | None = None
    identity: str = ""
    class_names: Sequence[str] | None = None

    def at_stages(self, predictions: Predictions) -> Iterator[tuple[str, Predictions]]:
        """The predictions as trained and after every calibrator."""
        yield "raw", predictions
        for stage, apply in self.stages.items():
            yield stage, apply(predictions)


@dataclass(frozen=True)
class ShiftValue:
    """A metric of a model in one cell, at a stage, ranked by a score."""

    stage: str
    score: str
    metric: str
    value: float
    chance: float | None = None
    chance_high: float | None = None
    """Of a calibration error: what a perfectly calibrated model would show in this cell, on average and in 95 %."""


@dataclass(frozen=True)
class ShiftCell:
    """A word and a severity; severity 0 is clean."""

    word: str
    severity: int

    @property
    def name(self) -> str:
        return f"{self.word}-{self.severity}" if self.severity else "clean"

    @property
    def group(self) -> str:
        return group_of("shift", f"{self.word}/{self.severity}")


@dataclass(frozen=True)
class GridSamples:
    """What decides the images of a cell: the samples, the seed and the form."""

    samples: str
    """Their fingerprint."""
    seed: int
    form: str


@dataclass(frozen=True)
class CellStore:
    """Cells kept as files, so that a stopped grid goes on where it was; without a folder nothing is kept."""

    folder: Path | None
    about: GridSamples

    def _key(self, subject: Subject, cell: ShiftCell) -> str:
        identity = {**vars(self.about), "cell": cell.name, "identity": subject.identity}
        identity |= {
            "stages": sorted(subject.stages),
            "trust": sorted(subject.trust),
            "rmd": subject.difficulty is not None,
        }
        return hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=16).hexdigest()

    def read(self, model: str, subject: Subject, cell: ShiftCell) -> list[ShiftValue] | None:
        """The rows of a cell made before by the same model on the same samples, or None."""
        path = self._path(model, cell)
        if path is None or not path.exists():
            return None
        data = formats.read_json(path)
        if (
            not isinstance(data, dict)
            or not formats.SHIFT_CELL.fits(data.get("format"))
            or data.get("key") != self._key(subject, cell)
        ):
            return None
        return [
            ShiftValue(**{**row, "value": math.nan if row["value"] is None else row["value"]}) for row in data["rows"]
        ]

    def write(self, model: str, subject: Subject, cell: ShiftCell, rows: list[ShiftValue]) -> None:
        """Keep the rows of a cell, atomically."""
        path = self._path(model, cell)
        if path is not None:
            data = {
                "format": formats.SHIFT_CELL.tag,
                "key": self._key(subject, cell),
                "rows": [asdict(row) for row in rows],
            }
            formats.write_json(path, data)

    def _path(self, model: str, cell: ShiftCell) -> Path | None:
        safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in model)
        return None if self.folder is None else self.folder / "cells" / safe / f"{cell.name}.json"


def predictions_of(outputs: list[BatchOutputs], split: Split) -> tuple[Predictions, Any]:
    """Predictions and features of all batches of a cell."""
    logits = torch.cat([batch[0].float().cpu() for batch in outputs])
    if not bool(torch.isfinite(logits).all()):
        raise InputError("the model gave logits that are not finite on shifted images; check its precision")
    rows = [batch[1] for batch in outputs]
    features = (
        None if any(row is None for row in rows) else torch.cat([row.float().cpu() for row in rows if row is not None])
    )
    return Predictions(logits, torch.as_tensor(split.labels), ids=split.ids, split="test"), features


def sample_box(values: NDArray[np.float64]) -> dict[str, float]:
    """The box of some samples: quartiles, and whiskers that hold 95 %."""
    return dict(zip(BOX, np.quantile(values, (TAILS[0], 0.25, 0.5, 0.75, TAILS[1])).tolist(), strict=True))


def measure_cell(predictions: Predictions, features: Any, subject: Subject) -> list[ShiftValue]:
    """Rows of a cell: every metric as trained and after every calibrator, ranking by every trust predictor, RMD."""
    measured = metrics.explain(metrics.table_words("shift"))
    ranked = [word for word, info in measured.items() if info.kind == "ranking"]
    rows = []
    for stage, record in subject.at_stages(predictions):
        rows += [_shift_value(stage, "msp", word, record) for word in measured]
    for name, predictor in subject.trust.items():
        values = np.asarray(predictor(predictions, features), dtype=np.float64)
        rows += [_shift_value("raw", f"trust:{name}", word, predictions, values) for word in ranked]
        if getattr(predictor, "scale", "score") in ("probability", "logit"):
            claimed = _trust_as_confidence(predictions, values, predictor)
            rows += [_shift_value("raw", f"trust:{name}", word, claimed) for word in CHANCES]
    if subject.difficulty is not None:
        hard = np.asarray(subject.difficulty(features, predictions.labels.numpy()), dtype=np.float64)
        rows += [ShiftValue("raw", "msp", f"rmd_{name}", value) for name, value in sample_box(hard).items()]
        rows.append(ShiftValue("raw", "msp", "rmd_mean", float(hard.mean())))
    return rows


def _trust_as_confidence(predictions: Predictions, values: NDArray[np.float64], predictor: Any) -> Predictions:
    """The predictions with the predictor's chances of being right as their confidence."""
    chances = expit(values) if predictor.scale == "logit" else values
    confidence = torch.from_numpy(np.clip(chances, 0.0, 1.0))
    return Predictions.from_top1(predictions.labels, predictions.facts.prediction, confidence, predictions.ids, "test")


def _shift_value(stage: str, name: str, word: str, predictions: Predictions, score: Any = None) -> ShiftValue:
    options = {} if score is None else {"score": score}
    value = float(getattr(metrics, word)(predictions, **options))
    if metrics.explain((word,))[word].kind != "calibration":
        return ShiftValue(stage, name, word, value)
    chance = metrics.calibration_test(predictions, word)
    return ShiftValue(stage, name, word, value, chance.mean, chance.high)


# What a grid shows.


@dataclass(frozen=True)
class GridValues:
    """Rows of every model and cell."""

    rows: Mapping[tuple[str, ShiftCell], list[ShiftValue]]
    cells: tuple[ShiftCell, ...]
    n: int

    def value(self, model: str, cell: ShiftCell, stage: str, metric: str, score: str = "msp") -> float:
        """One number; NaN where it was not measured."""
        return self.row(model, cell, stage, metric, score).value

    def row(self, model: str, cell: ShiftCell, stage: str, metric: str, score: str) -> ShiftValue:
        """One number with what chance would show; NaN where it was not measured."""
        for row in self.rows[model, cell]:
            if (row.stage, row.score, row.metric) == (stage, score, metric):
                return row
        return ShiftValue(stage, score, metric, math.nan)

    def scores(self, model: str, metric: str = "ece") -> tuple[str, ...]:
        """The scores whose values this metric was measured of."""
        rows = self.rows[model, self.cells[0]]
        return tuple(dict.fromkeys(row.score for row in rows if row.metric == metric))

    @property
    def shifted(self) -> tuple[ShiftCell, ...]:
        return tuple(cell for cell in self.cells if cell.severity)

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cell.word for cell in self.shifted))

    @property
    def severities(self) -> tuple[int, ...]:
        return tuple(sorted({cell.severity for cell in self.shifted}))

    def at(self, severity: int) -> list[ShiftCell]:
        """The cells of a severity; of 0, the clean one."""
        return [cell for cell in self.cells if cell.severity == severity]


def grid_evaluation(
    measured: GridValues,
    clean: Mapping[str, Predictions],
    subjects: Mapping[str, Subject],
    *,
    seed: int = 0,
    intervals: bool = True,
    about: About | None = None,
) -> Evaluation:
    """The clean evaluation of every model and stage, and what the cells add to it."""
    measurements: list[Measurement] = []
    curves: list[Curve] = []
    for model, predictions in clean.items():
        for stage, record in subjects[model].at_stages(predictions):
            named = record.replace(class_names=subjects[model].class_names)
            evaluation = evaluate(named, "core", intervals, model=model, stage=stage, seed=seed)
            measurements += evaluation.measurements
            curves += evaluation.curves
            curves += cell_curves(measured, model, stage)
            curves.append(box_curve(measured, "shift_boxes", "confidence_gap", model, stage))
            curves.append(box_curve(measured, "shift_ece_boxes", "ece", model, stage))
        measurements += cell_rows(measured, model)
        curves += [
            box_curve(measured, "shift_trust_ece_boxes", "ece", model, score=score)
            for score in measured.scores(model)
            if score != "msp"
        ]
        if subjects[model].difficulty is not None:
            curves.append(rmd_curve(measured, model))
    names = next(iter(subjects.values())).class_names
    known = About(title="Under shift", unit="images", class_names=tuple(names or ()), seed=seed)
    return Evaluation(tuple(measurements), tuple(curves), about=(about or About()).over(known))


def cell_rows(measured: GridValues, model: str) -> list[Measurement]:
    """Every number of every cell (`shift=fog/3`), its mean over the cells and over those of a severity (0 is clean)."""
    groups: dict[str, Sequence[ShiftCell]] = {cell.group: (cell,) for cell in measured.shifted}
    groups |= {group_of("shift", f"{OF_SEVERITY}{s}"): measured.at(s) for s in (0, *measured.severities)}
    groups[group_of("shift", MEAN_OF_CELLS)] = measured.shifted
    keys = dict.fromkeys((row.stage, row.score, row.metric) for row in measured.rows[model, measured.cells[0]])
    rows = []
    for group, cells in groups.items():
        for stage, score, metric in keys:
            own = [measured.row(model, cell, stage, metric, score) for cell in cells]
            values, levels = [row.value for row in own], [row.chance for row in own if row.chance is not None]
            finite = [v for v in values if np.isfinite(v)]
            mean = float(np.mean(finite)) if finite else float("nan")
            # In a cell of right (or of wrong) predictions alone an AUROC is not defined; the mean is over the others.
            lacking = len(values) - len(finite)
            note = f"{lacking} cells without a value" if finite and lacking else None
            chance = float(np.mean(levels)) if len(levels) == len(cells) else None
            # The limit of a mean over cells of the same images is not the mean of their limits: only a cell has one.
            high = own[0].chance_high if len(cells) == 1 else None
            rows.append(
                Measurement(metric, mean, measured.n, "test", stage, group, model, score, chance, high, note=note)
            )
    return rows


def cell_curves(measured: GridValues, model: str, stage: str) -> list[Curve]:
    """One curve per corruption: the numbers by severity, 0 is clean."""
    return [
        _curve(
            "shift_cells",
            [0, *(c.severity for c in measured.shifted if c.word == word)],
            {
                "gap" if metric == "confidence_gap" else metric: [
                    measured.value(model, cell, stage, metric)
                    for cell in measured.cells
                    if cell.word == word or not cell.severity
                ]
                for metric in metrics.table_words("shift")
            },
            model=model,
            stage=stage,
            group=f"corruption={word}",
        )
        for word in measured.words
    ]


def box_curve(
    measured: GridValues, kind: str, metric: str, model: str, stage: str = "raw", score: str = "msp"
) -> Curve:
    """Extremes, quartiles and median over the corruptions, by severity; 0 is clean."""
    severities = (0, *measured.severities)
    boxes = [
        np.quantile(
            [measured.value(model, cell, stage, metric, score) for cell in measured.at(s)], (0, 0.25, 0.5, 0.75, 1)
        )
        for s in severities
    ]
    columns = {name: [float(box[k]) for box in boxes] for k, name in enumerate(BOX)}
    tags = {} if score == "msp" else {"score": score}
    return _curve(kind, severities, columns, model=model, stage=stage, **tags)


def rmd_curve(measured: GridValues, model: str) -> Curve:
    """RMD of the images by severity: mean and quantiles of a cell, averaged over the corruptions."""
    severities = (0, *measured.severities)
    columns = {
        name: [
            float(np.mean([measured.value(model, c, "raw", f"rmd_{name}") for c in measured.at(s)])) for s in severities
        ]
        for name in ("mean", *BOX)
    }
    return _curve("rmd_severity", severities, columns, model=model)


def label_noise_curve(
    difficulty: Callable[[Any, Any], Any],
    features: Any,
    labels: Any,
    noisy: Callable[[Any, float], Any],
    *,
    rates: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
    model: str = "model",
) -> Curve:
    """RMD of the same samples as more and more of their labels are wrong: quartiles, 95 % and mean by rate.

    Args:
        difficulty: (features, labels) -> difficulty of the samples, such as RMD.
        features: of the samples, n x d.
        labels: of the samples, as they are.
        noisy: (labels, rate) -> labels, such as `shift.noisy_labels` with its ids.
        rates: shares of wrong labels.
        model: the model's name.

    Returns:
        A curve `rmd_label_noise`.

    Example:
        >>> import numpy as np
        >>> def difficulty(features, labels):
        ...     return np.abs(features[:, 0] - labels)
        >>> def noisy(labels, rate):
        ...     return np.where(np.arange(len(labels)) < rate * len(labels), 1 - labels, labels)
        >>> labels = np.array([0, 1, 0, 1])
        >>> curve = confide.evaluation.label_noise_curve(difficulty, labels[:, None], labels, noisy, rates=(0, 0.5))
        >>> curve.columns["mean"]
        (0.0, 0.5)
    """
    columns: dict[str, list[float]] = {name: [] for name in ("mean", *BOX)}
    for rate in rates:
        hard = np.asarray(difficulty(features, noisy(labels, rate)), dtype=np.float64)
        columns["mean"].append(float(hard.mean()))
        for name, value in sample_box(hard).items():
            columns[name].append(value)
    return Curve.of("rmd_label_noise", {"rate": rates, **columns}, model=model, split="test")


def _curve(kind: str, severities: Sequence[int], columns: Mapping[str, Sequence[float]], **tags: Any) -> Curve:
    return Curve.of(kind, {"severity": severities, **columns}, split="test", **tags)


# The grid.

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
    about: About | None = None,
) -> Evaluation:
    """Accuracy, ECE, NLL, AURC and AUROC of error detection in every cell, their means, and the curves to draw.

    Images are spoilt batch by batch and never kept; what is kept are the rows of a finished cell.

    Args:
        split: clean test images, uint8 `n c h w`.
        subjects: models by name.
        words: a kind (benchmark, corruptions, corruptions19, domain, attacks, all) or words of shifts and attacks.
        severities: whole numbers from 1 to 5.
        form: `32` or `224`; `auto` takes the nearer.
        seed: of the corruptions and of the resamples.
        folder: where finished cells are kept; a second call goes on from them.
        batch_size: images that are spoilt and predicted at once.
        device: where images are spoilt and handed to the models.
        intervals: of the clean images' metrics; the cells have values alone.
        about: what the report says of it.

    Returns:
        An Evaluation of the clean images with the groups `shift=fog/3`, `shift=severity 3` and `shift=mean` added.

    Raises:
        InputError: no such shift, or one that these images or models do not allow; told before the first cell.

    Example:
        >>> import numpy as np
        >>> images = np.zeros((4, 3, 32, 32), np.uint8)
        >>> split = confide.Split(images, np.array([0, 1, 0, 1]), np.arange(4))
        >>> def forward(batch):  # -> logits n k, and features or None
        ...     return batch.float().flatten(1)[:, :2] - 9, None
        >>> subjects = {"mine": confide.evaluation.Subject(forward)}
        >>> grid = confide.evaluation.shift_grid(split, subjects, words=["brightness"], severities=[1], intervals=False)
        >>> grid.value("accuracy", group="shift=brightness/1")
        0.5
    """
    if not subjects or not len(split):
        raise InputError("a grid needs at least one model and one image, got none")
    chosen = shift_words(words, subjects, channels=int(np.asarray(split.inputs[np.arange(1)]).shape[1]))
    if not severities or any(s not in shift.SEVERITIES for s in severities):
        raise InputError(f"severities must be whole numbers from 1 to 5, got {tuple(severities)}")
    cells = [ShiftCell("clean", 0), *(ShiftCell(word, int(s)) for word in chosen for s in sorted(set(severities)))]
    _check_cells(cells, split, form)
    notebook = CellStore(None if folder is None else Path(folder), GridSamples(split.fingerprint, seed, form))
    maker = ShiftPredictor(split, seed, form, batch_size, torch.device(device))
    values: dict[tuple[str, ShiftCell], list[ShiftValue]] = {}
    held = nullcontext() if folder is None else disk.locked(Path(folder))
    with held, Progress("shift grid", len(cells) * len(subjects)) as progress:
        if folder is not None:
            disk.remove_leftovers([Path(folder), *(Path(folder) / "cells").glob("*")])
        for cell in cells:
            for name, rows in _cell_rows(cell, subjects, notebook, maker):
                values[name, cell] = rows
                progress.step(1, f"{cell.name} {name}")
    clean = {name: maker.predict(cells[0], [subject])[0][0] for name, subject in subjects.items()}
    measured = GridValues(values, tuple(cells), len(split))
    return grid_evaluation(measured, clean, subjects, seed=seed, intervals=intervals, about=about)


def _check_cells(cells: Sequence[ShiftCell], split: Split, form: str) -> None:
    """A shift that cannot be applied to these images is told before the first cell, not after hours."""
    first = torch.from_numpy(np.ascontiguousarray(split.inputs[np.arange(1)]))
    for cell in cells:
        if cell.word in shift.ATTACKS:
            shift.check_attack(first, cell.word)
        elif cell.severity:
            shift.check_shift(first, cell.word, cell.severity, form)


def shift_words(words: str | Sequence[str], subjects: Mapping[str, Subject], channels: int = 3) -> tuple[str, ...]:
    """The words of a kind that these images and models allow, or the words given, checked."""
    known = (*shift.names(), *shift.ATTACKS.names())
    chosen = (words,) if isinstance(words, str) and words in known else words
    if not isinstance(chosen, str):
        for word in chosen:
            if word not in known:
                raise InputError(f"no shift or attack named '{word}'; {did_you_mean(word, known)}")
        if not chosen:
            raise InputError("a grid needs at least one shift, got none")
        return tuple(dict.fromkeys(chosen))
    if chosen not in KINDS:
        raise InputError(f"no kind or word '{chosen}' of shifts; {did_you_mean(chosen, (*KINDS, *known))}")
    attacks = shift.ATTACKS.names() if chosen in ("attacks", "all") else ()
    if chosen == "all" and any(subject.attacked is None for subject in subjects.values()):
        attacks = ()
    allowed = (*(() if chosen == "attacks" else shift.names(chosen)), *attacks)
    colour = {m.word for family in (shift.SHIFTS, shift.ATTACKS) for m in family if m.spec.colour}
    return tuple(word for word in allowed if channels == 3 or word not in colour)


class ShiftPredictor:
    """Makes the images of a cell, batch by batch, and hands them to the models."""

    def __init__(self, split: Split, seed: int, form: str, batch_size: int, device: torch.device) -> None:
        self.split, self.seed, self.form, self.batch_size, self.device = split, seed, form, batch_size, device

    def predict(self, cell: ShiftCell, subjects: Sequence[Subject]) -> list[tuple[Any, Any]]:
        """(predictions, features) of every model on the images of the cell."""
        outputs: list[list[BatchOutputs]] = [[] for _ in subjects]
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

    def _spoilt(self, cell: ShiftCell, clean: Tensor, rows: Any) -> Tensor:
        if not cell.severity:
            return clean
        spoilt: Tensor = shift.corrupt(
            clean, cell.word, cell.severity, ids=self.split.ids[rows], seed=self.seed, form=self.form
        )
        return spoilt

    def _attacked(self, cell: ShiftCell, clean: Tensor, rows: Any, subject: Subject) -> Tensor:
        if subject.attacked is None:
            raise InputError(f"attack '{cell.word}' needs a model with a gradient; give the subject `attacked`")
        labels, ids, epsilon = self.split.labels[rows], self.split.ids[rows], EPSILONS[cell.word][cell.severity - 1]
        return shift.attack(subject.attacked, clean, labels, cell.word, ids=ids, seed=self.seed, epsilon=epsilon)


def _cell_rows(
    cell: ShiftCell, subjects: Mapping[str, Subject], notebook: CellStore, maker: ShiftPredictor
) -> list[tuple[str, list[ShiftValue]]]:
    """Rows of every model: read where they were made before, measured where not."""
    rows_of = {name: notebook.read(name, subject, cell) for name, subject in subjects.items()}
    missing = [name for name, rows in rows_of.items() if rows is None]
    predicted = maker.predict(cell, [subjects[name] for name in missing]) if missing else []
    for name, (predictions, features) in zip(missing, predicted, strict=True):
        rows = measure_cell(predictions, features, subjects[name])
        notebook.write(name, subjects[name], cell, rows)
        rows_of[name] = rows
    return [(name, rows) for name, rows in rows_of.items() if rows is not None]
