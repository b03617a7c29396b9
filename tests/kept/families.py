"""All worked cases by family, a file of kept numbers each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.kept import (
    answers,
    asked,
    charts,
    commands,
    draws,
    edges,
    entries,
    evaluation,
    limits,
    numerics,
    pages,
    parts,
    rows,
    seldom,
    sets,
    trained,
)

FAMILIES: dict[str, Callable[[], Iterator[tuple[str, Callable[[], Any]]]]] = {
    **entries.FAMILIES,
    "answers": answers.answer_entries,
    "dense": answers.dense_entries,
    "plot": charts.plot_entries,
    "cli": commands.command_entries,
    "report": pages.page_entries,
    "explorer": asked.explorer_entries,
    "training": trained.training_entries,
    "monitor": pages.watch_entries,
    "edges_of_metrics": edges.metric_entries,
    "edges_of_fits": edges.fitted_entries,
    "beyond": edges.beyond_entries,
    "limits": limits.limit_entries,
    "records": parts.record_entries,
    "searches": numerics.searches,
    "draws": draws.draw_entries,
    "rows": rows.row_entries,
    "edges_of_evaluation": evaluation.evaluation_edges,
    "edges_of_sets": sets.set_edges,
    "seldom": seldom.seldom_entries,
}
