"""State of a training: all that a checkpoint must hold for the run to go on as if it had never stopped, with the
running mean of the weights and the compiled forward pass.
"""

from __future__ import annotations

import copy
import json
import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from confide.models.base import Classifier
from confide.models.device import Device
from confide.models.trained import load_weights
from confide.training.distributed import World, unwrapped
from confide.training.objective import Objective
from confide.training.settings import Settings
from confide.types import Options

# What a step may add to the model: a running mean of its weights, a compiled forward pass.


class WeightAverage:
    """Mean of the weights, a <- a + s (w - a): the plain mean of the first steps, then with a memory of `reach` steps.

    `recompute_statistics` must be called before the mean predicts: the statistics that batch norms took during the
    steps belong to other weights; their variances are too large for weights whose noise has averaged out (with them a
    mean over three epochs of a ResNet-18 had 63 % on CIFAR-10, one over a single epoch 92 %).
    """

    def __init__(self, model: nn.Module, reach: float) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        device = next(model.parameters()).device
        self.share = 1 - math.exp(-1 / reach)
        self.steps = torch.zeros((), dtype=torch.float32, device=device)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take in the weights of one more step; all on the device, where a captured graph can repeat it."""
        self.steps += 1
        share = (1 / self.steps).clamp_min(self.share)
        own: list[Tensor] = list(self.model.parameters())
        live = [weights.detach() for weights in model.parameters()]
        difference = list(torch._foreach_sub(live, own))
        torch._foreach_mul_(difference, share)
        torch._foreach_add_(own, difference)

    @torch.no_grad()
    def recompute_statistics(self, model: nn.Module, batches: Iterable[Tensor]) -> None:
        """Buffers of the model, but batch-norm statistics of the averaged weights themselves: a mean over batches."""
        for value, latest in zip(self.model.buffers(), model.buffers(), strict=True):
            value.copy_(latest)
        modules = self.model.modules()
        norms = [module for module in modules if isinstance(module, _BatchNorm) and module.track_running_stats]
        if not norms:
            return
        usual = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the plain mean of all batches
            norm.train()
        for inputs in batches:
            self.model(inputs)
        for norm, momentum in zip(norms, usual, strict=True):
            norm.momentum = momentum
            norm.eval()

    def tensors(self) -> dict[str, Tensor]:
        """All of it by name, for a checkpoint."""
        return {"average_steps": self.steps, **{f"average.{k}": v for k, v in self.model.state_dict().items()}}

    def restore(self, weights: dict[str, Tensor], steps: Tensor) -> None:
        """Put back what `tensors` gave, in place."""
        self.model.load_state_dict(weights)
        self.steps.copy_(steps)


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
        logits: Tensor = self.model(inputs)
        return logits


# The state itself.


@dataclass
class State:
    """Model, optimiser, objective and position.

    `sums` are loss, hits and samples of the epoch so far; `first_bad` is the first step of the epoch whose loss was
    not finite, or -1. Both live on the device, so that a step never waits for it.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    objective: Objective
    device: Device
    world: World = field(default_factory=World)
    scaler: torch.amp.GradScaler | None = None
    epoch: int = 0
    step: int = 0
    sums: Tensor = field(init=False)
    first_bad: Tensor = field(init=False)
    log: dict[str, list[float]] = field(default_factory=dict)
    best: dict[str, Tensor] | None = None
    best_value: float = float("inf")
    best_epoch: int = -1
    average: WeightAverage | None = None
    compiled: Forward | None = None

    @property
    def forward(self) -> Forward:
        """The forward pass of a training step."""
        return self.model if self.compiled is None else self.compiled

    @property
    def predicting_model(self) -> nn.Module:
        """The model that predicts: the mean of the weights where one is kept, else the one that is trained."""
        return unwrapped(self.model) if self.average is None else self.average.model

    def __post_init__(self) -> None:
        self.sums = torch.zeros(3, dtype=torch.float64, device=self.device.device)
        self.first_bad = torch.full((), -1, dtype=torch.int64, device=self.device.device)

    def tensors(self) -> dict[str, Tensor]:
        """Everything of the state that is a tensor, by name."""
        named = {f"model.{k}": v for k, v in unwrapped(self.model).state_dict().items()}
        named |= {f"loss.{k}": v for k, v in self.objective.loss.state_dict().items()}
        for index, values in self.optimizer.state_dict()["state"].items():
            named |= {f"optimizer.{index}.{k}": v for k, v in values.items() if isinstance(v, Tensor)}
        if self.average is not None:
            named |= self.average.tensors()
        named |= {f"best.{k}": v for k, v in (self.best or {}).items()}
        named |= {f"log.{k}": torch.tensor(v, dtype=torch.float64) for k, v in self.log.items()}
        named |= {"sums": self.sums, "rng.cpu": self._of_all(torch.get_rng_state())}
        if self.device.on_gpu:
            named["rng.cuda"] = self._of_all(torch.cuda.get_rng_state(self.device.device))
        if self.scaler is not None:
            scaler = self.scaler.state_dict()
            named["scaler"] = torch.tensor([scaler["scale"], scaler["_growth_tracker"]], dtype=torch.float64)
        return named

    def _of_all(self, random_state: Tensor) -> Tensor:
        # nccl gathers only what is on a GPU.
        return self.world.gather_equal(random_state.to(self.device.device)).cpu()

    def notes(self) -> dict[str, str]:
        """Everything of the state that is not a tensor."""
        return {
            "epoch": str(self.epoch),
            "step": str(self.step),
            "best_value": repr(self.best_value),
            "best_epoch": str(self.best_epoch),
            "log": json.dumps(list(self.log)),
        }

    def restore(self, tensors: dict[str, Tensor], notes: dict[str, str]) -> None:
        """Put everything back where `tensors` and `notes` took it from."""
        parts: dict[str, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            part, _, rest = name.partition(".")
            parts.setdefault(part, {})[rest] = value
        load_weights(unwrapped(self.model), parts["model"])
        self.objective.loss.load_state_dict(parts.get("loss", {}))
        self._restore_optimizer(parts.get("optimizer", {}))
        if self.average is not None:
            self.average.restore(parts["average"], tensors["average_steps"])
        self.best = {k: v.to(self.device.device) for k, v in parts["best"].items()} if "best" in parts else None
        log = parts.get("log", {})
        # The file sorts its tensors; the log keeps its columns in the order they came.
        columns = json.loads(notes["log"]) if "log" in notes else log
        self.log = {k: log[k].tolist() for k in columns}
        self.sums.copy_(tensors["sums"])
        self.epoch, self.step = int(notes["epoch"]), int(notes["step"])
        self.best_value, self.best_epoch = float(notes["best_value"]), int(notes["best_epoch"])
        torch.set_rng_state(tensors["rng.cpu"][self.world.rank].clone())
        if self.device.on_gpu and "rng.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["rng.cuda"][self.world.rank].clone(), self.device.device)
        if self.scaler is not None and "scaler" in tensors:
            scale, tracker = tensors["scaler"].tolist()
            self.scaler.load_state_dict({**self.scaler.state_dict(), "scale": scale, "_growth_tracker": int(tracker)})

    def _restore_optimizer(self, tensors: dict[str, Tensor]) -> None:
        blank = self.optimizer.state_dict()
        states: dict[int, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            index, _, key = name.partition(".")
            states.setdefault(int(index), {})[key] = value
        self.optimizer.load_state_dict({"state": states, "param_groups": blank["param_groups"]})
        for parameter, values in self.optimizer.state.items():
            for key, value in values.items():
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    # Fused optimisers walk over memory: a buffer must lie as its parameter does (channels last).
                    values[key] = torch.empty_like(parameter, requires_grad=False).copy_(value)


BODY = "body"
"""Mark of the optimiser's group whose learning rate is the body's own."""


def slow_body(model: Classifier) -> bool:
    """Whether the body learns at a rate of its own."""
    return model.body_rate != 1.0 or model.frozen_epochs > 0


def body_rates(model: nn.Module, rates: NDArray[np.float64], steps_per_epoch: int) -> NDArray[np.float64]:
    """The learning rate of the body at every step: none while it is frozen."""
    own = unwrapped(model)
    if not isinstance(own, Classifier):
        return rates
    frozen = np.arange(len(rates)) < own.frozen_epochs * steps_per_epoch
    return np.where(frozen, 0.0, own.body_rate * rates)


def make_optimizer(model: nn.Module, settings: Settings, device: Device) -> torch.optim.Optimizer:
    """The optimiser of the settings, fused; on a GPU the learning rate is a tensor, for graphs to read."""
    own = unwrapped(model)
    body = list(own.body.parameters()) if isinstance(own, Classifier) and slow_body(own) else []
    slow = {id(p) for p in body}
    parameters: list[Any] = [p for p in model.parameters() if p.requires_grad and id(p) not in slow]
    if body:
        parameters = [{"params": [p for p in body if p.requires_grad], BODY: True}, {"params": parameters}]
    rate: Any = settings.learning_rate
    # A fused SGD whose first scaled step overflows keeps momenta that nobody wrote: NaN, or whatever lay there.
    fused = device.precision != "float16"
    if device.on_gpu and fused:
        rate = torch.tensor(rate, dtype=torch.float32, device=device.device)
        for group in parameters if body else ():
            group["lr"] = rate.clone()
    options: Options = {"lr": rate, "weight_decay": settings.weight_decay, "fused": fused}
    if settings.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=settings.momentum, nesterov=settings.nesterov, **options)
    return (torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam)(parameters, **options)
