"""Difficulty: its distribution, errors by band, the easiest and hardest of each class, and suspected labels."""

from __future__ import annotations

from dataclasses import dataclass

from confide.core.results import Sample
from confide.report.figure import Empty, Figure
from confide.report.glossary import FROM_FEATURES
from confide.report.sections.bands import difficulty_text, distribution, error_by_band
from confide.report.view import View

ACROSS = 4  # pictures of each kind in a row
MOST_CLASSES = 20
SUSPECTS = 12


@dataclass(frozen=True)
class Picture:
    """A sample in a gallery, with words for those who cannot see it."""

    sample: Sample
    alt: str
    score: str
    wrong: bool


@dataclass(frozen=True)
class GalleryRow:
    """Easiest and hardest of a class."""

    label: str
    easiest: tuple[Picture, ...]
    hardest: tuple[Picture, ...]


@dataclass(frozen=True)
class Difficulty:
    """What the section shows."""

    figures: tuple[Figure, ...] = ()
    rows: tuple[GalleryRow, ...] = ()
    left_out: int = 0
    suspects: tuple[Picture, ...] = ()
    suspects_in_all: int = 0
    note: str = ""
    texts: bool = False
    empty: Empty | None = None


def difficulty_section(view: View) -> Difficulty:
    """Charts and galleries of difficulty, or what is missing."""
    figures = tuple(f for f in (distribution(view), error_by_band(view)) if f)
    rows = _gallery(view)
    suspects = view.samples("suspect")
    if not (figures or rows or suspects):
        why = view.why_missing("difficulty") or "No sample of this evaluation has a difficulty score."
        return Difficulty(empty=Empty("No difficulty scores", why, "confide score DATA --split test -o scores.parquet"))
    from_features = view.about.get("difficulty") in FROM_FEATURES
    return Difficulty(
        figures,
        rows[:MOST_CLASSES],
        max(0, len(rows) - MOST_CLASSES),
        tuple(_picture(s) for s in suspects[:SUSPECTS]),
        len(suspects),
        ("The score never sees the model: it comes from features alone. " if from_features else "")
        + "Where it foretells errors, it can weight training or choose what to check by hand.",
        any(s.text and not s.picture for s in view.evaluation.samples),
    )


def _picture(sample: Sample) -> Picture:
    wrong = sample.prediction is not None and sample.prediction != sample.label
    said = f", predicted {sample.prediction}" if sample.prediction is not None else ""
    return Picture(sample, f"{sample.label}{said}", difficulty_text(sample.difficulty), wrong)


def _gallery(view: View) -> tuple[GalleryRow, ...]:
    easiest, hardest = view.samples("easiest"), view.samples("hardest")
    found = dict.fromkeys(s.label for s in [*easiest, *hardest])
    order = [str(name) for name in view.about.get("class_names") or []]
    labels = sorted(found, key=lambda label: order.index(label) if label in order else len(order))
    return tuple(
        GalleryRow(
            label,
            tuple(_picture(s) for s in easiest if s.label == label)[:ACROSS],
            tuple(_picture(s) for s in hardest if s.label == label)[:ACROSS],
        )
        for label in labels
    )
