"""Where things are in an Evaluation: models, stages, the one in focus, and look-ups that may find nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from confide.checks import InputError
from confide.report.words import count, same_scores, units_words
from confide.results import LEVEL, About, ComparedRow, Comparison, Curve, Evaluation, Measurement, MetricInfo, Sample

MOST_DRAWN = 5  # models in one drawing: there are five colours beside grey


@dataclass(frozen=True)
class EvaluationView:
    """Look-ups over an evaluation; numbers are found here, never made."""

    evaluation: Evaluation

    def __post_init__(self) -> None:
        if not isinstance(self.evaluation, Evaluation):
            raise InputError(
                f"a report is drawn from an Evaluation, got {type(self.evaluation).__name__}; "
                "make one with confide.evaluate, or read evaluation.json with Evaluation.load"
            )

    @cached_property
    def split(self) -> str | None:
        """The split to show: test where there is one, else the first named."""
        splits = [m.split for m in self.evaluation.measurements]
        return "test" if "test" in splits else next((s for s in splits if s), None)

    @cached_property
    def measurements(self) -> tuple[Measurement, ...]:
        """Measurements of that split."""
        return tuple(m for m in self.evaluation.measurements if m.split in (self.split, None))

    @cached_property
    def models(self) -> tuple[str, ...]:
        """Models in the order in which they were measured."""
        whole = [m.model for m in self.measurements if m.group is None]
        return tuple(dict.fromkeys(whole or [c.model for c in self.evaluation.curves] or ["model"]))

    @cached_property
    def drawn(self) -> tuple[str, ...]:
        """The models that drawings have room and colours for, the one in focus among them."""
        first = self.models[:MOST_DRAWN]
        return first if self.focus in first else (*first[:-1], self.focus)

    @property
    def left_out_note(self) -> str:
        """What a drawing of several models says of those it has no room for."""
        if len(self.models) <= MOST_DRAWN:
            return ""
        return f"{MOST_DRAWN} of {len(self.models)} models are drawn; the table of models has all."

    @cached_property
    def stages(self) -> tuple[str, ...]:
        """Stages, as trained first."""
        stages = dict.fromkeys(m.stage for m in self.measurements if m.group is None)
        return tuple(sorted(stages, key=lambda stage: stage != "raw")) or ("raw",)

    @cached_property
    def focus(self) -> str:
        """The model that the verdict speaks of: the one `about` names, else the first."""
        named = self.about.focus
        return named if named is not None and named in self.models else self.models[0]

    @cached_property
    def before(self) -> str:
        """The first stage of the model in focus: as trained, or the only one there is."""
        own = {m.stage for m in self.measurements if m.model == self.focus and m.group is None}
        return next((stage for stage in self.stages if stage in own), "raw")

    @cached_property
    def after(self) -> str | None:
        """The calibrated stage of the model in focus: the one `about` chose, else the first after `before`."""
        calibrated = [s for s in self.stages if s != self.before and self.find("accuracy", stage=s)]
        chosen = self.about.chosen_stage
        return chosen if chosen in calibrated else next(iter(calibrated), None)

    @property
    def final(self) -> str:
        """The stage to trust with: after calibration where there is one."""
        return self.after or self.before

    @property
    def about(self) -> About:
        """What is known of how it was made."""
        return self.evaluation.about

    @property
    def unit(self) -> str:
        """What the samples are called: images, texts, samples; weighted ones say so."""
        unit = self.about.unit or "samples"
        return unit if self.about.weighted_by is None else f"weighted {unit}"

    @property
    def drawn_alone(self) -> bool:
        """Whether every sample was drawn by itself and counts as much as any other."""
        return self.about.drawn_as is None and self.about.weighted_by is None

    def size(self, n: float, split: str = "") -> str:
        """So many samples, and what they were drawn as: `14,400 pixels of 60 images`."""
        of = "" if self.about.drawn_as is None or self.about.runs else f"of {units_words(self.about)}"
        return " ".join(filter(None, [count(n), split, self.unit, of]))

    @property
    def units_note(self) -> str:
        """A sentence on samples that were drawn several as one."""
        if self.about.drawn_as is None or self.about.runs:
            return ""
        return f"Intervals, tests and chance levels count {units_words(self.about)}, not {self.unit}."

    @property
    def weights_note(self) -> str:
        """A sentence on the weights of the samples, where they differ."""
        by, worth = self.about.weighted_by, self.about.effective_samples
        if by is None or worth is None:
            return ""
        return f"Samples are weighted by {by}: they are worth {count(worth)} samples of equal weight."

    @cached_property
    def n(self) -> int:
        """How many samples the model in focus was measured on."""
        accuracy = self.find("accuracy")
        return accuracy.n if accuracy else max((m.n for m in self.measurements), default=0)

    def explorer_filters(self, model: str | None = None, stage: str | None = None) -> dict[str, str | None]:
        """Filters of the explorer for all samples of a model (in focus) at a stage (the one to trust with)."""
        return {"split": self.split, "model": model or self.focus, "stage": stage or self.final}

    def find(
        self,
        metric: str,
        model: str | None = None,
        stage: str | None = None,
        group: str | None = None,
        score: str | None = None,
    ) -> Measurement | None:
        """A measurement of a model (in focus) and stage (the first unless said), or None; NaN counts as none."""
        scores = same_scores(score)
        where = (metric, model or self.focus, stage or self.before, group)
        for m in self.measurements:
            if (m.metric, m.model, m.stage, m.group) == where and m.score in scores and math.isfinite(m.value):
                return m
        return None

    def info(self, metric: str) -> MetricInfo:
        """What a reader is told about a metric."""
        return self.evaluation.info(metric)

    def columns(self, table: str) -> list[MetricInfo]:
        """The metrics of a table that some model has at some stage, in their order."""
        everywhere = [(model, stage) for model in self.models for stage in self.stages]
        return [c for c in self.evaluation.columns(table) if any(self.find(c.word, *where) for where in everywhere)]

    def calibration_error(self, stage: str, model: str | None = None) -> Measurement | None:
        """The calibration error that verdict and tiles speak of: the first of the headline that was measured."""
        words = [c.word for c in self.evaluation.columns("headline") if c.kind == "calibration"]
        return next((m for word in words if (m := self.find(word, model, stage))), None)

    def by_group(self, metric: str, kind: str, model: str, stage: str) -> dict[str, Measurement]:
        """Measurements of groups such as "class=Shirt", by the part after the sign."""
        start = f"{kind}="
        return {
            m.group.removeprefix(start): m
            for m in self.measurements
            if m.metric == metric and m.model == model and m.stage == stage and m.group and m.group.startswith(start)
        }

    def curves(self, kind: str, **where: Any) -> list[Curve]:
        """Curves of a kind whose fields are as given, of the shown split, with at least one row."""
        return [
            c
            for c in self.evaluation.curves
            if c.kind == kind
            and c.split in (self.split, None, "train", "val")
            and all(getattr(c, name) == value for name, value in where.items())
            and any(len(column) for column in c.columns.values())
        ]

    def curve(
        self, kind: str, model: str, stages: Iterable[str], score: str | None = None, **where: Any
    ) -> Curve | None:
        """The first curve of a model at the first of the stages that has one, on the shown split if it can."""
        for word, stage in product(same_scores(score), stages):
            curves = self.curves(kind, model=model, stage=stage, score=word, **where)
            curves.sort(key=lambda c: c.split not in (self.split, None))
            if curves:
                return curves[0]
        return None

    def halving_row(self, coverage: Sequence[float], stage: str) -> int:
        """The place among coverages where the error rate is halved at that stage, else that of 90 %."""
        halving = self.find("halving_rejection", stage=stage)
        place = 1 - halving.value if halving else 0.9
        return min(range(len(coverage)), key=lambda k: abs(coverage[k] - place))

    def halves(self, share: Measurement) -> bool:
        """Whether the data tell how many to set aside to halve the error rate: not by setting aside all of them."""
        return share.value < 1 and not share.high >= 1

    def samples(self, role: str) -> list[Sample]:
        """Samples of a role."""
        return [s for s in self.evaluation.samples if s.role == role]

    def test(self, metric: str, first: ComparedRow, second: ComparedRow) -> Comparison | None:
        """The paired test of two rows, either way round."""
        sides = {first, second}
        return next((c for c in self.evaluation.comparisons if c.metric == metric and {c.a, c.b} == sides), None)

    def beats(self, metric: str, winner: ComparedRow, other: ComparedRow) -> bool:
        """Whether their paired test, Holm-corrected, says that the first is better."""
        test = self.test(metric, winner, other)
        return test is not None and test.p_holm < LEVEL and test.winner == winner

    def best(self, metric: str, rows: Iterable[ComparedRow]) -> ComparedRow | None:
        """The row that beats every other of its group, or None."""
        named = list(rows)
        for row in named:
            if len(named) > 1 and all(self.beats(metric, row, other) for other in named if other != row):
                return row
        return None

    def colour(self, model: str) -> str:
        """The colour number of a model, which it keeps through the page; grey where it is not drawn."""
        return str(self.drawn.index(model) + 1) if model in self.drawn else "g"

    def stage_phrase(self, stage: str) -> str:
        """A stage in plain words: `temperature` is temperature scaling; an unknown word stays itself."""
        return "as trained" if stage == "raw" else self.evaluation.stage_titles.get(stage, stage)

    def when(self, stage: str) -> str:
        """At which stage: `as trained`, or `after temperature scaling`."""
        return self.stage_phrase(stage) if stage == "raw" else f"after {self.stage_phrase(stage)}"

    def stage_title(self, stage: str) -> str:
        """The heading of the rows of a stage."""
        words = self.when(stage)
        return words[0].upper() + words[1:]

    def stage_note(self, model: str, stage: str) -> str:
        """A fitted calibrator in short, "T = 1.23"."""
        return self.about.stages.get(f"{model}/{stage}", "")

    def why_missing(self, section: str) -> str:
        """Why a section has nothing to show, if the evaluation says it."""
        return self.about.missing.get(section, "")
