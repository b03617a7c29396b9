"""The whole step captured in one CUDA graph and replayed: gather, forward, loss, backward, update.

Everything a step reads lies on the device (the order of the epoch, the learning rates, a counter), so a replay takes
no input from the host. The first steps run eagerly, as real steps; a model that cannot be captured goes on that way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confide.training.run import Run
from confide.training.step import note_bad, train_step

WARM_STEPS = 3


class GraphStep:
    """`start_epoch`, then `replay` before each step: False means that the step must be run eagerly."""

    def __init__(self, run: Run) -> None:
        device = run.state.device.device
        self.run, self.warmed = run, 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.order = torch.zeros((run.order.steps, run.settings.batch_size), dtype=torch.int64, device=device)
        self.rates = torch.as_tensor(run.rates, dtype=torch.float32, device=device)
        self.place = torch.zeros(1, dtype=torch.int64, device=device)
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self.stale = True
        self.stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    @staticmethod
    def of(run: Run) -> GraphStep | NoGraph:
        """The graph of a run, or why there is none in the run's notes."""
        reason = _reason_against(run)
        if reason is None:
            return GraphStep(run)
        if run.state.device.on_gpu:
            run.notes.append(f"steps run eagerly: {reason}")
        return NoGraph()

    def around(self) -> AbstractContextManager[None]:
        """Context of an eager step: while warming up, a stream of its own, as capture asks for."""
        return self._warm_stream() if self.graph is None else nullcontext()

    @contextmanager
    def _warm_stream(self) -> Iterator[None]:
        device = self.run.state.device.device
        current = torch.cuda.current_stream(device)
        self.stream.wait_stream(current)
        with torch.cuda.stream(self.stream):
            yield
        current.wait_stream(self.stream)

    def start_epoch(self, batches: Sequence[NDArray[np.int64]], epoch: int) -> None:
        """Put the order of an epoch where the graph reads it."""
        whole = [rows for rows in batches if len(rows) == self.run.settings.batch_size]
        if whole:
            self.order[: len(whole)].copy_(torch.from_numpy(np.stack(whole)))
        self.stale = True

    def replay(self, rows: int) -> bool:
        """Run the next step from the graph, if it is captured and the batch has its size."""
        if rows != self.run.settings.batch_size:
            self.stale = True
            return False
        if self.graph is None:
            if self.warmed < WARM_STEPS:
                self.warmed += 1
                return False
            if not self._capture():
                self.run.graph = NoGraph()
                return False
        if self.stale:
            self.place.fill_(self.run.state.step)
            self.position.fill_(self.run.position())
            self.stale = False
        assert self.graph is not None
        self.graph.replay()
        return True

    def _capture(self) -> bool:
        state, device = self.run.state, self.run.state.device.device
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(device)
        torch.cuda.synchronize(device)
        state.optimizer.zero_grad(set_to_none=True)
        self.place.fill_(state.step)
        self.position.fill_(self.run.position())
        try:
            with _capturable(state.optimizer), torch.cuda.graph(graph):
                self._step()
            self.graph = graph
        except RuntimeError as error:
            # Nothing was executed during capture, so the run goes on from the same state. A failed capture may
            # leave its own stream behind as the current one.
            torch.cuda.set_stream(current)
            torch.cuda.synchronize(device)
            reason = str(error).splitlines()[0]
            self.run.notes.append(f"steps run eagerly: the step could not be captured ({reason})")
        return self.graph is not None

    def _step(self) -> None:
        run, state = self.run, self.run.state
        for group in state.optimizer.param_groups:
            group["lr"].copy_(self.rates.index_select(0, self.position).squeeze(0))
        rows = self.order.index_select(0, self.place).squeeze(0)
        mean = train_step(state, run.settings, run.feed.gather(rows), run.feed.labels[rows], rows)
        note_bad(state, mean, self.place.squeeze(0))
        self.place += 1
        self.position += 1


@contextmanager
def _capturable(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Adam wants to be told that its step is captured; told for good, it would warn at every eager step."""
    for group in optimizer.param_groups:
        group["capturable"] = True
    try:
        yield
    finally:
        for group in optimizer.param_groups:
            if "capturable" in optimizer.defaults:
                group["capturable"] = False
            else:
                del group["capturable"]


class NoGraph:
    """Every step is run eagerly."""

    def around(self) -> AbstractContextManager[None]:
        """Nothing special."""
        return nullcontext()

    def start_epoch(self, batches: Sequence[NDArray[np.int64]], epoch: int) -> None:
        """Nothing to prepare."""

    def replay(self, rows: int) -> bool:
        """Never."""
        return False


def _reason_against(run: Run) -> str | None:
    if not run.state.device.on_gpu:
        return "a graph needs a GPU"
    if not run.settings.graph:
        return "graph=False"
    if run.world.size > 1:
        return "several processes"
    if not run.feed.resident:
        return "the data do not fit into GPU memory"
    if run.momenta is not None:
        return "the momentum changes from step to step"
    if run.state.scaler is not None:
        return "float16 scaling looks at every step"
    return None
