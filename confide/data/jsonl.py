"""Texts and labels from files with one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from confide.core.door import InputError
from confide.data.family import DATASETS, recognises
from confide.data.part_files import holds
from confide.data.parts import Found
from confide.data.texts import open_text, read_texts

ENDINGS = (".jsonl", ".jsonl.gz", ".ndjson")


@DATASETS.add("jsonl", paper="format: one JSON object per line", takes="path")
def jsonl(path: Path, *, inputs: str | None = None, labels: str | None = None) -> Found:
    """Texts and labels from JSON lines; a file, or a folder with train, val, test in the names.

    Args:
        inputs: key of texts; the first of text, sentence, utterance, query and the like by default.
        labels: key of labels; the first of label, category, intent, class and the like by default.
    """
    return read_texts(path, ENDINGS, rows_of_jsonl, inputs, labels)


recognises("jsonl", lambda path: holds(path, ENDINGS))


def rows_of_jsonl(file: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with open_text(file) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"{file} must hold one JSON object per line, got {error} in line {number}") from None
            if not isinstance(row, dict):
                raise InputError(
                    f"{file} must hold one JSON object per line, got a {type(row).__name__} in line {number}"
                )
            yield number, row
