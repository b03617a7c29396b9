"""Options must be of the kind that their defaults are: words, whole numbers, numbers."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from confide.core.door import InputError
from confide.core.registry import Method


def check_kinds(method: Method, given: Mapping[str, Any]) -> None:
    """Refuse `alpha_neg="a"` and `folds=2.5` by name; an option without a default value may be anything."""
    for name, value in given.items():
        default = method.options.get(name)
        whole = isinstance(default, Integral)
        wanted = "a word" if isinstance(default, str) else "a whole number" if whole else "a number"
        kind = str if isinstance(default, str) else Integral if whole else Real
        if default is not None and (isinstance(value, bool) or not isinstance(value, kind)):
            raise InputError(f"{name} of {method.family} '{method.word}' must be {wanted}, got {value!r}")
