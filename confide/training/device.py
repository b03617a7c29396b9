"""Where a training runs: device, precision of the forward pass, determinism."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from confide.core.door import InputError
from confide.training.distributed import local_device
from confide.training.settings import Settings

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Device:
    """A torch device with the precision of the forward pass."""

    device: torch.device
    precision: str = "float32"

    @classmethod
    def of(cls, settings: Settings) -> Device:
        """The device and precision that the settings ask for, `auto` resolved."""
        word = local_device(settings.device)
        if word == "auto":
            word = local_device("cuda") if torch.cuda.is_available() else "cpu"
        try:
            device = torch.device(word)
        except RuntimeError:
            raise InputError(f"device must be auto, cpu, cuda or cuda:<number>, got '{word}'") from None
        if device.type == "cuda":
            if not torch.cuda.is_available():
                raise InputError("device 'cuda' asked for, but torch sees no GPU; use device='cpu'")
            device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
            if settings.deterministic:
                # cuBLAS reads it when it starts; without it the order of its sums may change from run to run.
                os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        precision = settings.precision
        if precision == "auto":
            precision = "bfloat16" if device.type == "cuda" else "float32"
        if precision == "float16" and device.type != "cuda":
            raise InputError("precision 'float16' needs a GPU; use 'float32' or 'bfloat16' on the CPU")
        return cls(device, precision)

    @property
    def on_gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def forward_batch(self) -> int:
        """Samples of a forward pass without gradients: what fills a GPU, or what stays in a CPU's cache."""
        return 1000 if self.on_gpu else 200

    def autocast(self) -> Any:
        """Context of the forward pass. Without a cache: a captured graph must cast the weights of its own step."""
        return torch.autocast(
            self.device.type,
            dtype=DTYPES[self.precision] if self.precision != "float32" else torch.bfloat16,
            enabled=self.precision != "float32",
            cache_enabled=False,
        )

    def place(self, model: nn.Module) -> nn.Module:
        """The model on the device; convolutions in channels-last order, as the feed's batches are."""
        placed: nn.Module = model.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        return placed

    @contextmanager
    def seeded(self, seed: int, deterministic: bool) -> Iterator[None]:
        """Random numbers from a seed, and the switches of determinism; all put back afterwards."""
        devices = [self.device] if self.on_gpu else []
        was = (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic)
        was_strict = torch.are_deterministic_algorithms_enabled()
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            torch.backends.cudnn.benchmark = not deterministic
            torch.backends.cudnn.deterministic = deterministic
            if deterministic and self.on_gpu:
                torch.use_deterministic_algorithms(True, warn_only=True)
            try:
                yield
            finally:
                torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = was
                torch.use_deterministic_algorithms(was_strict)


def short_of_memory(error: RuntimeError) -> bool:
    """Whether an error of torch says that memory ran out, on a GPU or on the CPU."""
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)
