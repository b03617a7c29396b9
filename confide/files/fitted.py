"""One way to save and load a fitted thing: a record of words and numbers, and tensors, with format, version and checks.

The ending of the path decides the layout. `.safetensors` holds the tensors, with every field of the record as JSON in
the header and a digest of everything. Any other is JSON: the record, and its tensors either written out in it (where
the format is `inline`) or as a safetensors file beside it, which the JSON names with its checksum.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from confide.checks import InputError
from confide.files import formats
from confide.files.formats import Format
from confide.types import JsonObject

T = TypeVar("T")
INLINE_DTYPES = {"float64": torch.float64, "int64": torch.int64}
DAMAGE = (
    *(LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, RuntimeError),
    AssertionError,
)
"""What reading a changed or damaged record may raise."""


@dataclass(frozen=True, eq=False)
class FittedState:
    """What a fitted thing is made of: a record of plain JSON values, and tensors."""

    record: JsonObject
    tensors: Mapping[str, Tensor] = field(default_factory=dict)


def save_fitted(path: str | Path, format: Format, state: FittedState) -> Path:
    """Write a fitted thing, atomically; what is no plain JSON value is refused before anything is written."""
    target = Path(path)
    check_ending(target, format)
    try:
        words = {
            name: json.dumps(formats.plain(value), ensure_ascii=False, allow_nan=False)
            for name, value in state.record.items()
        }
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"the options and sources of {format.what} must be plain JSON values to be saved, but: {error}"
        ) from None
    if target.suffix == ".safetensors":
        formats.write_checkpoint(target, state.tensors, {"format": format.tag, **words})
        return target
    record: JsonObject = {"format": format.tag, **state.record}
    if format.inline:
        record["values"] = {name: _as_numbers(name, tensor) for name, tensor in state.tensors.items()}
    elif state.tensors:
        # The tensors first: a reader that finds the JSON finds what it names.
        beside = target.with_suffix(".safetensors")
        formats.write_tensors(beside, state.tensors)
        record |= {"tensors": beside.name, "sha256": formats.checksum(beside)}
    formats.write_json(target, record)
    return target


def load_fitted(path: str | Path, format: Format, restore: Callable[[FittedState], T]) -> T:
    """What `restore` makes of the saved state; a missing or damaged file, or one of another kind, is one clear line."""
    source = Path(path)
    if not source.is_file():
        raise InputError(f"{path} must be {format.what}, but there is no such file; check the path")
    binary = source.suffix == ".safetensors" or format.endings == (".safetensors",)
    read = _read_safetensors if binary else _read_json
    try:
        state = read(source, format)
    except InputError:
        raise  # it names the file already
    except DAMAGE as error:
        raise _not_saved(source, format, error) from None
    try:
        return restore(state)
    except DAMAGE as error:
        raise _not_saved(source, format, error) from None


def _not_saved(source: Path, format: Format, error: Exception) -> InputError:
    cause = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
    cause = (cause.splitlines() or [""])[0][:300]
    return InputError(f"{source} must be what `save` wrote, but it is not ({cause}); {format.remake}")


def check_ending(path: str | Path, format: Format) -> None:
    """Refuse a path that cannot hold it; whoever fits for long asks before the fit."""
    ending = Path(path).suffix
    if format.endings and ending not in format.endings:
        raise InputError(f"{path} must end in {' or '.join(format.endings)} to hold {format.what}, got '{ending}'")


def need_fields(record: JsonObject, kinds: Mapping[str, type | tuple[type, ...]]) -> None:
    """These fields, each of its kind; a bool is no number."""
    for name, kind in kinds.items():
        if not isinstance(record[name], kind) or isinstance(record[name], bool):
            raise TypeError(f"{name} is {repr(record[name])[:60]}")


def _read_safetensors(source: Path, format: Format) -> FittedState:
    header = formats.tensor_metadata(source)
    tag = header.pop("format", None)
    if tag is None and "about" in header:
        # Trained models of version 1 hold the whole record, and the tag, under one name.
        record = formats.parse_json(header["about"], f"the header of {source}")
        format.check(record.pop("format", None) if isinstance(record, dict) else None, source)
        return FittedState(record, formats.read_checkpoint(source)[0])
    format.check(tag, source)
    # Calibrators had no digest in version 1.
    if header.pop("digest", None) is None and tag != "calibrator/1":
        raise ValueError("it has no digest")
    tensors, _ = formats.read_checkpoint(source)
    return FittedState(
        {name: formats.parse_json(text, f"{name} of {source}") for name, text in header.items()}, tensors
    )


def _read_json(source: Path, format: Format) -> FittedState:
    record = formats.read_json(source)
    format.check(record.pop("format", None) if isinstance(record, dict) else None, source)
    if "tensors" in record or "sha256" in record:
        # Only the name counts: a JSON file must not make us read anywhere else.
        beside = source.parent / Path(record.pop("tensors", source.stem + ".safetensors")).name
        if not beside.is_file():
            raise InputError(f"{beside} must lie beside {source.name}, but there is no such file; copy both")
        if formats.checksum(beside) != record.pop("sha256"):
            raise InputError(
                f"{beside} must be the file that {source.name} names, but its checksum differs; {format.remake}"
            )
        return FittedState(record, formats.read_tensors(beside))
    values = record.pop("values") if format.inline else {}
    return FittedState(record, {name: _as_tensor(value) for name, value in values.items()})


def _as_numbers(name: str, tensor: Tensor) -> JsonObject:
    dtype = "int64" if tensor.dtype == torch.int64 else "float64"
    numbers = tensor.cpu().to(INLINE_DTYPES[dtype])
    if not bool(torch.isfinite(numbers).all()):
        raise InputError(f"{name} must be finite to be saved as JSON, got other numbers; save it as .safetensors")
    return {"dtype": dtype, "shape": list(tensor.shape), "data": numbers.flatten().tolist()}


def _as_tensor(value: JsonObject) -> Tensor:
    return torch.tensor(value["data"], dtype=INLINE_DTYPES[value["dtype"]]).reshape(value["shape"])
