"""Small blocks in one thread: handing 64k elements out costs more than computing them, on a busy machine far more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_GIVEN: ContextVar[int | None] = ContextVar("threads given", default=None)


@contextmanager
def one_thread() -> Iterator[None]:
    """torch computes in the calling thread; the number of threads is put back afterwards."""
    before = torch.get_num_threads()
    token = _GIVEN.set(_GIVEN.get() or before)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _GIVEN.reset(token)


def allowed_threads() -> int:
    """How many threads torch had before `one_thread`, for work that hands out large parts itself."""
    return _GIVEN.get() or torch.get_num_threads()
