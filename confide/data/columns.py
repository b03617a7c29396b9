"""Which column is the input, which the label, which the id: by the names people use, or as told."""

from __future__ import annotations

from collections.abc import Collection

from confide.core.door import InputError

INPUTS = (
    *("image", "images", "img", "inputs", "x", "data", "features"),
    *("text", "texts", "sentence", "utterance", "query", "question", "content", "review"),
)
LABELS = ("label", "labels", "category", "intent", "class", "fine_label", "y", "target", "targets")
IDS = ("id", "ids")


def pick(known: Collection[str], asked: str | None, words: tuple[str, ...], what: str, where: str) -> str:
    """The column asked for, else the first that has a usual name; case does not matter."""
    by_lower = {name.lower(): name for name in known}
    for word in (asked,) if asked is not None else words:
        if word.lower() in by_lower:
            return by_lower[word.lower()]
    tried = f"'{asked}'" if asked is not None else "one of " + ", ".join(words)
    raise InputError(
        f"{where} must have {what} named {tried}, got {', '.join(known) or 'nothing'}; name them with the option {what}"
    )


def pick_id(known: Collection[str]) -> str | None:
    """The column of ids, if there is one."""
    return next((name for name in known if name.lower() in IDS), None)
