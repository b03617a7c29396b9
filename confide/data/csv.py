"""Texts and labels from csv and tsv files."""

from __future__ import annotations

import csv as csv_format
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from confide.core.door import InputError
from confide.data.family import DATASETS, recognises
from confide.data.part_files import holds
from confide.data.parts import Found
from confide.data.texts import open_text, read_texts

ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
LONGEST_FIELD = 1 << 27


@DATASETS.add("csv", paper="format: comma- or tab-separated values with a header", takes="path")
def csv(path: Path, *, inputs: str | None = None, labels: str | None = None) -> Found:
    """Texts and labels from csv or tsv with a header; a file, or a folder with train, val, test in the names.

    Args:
        inputs: column of texts; the first of text, sentence, utterance, query and the like by default.
        labels: column of labels; the first of label, category, intent, class and the like by default.
    """
    return read_texts(path, ENDINGS, rows_of_csv, inputs, labels)


recognises("csv", lambda path: holds(path, ENDINGS))


def rows_of_csv(file: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    # The format's own limit of 128 KiB is less than a long document.
    csv_format.field_size_limit(max(csv_format.field_size_limit(), LONGEST_FIELD))
    with open_text(file) as lines:
        reader = csv_format.DictReader(lines, delimiter="\t" if ".tsv" in file.suffixes else ",")
        try:
            for row in reader:
                yield reader.line_num, {key: value for key, value in row.items() if key is not None}
        except csv_format.Error as error:
            raise InputError(f"{file} must be csv, got a bad line {reader.line_num} ({error}); mend it") from None
