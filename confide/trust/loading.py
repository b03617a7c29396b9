"""Trust predictors from their files: trust.json and its safetensors, checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from confide.core import files
from confide.core.door import InputError, check_choice
from confide.trust.family import FORMAT, TRUST, Trust

SCALES = ("logit", "probability", "ratio", "score")
KINDS: dict[str, tuple[type, ...]] = {
    "threshold": (int, float, type(None)),
    "num_classes": (int, type(None)),
    "feature_dim": (int, type(None)),
    "wants": (str,),
    "options": (dict,),
    "about": (dict,),
    "state": (dict,),
}
"""Of what kind the fields of a saved predictor are."""


def load(path: str | Path) -> Trust:
    """Read what `Trust.save` wrote: trust.json, or the folder that holds it."""
    source = Path(path) / "trust.json" if Path(path).is_dir() else Path(path)
    if not source.exists():
        raise InputError(f"{source} must be a trust predictor's JSON file, but it does not exist; check the path")
    record = files.read_json(source)
    found = record.get("format") if isinstance(record, dict) else None
    if found != FORMAT:
        raise InputError(f"{source} must be of format '{FORMAT}', got {found!r}; fit it again with this version")
    try:
        return _restored(record, source)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(f"{source} must be what `save` wrote, but it is damaged ({what}); fit again") from None


def _restored(record: Mapping[str, Any], source: Path) -> Trust:
    tensors: dict[str, Tensor] = {}
    if "tensors" in record:
        # Only the name counts: a JSON file must not make us read anywhere else.
        weights = source.parent / Path(record["tensors"]).name
        tensors = files.read_tensors(weights)
        if files.checksum(weights) != record["sha256"]:
            raise InputError(
                f"{weights} must be the file that {source.name} names, but its checksum differs; fit again"
            )
    method = TRUST.get(str(record["method"]))
    for name, kinds in KINDS.items():
        if not isinstance(record[name], kinds) or isinstance(record[name], bool):
            raise TypeError(f"{name} is {record[name]!r}")
    check_choice(record["scale"], SCALES, f"scale in {source}")
    scorer = method.facts["restore"](record["state"], tensors)
    kept = ("threshold", "scale", "wants", "num_classes", "feature_dim", "options", "about")
    return Trust(method.word, scorer, **{name: record[name] for name in kept}, second_dim=record.get("second_dim"))
