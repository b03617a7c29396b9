"""Where a training runs: device, precision and determinism; several processes that train as one."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import count, pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from confide.checks import InputError
from confide.training.settings import Settings

# Several processes that train as one: the same batches, the same loss on the whole batch, the same state everywhere.
#
# Every process holds a slice of each batch and computes its logits; the logits (small) are gathered, so each one forms
# the loss of the whole batch. That makes losses that look at the batch or keep statistics (selective AU, MMCE, CRL,
# group DRO, AdaFocal) the same as in one process, with no code of their own for it.

TIMEOUT = timedelta(minutes=30)
_GROUPS_OPENED = count()


@dataclass(frozen=True)
class World:
    """This process among those that train together."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    def bounds(self, n: int) -> list[int]:
        """Edges of the contiguous slices of n samples, one per process, sizes at most one apart."""
        return [n * rank // self.size for rank in range(self.size + 1)]

    def own(self, n: int) -> slice:
        """This process's slice of n samples."""
        edges = self.bounds(n)
        return slice(edges[self.rank], edges[self.rank + 1])

    def gather(self, part: Tensor, n: int) -> Tensor:
        """The n rows of all processes in order; the gradient flows through this process's own part."""
        if self.size == 1:
            return part
        edges = self.bounds(n)
        longest = max(high - low for low, high in pairwise(edges))
        padded = part.new_zeros((longest, *part.shape[1:]))
        padded[: len(part)] = part.detach()
        parts = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(parts, padded)
        whole = [parts[rank][: edges[rank + 1] - edges[rank]] for rank in range(self.size)]
        whole[self.rank] = part
        return torch.cat(whole)

    def gather_equal(self, value: Tensor) -> Tensor:
        """The values of all processes, stacked by rank."""
        if self.size == 1:
            return value[None]
        parts = [torch.empty_like(value) for _ in range(self.size)]
        dist.all_gather(parts, value.contiguous())
        return torch.stack(parts)

    def agree(self, wish: bool, device: torch.device) -> bool:
        """The wish of the leading process, for all."""
        if self.size == 1:
            return wish
        word = torch.tensor([float(wish)], device=device)
        dist.broadcast(word, 0)
        return bool(word.item())

    def wait(self) -> None:
        """Until all processes are here."""
        if self.size > 1:
            dist.barrier()

    def wrap(self, model: nn.Module, device: torch.device, *, unused: bool = False) -> nn.Module:
        """The model with gradients averaged over processes; itself for one process.

        Batch statistics are shared too: on a GPU by the model's modules, on the CPU by `exact_batch_norms`.

        Args:
            unused: some parameters may get no gradient, as the poolers of pre-trained encoders.
        """
        if self.size == 1:
            return model
        if device.type == "cuda":
            model = with_shared_batch_norms(model)
        places = [device.index] if device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=places, find_unused_parameters=unused)


def with_shared_batch_norms(model: nn.Module) -> nn.Module:
    """The model with `SyncBatchNorm` in the place of its batch norms.

    Those of timm may hold an activation, which only timm's own conversion keeps.
    """
    convert: Callable[[nn.Module], nn.Module] = nn.SyncBatchNorm.convert_sync_batchnorm
    if any(type(module).__module__.startswith("timm.") for module in model.modules()):
        from timm.layers import convert_sync_batchnorm

        convert = convert_sync_batchnorm
    return convert(model)


@cache
def _rendezvous_store(rank: int, size: int) -> dist.Store:
    """Where processes started by torchrun find each other, kept while this one lives."""
    store, _, _ = next(iter(dist.rendezvous("env://", rank, size, timeout=TIMEOUT)))
    found: dist.Store = store
    return found


@contextmanager
def process_group(device: torch.device) -> Iterator[World]:
    """The world of a process started by torchrun (or Ray), joined for the time of a training."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if dist.is_available() and dist.is_initialized():
        yield World(dist.get_rank(), dist.get_world_size())
        return
    if size == 1:
        yield World()
        return
    rank = int(os.environ.get("RANK", "0"))
    if not 0 <= rank < size:
        raise InputError(f"RANK must lie in [0, {size}), got {rank}; start the processes with torchrun")
    backend = "nccl" if device.type == "cuda" else "gloo"
    # The keys of an earlier training of these processes would still be there, and they would wait for each other.
    store = dist.PrefixStore(f"training-{next(_GROUPS_OPENED)}", _rendezvous_store(rank, size))
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    try:
        yield World(rank, size)
        dist.barrier()
    finally:
        # gloo may abort at exit while a reducer is still alive.
        gc.collect()
        dist.destroy_process_group()


def is_lead_process() -> bool:
    """Whether this process is the one that writes and speaks."""
    return int(os.environ.get("RANK", "0")) == 0


def local_device(word: str) -> str:
    """`cuda` as the GPU of this process where torchrun says which."""
    rank = os.environ.get("LOCAL_RANK")
    return f"cuda:{rank}" if word == "cuda" and rank is not None and torch.cuda.device_count() > int(rank) else word


def unwrapped(model: nn.Module) -> nn.Module:
    """The model without its wrapper."""
    return model.module if isinstance(model, DistributedDataParallel) else model


# Where a training runs: device, precision of the forward pass, determinism.

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


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether an error of torch says that memory ran out, on a GPU or on the CPU."""
    return isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error)
