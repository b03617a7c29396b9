"""Where a network runs: device, precision of the forward pass, determinism."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from confide.checks import InputError, check_choice

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
PRECISIONS = ("auto", *DTYPES)


@dataclass(frozen=True)
class Device:
    """A torch device with the precision of the forward pass."""

    device: torch.device
    precision: str = "float32"

    @classmethod
    def of(cls, device: str = "auto", precision: str = "auto", *, deterministic: bool = False) -> Device:
        """The device and precision of these words, `auto` resolved: a GPU where there is one, and bfloat16 there."""
        check_choice(precision, PRECISIONS, "precision")
        word = local_device(device)
        if word == "auto":
            word = local_device("cuda") if torch.cuda.is_available() else "cpu"
        try:
            place = torch.device(word)
        except RuntimeError:
            raise InputError(f"device must be auto, cpu, cuda or cuda:<number>, got '{word}'") from None
        if place.type == "cuda":
            if not torch.cuda.is_available():
                raise InputError("device 'cuda' asked for, but torch sees no GPU; use device='cpu'")
            place = torch.device("cuda", torch.cuda.current_device() if place.index is None else place.index)
            if deterministic:
                # cuBLAS reads it when it starts; without it the order of its sums may change from run to run.
                os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        if precision == "auto":
            precision = "bfloat16" if place.type == "cuda" else "float32"
        if precision == "float16" and place.type != "cuda":
            raise InputError("precision 'float16' needs a GPU; use 'float32' or 'bfloat16' on the CPU")
        return cls(place, precision)

    @classmethod
    def for_prediction(cls, device: str, precision: str, *, deterministic: bool = False) -> Device:
        """Where a trained model predicts; one that was trained in float16 speaks float32 where there is no GPU."""
        usual = cls.of(device, deterministic=deterministic)
        lacks_half = precision == "float16" and not usual.on_gpu
        return usual if lacks_half else cls.of(device, precision, deterministic=deterministic)

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


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether an error of torch says that memory ran out, on a GPU or on the CPU."""
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)


def local_device(word: str) -> str:
    """`cuda` as the GPU of this process where torchrun says which."""
    rank = os.environ.get("LOCAL_RANK")
    return f"cuda:{rank}" if word == "cuda" and rank is not None and torch.cuda.device_count() > int(rank) else word
