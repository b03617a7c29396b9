"""Data frames in and out: pandas, polars or a dictionary of columns; none of the libraries is needed to import this."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.checks import InputError, check_choice
from confide.types import AnyArray

LIBRARIES = ("pandas", "polars")


def frame_columns(frame: Any) -> dict[str, NDArray[Any]]:
    """The columns of a data frame as arrays; lists of one length become n x c."""
    names = list(frame) if isinstance(frame, Mapping) else getattr(frame, "columns", None)
    if names is None or not hasattr(frame, "__getitem__"):
        raise InputError(
            f"a data frame must be of pandas or polars, or a dictionary of columns, got {type(frame).__name__}; "
            "give arrays to Predictions(logits, labels)"
        )
    return {str(name): column_array(frame[name]) for name in names}


def column_array(column: Any) -> NDArray[Any]:
    """One column as an array."""
    try:
        values = np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)
    except ValueError:
        raise InputError("a column must hold a value a row, or lists of one length, got others; mend it") from None
    lists = values.dtype == object and values.size > 0 and values.ndim == 1
    lists = lists and all(isinstance(row, (list, tuple, np.ndarray)) for row in values)
    if lists and len({len(row) for row in values}) == 1:
        return np.stack([np.asarray(row) for row in values])
    return values


def as_frame(columns: Mapping[str, AnyArray], library: str | None = None) -> Any:
    """A data frame of these columns, by the library named, or the one that is in use or installed.

    Args:
        library: `pandas` or `polars`.
    """
    if library is None:
        present = [name for name in LIBRARIES if name in sys.modules] or [name for name in LIBRARIES if find_spec(name)]
        library = present[0] if present else LIBRARIES[0]
    check_choice(library, LIBRARIES, "library")
    if find_spec(library) is None:
        raise InputError(f"a data frame needs the package '{library}'; install it with: pip install {library}")
    return import_module(library).DataFrame(dict(columns))
