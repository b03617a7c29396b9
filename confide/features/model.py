"""Penultimate features of the user's own model: a checkpoint, or any network in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from confide.core.door import InputError
from confide.core.records import Split
from confide.features.family import EXTRACTORS, Extractor

RowsOf = Callable[[Split], NDArray[Any]]
_READERS: list[Callable[[Path], RowsOf]] = []


def reads_checkpoints(reader: Callable[[Path], RowsOf]) -> None:
    """The room that trains models tells how its checkpoints give penultimate rows of a split."""
    _READERS.append(reader)


@EXTRACTORS.add("model:", paper="penultimate layer of the user's own model", kind="any")
def model(name: str) -> Extractor:
    """Penultimate features of a trained checkpoint, prepared as in its training: `model:runs/mine`."""
    path = Path(name)
    if not path.exists():
        raise InputError(f"features 'model:{name}' need a checkpoint, but {path} does not exist; check the path")
    if not _READERS:
        raise InputError(f"features 'model:{name}' need the room that reads checkpoints; import confide.training first")
    rows_of = _READERS[-1](path)
    return Extractor(f"model:{name}", "any", _as_it_is, _as_it_is, rows_of=rows_of)


def _as_it_is(item: Any) -> Any:
    return item


def from_module(
    network: nn.Module, prepare: Callable[[Any], Tensor], *, layer: str | None = None, name: str = "module"
) -> Extractor:
    """Features of any network in memory: the input of its last linear layer, or the output of a named layer.

    Args:
        prepare: one input -> tensor; batches are stacked.
        layer: dotted name of the module whose output is wanted; None takes what enters the last nn.Linear.
    """
    modules = dict(network.named_modules())
    linear = [module for module in modules.values() if isinstance(module, nn.Linear)]
    if layer is not None and layer not in modules:
        raise InputError(f"layer must be a module of the network, got '{layer}'; known: {', '.join(modules)[:200]}")
    if layer is None and not linear:
        raise InputError("the network has no linear layer to stop before; name the layer to read")
    target = modules[layer] if layer is not None else linear[-1]
    kept: list[Tensor] = []

    def encode(batch: Tensor) -> Tensor:
        kept.clear()
        if layer is None:
            handle = target.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0]))
        else:
            handle = target.register_forward_hook(lambda _, __, output: kept.append(output))
        try:
            network(batch)
        finally:
            handle.remove()
        rows = kept[-1]
        return rows.mean(dim=tuple(range(2, rows.ndim))) if rows.ndim > 2 else rows

    return Extractor(name, "any", prepare, encode, torch.stack, network)


def check_rows(rows: NDArray[Any], n: int, name: str) -> NDArray[Any]:
    """Rows of a reader must be n x d."""
    if rows.ndim != 2 or len(rows) != n:
        raise InputError(f"extractor '{name}' must give {n} rows, got shape {np.shape(rows)}")
    return rows
