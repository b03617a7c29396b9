"""The sections of the report, in their order: each in a file of its own, from a view to what the template shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confide.report.sections.coverage import coverage_section as coverage_section
from confide.report.sections.decisions import decisions_section as decisions_section
from confide.report.sections.difficulty import difficulty_section as difficulty_section
from confide.report.sections.maps import maps_section as maps_section
from confide.report.sections.models import models_section as models_section
from confide.report.sections.provenance import provenance_section as provenance_section
from confide.report.sections.reliability import reliability_section as reliability_section
from confide.report.sections.sets import sets_section as sets_section
from confide.report.sections.shift import shift_section as shift_section
from confide.report.sections.slices import slices_section as slices_section
from confide.report.sections.training import training_section as training_section
from confide.report.sections.trust import trust_section as trust_section
from confide.report.view import EvaluationView as EvaluationView


@dataclass(frozen=True)
class Section:
    """A section: its place in the page (`#models`), its title, and what makes its content.

    The content is what the template shows under the name `id`; its `drawings` are all figures, in their order.
    """

    id: str
    title: str
    build: Callable[[EvaluationView], Any]
    optional: bool = False  # left out where it has no drawing, instead of saying what is missing


SECTIONS = (
    Section("models", "Models", models_section),
    Section("reliability", "Reliability", reliability_section),
    Section("slices", "Slices", slices_section, optional=True),
    Section("maps", "Maps", maps_section, optional=True),
    Section("coverage", "Risk and coverage", coverage_section),
    Section("sets", "Prediction sets", sets_section, optional=True),
    Section("decisions", "Decisions", decisions_section, optional=True),
    Section("trust", "Trust", trust_section),
    Section("difficulty", "Difficulty", difficulty_section),
    Section("shift", "Shift", shift_section),
    Section("training", "Training", training_section),
    Section("made", "How it was made", provenance_section),
)
