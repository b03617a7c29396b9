"""Several processes that train as one: the same batches, the same loss on the whole batch, the same state everywhere.

Every process holds a slice of each batch and computes its logits; the logits (small) are gathered, so each one forms
the loss of the whole batch. That makes losses that look at the batch or keep statistics (selective AU, MMCE, CRL,
group DRO, AdaFocal) the same as in one process, with no code of their own for it.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from itertools import count, pairwise
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from confide.checks import InputError
from confide.files import disk

TIMEOUT = timedelta(minutes=30)
_GROUPS_OPENED = count()


@dataclass(frozen=True)
class World:
    """This process among those that train together."""

    rank: int = 0
    size: int = 1

    @property
    def is_lead(self) -> bool:
        """Whether this process writes files and shows progress."""
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
    opened: dist.Store = store
    return opened


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


def held(folder: Path | None) -> AbstractContextManager[None]:
    """The folder of a training against other processes; of several that train together the leading one holds it."""
    return disk.locked(folder) if folder is not None and is_lead_process() else nullcontext()


def unwrapped(model: nn.Module) -> nn.Module:
    """The model without its wrapper."""
    return model.module if isinstance(model, DistributedDataParallel) else model
