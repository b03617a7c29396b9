"""One sample: its row in words, the top classes before and after calibration, and what its scores say."""

from __future__ import annotations

from typing import Any

import torch

from confide.core.predictions import Predictions
from confide.explorer.layout import RAW, Missing
from confide.explorer.questions import Question
from confide.explorer.said import LogitsReader, load_calibrator
from confide.explorer.samples import Column
from confide.explorer.table import Table

TOP = 5


def describe_rows(table: Table, question: Question, rows: list[int]) -> list[dict[str, Any]]:
    """What a cell of the grid shows, in the order of the rows."""
    if not rows:
        return []
    voice = question.voice
    label = "label" if "label" in question.columns else "NULL"
    hard = "difficulty" if "difficulty" in question.columns else "NULL"
    said = f"{voice.table}.prediction, {voice.table}.confidence, {voice.table}.hit" if voice else "NULL, NULL, NULL"
    source = f"{table.source((voice,))} LEFT JOIN marks USING (row)"
    # The sorted-by value is shown where it is neither difficulty nor confidence.
    shown = question.columns[question.sort].sql if question.sort in question.columns else "NULL"
    places = ", ".join(str(int(row)) for row in rows)
    found = table.fetch(
        f"SELECT row, id, split, {label}, {hard}, {said}, action, {shown} FROM {source} WHERE row IN ({places})"
    )
    by_row = {r[0]: r for r in found}
    from confide.explorer.table import ACTIONS

    name, splits = table.samples.name_of, table.samples.columns["split"].values
    cells = []
    for row in rows:
        _, sample, split, truth, difficulty, prediction, confidence, hit, action, value = by_row[row]
        cells.append(
            {
                "row": row,
                "id": sample,
                "split": splits[split],
                "label": name(truth),
                "difficulty": difficulty,
                "prediction": name(prediction),
                "confidence": confidence,
                "right": hit,
                "tag": None if action is None else ACTIONS[action],
                "value": value,
            }
        )
    return cells


def describe(table: Table, question: Question, row: int, logits: LogitsReader) -> dict[str, Any]:
    """Everything of one sample that is known at once."""
    cell = describe_rows(table, question, [row])[0]
    tag = table.tags.get(cell["split"], cell["id"])
    new = None if tag is None or tag.new_label is None else table.samples.name_of(tag.new_label)
    values = _values(table, question, row)
    return {
        **cell,
        "top": _top(table, question, row, logits),
        "values": values,
        "suggested": _suggested(table, row),
        "tag": None if tag is None else tag.action,
        "new_label": new,
        "new_value": None if tag is None else tag.new_label,
        "note": "" if tag is None else tag.note,
        "changed": "" if tag is None else tag.changed,
    }


def _values(table: Table, question: Question, row: int) -> list[dict[str, Any]]:
    """The value of every column, and the share of samples that have a smaller one where that tells something."""
    columns = [c for c in question.columns.values() if c.key not in ("split", "label", "prediction", "outcome")]
    if not columns:
        return []
    source = table.source((question.voice,))
    found = table.fetch(f"SELECT {', '.join(c.sql for c in columns)} FROM {source} WHERE row = ?", [row])[0]
    return [
        {"key": c.key, "title": c.title, "kind": c.kind, "value": value, "word": _word(table, c, value)}
        | ({"rank": _rank(table, question, c, value)} if c.key == "difficulty" and value is not None else {})
        for c, value in zip(columns, found, strict=True)
    ]


def _word(table: Table, column: Column, value: Any) -> str | None:
    if value is None:
        return None
    if column.kind == "class":
        return table.samples.name_of(int(value))
    return column.values[int(value)] if column.kind == "category" else None


def _rank(table: Table, question: Question, column: Column, value: float) -> float:
    """Share of all samples that are at least as hard."""
    source = table.source((question.voice,))
    at_least, all_of_them = table.fetch(
        f"SELECT count(*) FILTER ({column.sql} >= ?), count({column.sql}) FROM {source}", [value]
    )[0]
    return float(at_least) / float(max(all_of_them, 1))


def _suggested(table: Table, row: int) -> dict[str, Any] | None:
    names = table.samples.table.column_names
    if "suggested" not in names:
        return None
    value = table.samples.table.column("suggested")[row].as_py()
    return None if value is None else {"label": value, "name": table.samples.name_of(value)}


def _top(table: Table, question: Question, row: int, logits: LogitsReader) -> dict[str, Any]:
    """The most probable classes, as trained and calibrated; the label is always among them."""
    voice = question.voice
    spoken = None if voice is None else logits.read(voice.model, row)
    if voice is None or spoken is None:
        why = "There are no predictions here." if voice is None else "All probabilities of this sample are not known."
        return {"missing": Missing("Top classes", why, table.layout.rerun or "confide predict --help").__dict__}
    stage = voice.stage if voice.stage != RAW else table.layout.stages(voice.model)[-1]
    before = spoken.probabilities()[0].double()
    calibrator = load_calibrator(table.layout, voice.model, stage)
    after = before if calibrator is None else _probabilities(calibrator(spoken))
    leading = after if voice.stage != RAW else before
    top = torch.topk(leading, min(TOP, len(leading))).indices.tolist()
    label = int(spoken.labels[0])
    if 0 <= label < len(leading) and label not in top:
        top[-1] = label
    return {
        "stage": None if calibrator is None else stage,
        "classes": [
            {
                "label": k,
                "name": table.samples.name_of(k),
                "own": k == label,
                "before": float(before[k]),
                "after": None if calibrator is None else float(after[k]),
            }
            for k in top
        ],
    }


def _probabilities(predictions: Predictions) -> torch.Tensor:
    return predictions.probabilities()[0].double()
