"""The forward pass of training steps, compiled by torch.compile where the settings ask for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

Forward = Callable[[Tensor], Tensor]


class CompiledForward:
    """A network compiled for whole batches: normalisation, activation and addition become one kernel each way.

    The last, shorter batch of an epoch runs as it is: a second shape would be compiled a second time. What cannot be
    compiled runs as it is too, and `notes` says why.
    """

    def __init__(self, model: nn.Module, batch_size: int, notes: list[str]) -> None:
        self.model, self.batch_size, self.notes = model, batch_size, notes
        self.compiled: Forward | None = torch.compile(model, dynamic=False)

    def __call__(self, inputs: Tensor) -> Tensor:
        if self.compiled is not None and len(inputs) == self.batch_size:
            try:
                with warnings.catch_warnings():
                    # The compiler tells of faster settings that the precision of the training rules out.
                    warnings.simplefilter("ignore")
                    return self.compiled(inputs)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                self.compiled = None
                self.notes.append(f"the network runs uncompiled: {str(error).strip().splitlines()[0]}")
        said: Tensor = self.model(inputs)
        return said
