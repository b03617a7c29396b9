"""A calibrator on disk: one .json with every number in it, or one .safetensors with the words in its metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from confide.core import files
from confide.core.door import InputError

FORMAT = "calibrator/1"
State = tuple[dict[str, Any], dict[str, Tensor]]
DTYPES = {"float64": torch.float64, "int64": torch.int64}


def save(path: str | Path, state: State) -> None:
    """Write the state in the format that the suffix names."""
    plain, tensors = state
    if Path(path).suffix == ".json":
        files.write_json(path, {"format": FORMAT, **plain, "values": {k: _as_plain(v) for k, v in tensors.items()}})
    elif Path(path).suffix == ".safetensors":
        files.write_tensors(path, tensors, {"format": FORMAT, "calibrator": json.dumps(files.plain(plain))})
    else:
        raise InputError(f"{path} must end in .json or .safetensors, got '{Path(path).suffix}'; choose one")


def read(path: str | Path) -> State:
    """Read what `save` wrote; anything else gets one clear line."""
    if not Path(path).exists():
        raise InputError(f"{path} must be a saved calibrator, but it does not exist; check the path")
    if Path(path).suffix == ".safetensors":
        tensors, metadata = files.read_tensors(path), _metadata(path)
        _check_format(path, metadata.get("format"))
        return json.loads(metadata["calibrator"]), tensors
    data = files.read_json(path)
    _check_format(path, data.get("format") if isinstance(data, dict) else None)
    return data, {k: _as_tensor(v) for k, v in data.pop("values").items()}


def _check_format(path: str | Path, found: Any) -> None:
    if found != FORMAT:
        raise InputError(f"{path} must be of format '{FORMAT}', got {found!r}; save it again with this version")


def _metadata(path: str | Path) -> dict[str, str]:
    from safetensors import safe_open

    with safe_open(str(path), framework="pt") as opened:
        return dict(opened.metadata() or {})


def _as_plain(value: Tensor) -> dict[str, Any]:
    name = "int64" if value.dtype == torch.int64 else "float64"
    return {"dtype": name, "shape": list(value.shape), "data": value.cpu().to(DTYPES[name]).flatten().tolist()}


def _as_tensor(value: dict[str, Any]) -> Tensor:
    return torch.tensor(value["data"], dtype=DTYPES[value["dtype"]]).reshape(value["shape"])
