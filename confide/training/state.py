"""State of a training: all that a checkpoint must hold for the run to go on as if it had never stopped."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from confide.core.door import InputError
from confide.training.average import WeightAverage
from confide.training.device import Device
from confide.training.distributed import World, bare
from confide.training.forward import Forward
from confide.training.objective import Objective
from confide.training.settings import Settings


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
    def speaker(self) -> nn.Module:
        """The model that predicts: the mean of the weights where one is kept, else the one that is trained."""
        return bare(self.model) if self.average is None else self.average.model

    def __post_init__(self) -> None:
        self.sums = torch.zeros(3, dtype=torch.float64, device=self.device.device)
        self.first_bad = torch.full((), -1, dtype=torch.int64, device=self.device.device)

    def tensors(self) -> dict[str, Tensor]:
        """Everything of the state that is a tensor, by name."""
        named = {f"model.{k}": v for k, v in bare(self.model).state_dict().items()}
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
            held = self.scaler.state_dict()
            named["scaler"] = torch.tensor([held["scale"], held["_growth_tracker"]], dtype=torch.float64)
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
        }

    def restore(self, tensors: dict[str, Tensor], notes: dict[str, str]) -> None:
        """Put everything back where `tensors` and `notes` took it from."""
        parts: dict[str, dict[str, Tensor]] = {}
        for name, value in tensors.items():
            part, _, rest = name.partition(".")
            parts.setdefault(part, {})[rest] = value
        load_weights(bare(self.model), parts["model"])
        self.objective.loss.load_state_dict(parts.get("loss", {}))
        self._restore_optimizer(parts.get("optimizer", {}))
        if self.average is not None:
            self.average.restore(parts["average"], tensors["average_steps"])
        self.best = {k: v.to(self.device.device) for k, v in parts["best"].items()} if "best" in parts else None
        self.log = {k: v.tolist() for k, v in parts.get("log", {}).items()}
        self.sums.copy_(tensors["sums"])
        self.epoch, self.step = int(notes["epoch"]), int(notes["step"])
        self.best_value, self.best_epoch = float(notes["best_value"]), int(notes["best_epoch"])
        torch.set_rng_state(tensors["rng.cpu"][self.world.rank].clone())
        if self.device.on_gpu and "rng.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["rng.cuda"][self.world.rank].clone(), self.device.device)
        if self.scaler is not None and "scaler" in tensors:
            scale, tracker = tensors["scaler"].tolist()
            self.scaler.load_state_dict({**self.scaler.state_dict(), "scale": scale, "_growth_tracker": int(tracker)})

    def _restore_optimizer(self, held: dict[str, Tensor]) -> None:
        blank = self.optimizer.state_dict()
        states: dict[int, dict[str, Any]] = {}
        for name, value in held.items():
            index, _, key = name.partition(".")
            states.setdefault(int(index), {})[key] = value
        self.optimizer.load_state_dict({"state": states, "param_groups": blank["param_groups"]})
        for parameter, values in self.optimizer.state.items():
            for key, value in values.items():
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    # Fused optimisers walk over memory: a buffer must lie as its parameter does (channels last).
                    values[key] = torch.empty_like(parameter, requires_grad=False).copy_(value)


def load_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Load weights into a model of the same architecture, or say what differs first."""
    own = model.state_dict()
    for name in (*own, *weights):
        if name not in own or name not in weights:
            where = "the checkpoint" if name in own else "the model"
            raise InputError(f"checkpoint must be of the same architecture, but '{name}' is missing in {where}")
        if own[name].shape != weights[name].shape:
            raise InputError(
                f"checkpoint must be of the same architecture, but '{name}' has shape {tuple(weights[name].shape)}, "
                f"the model's has {tuple(own[name].shape)}"
            )
    model.load_state_dict(weights)


def make_optimizer(model: nn.Module, settings: Settings, device: Device) -> torch.optim.Optimizer:
    """The optimiser of the settings, fused; on a GPU the learning rate is a tensor, for graphs to read."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    rate: Any = settings.learning_rate
    # A fused SGD whose first scaled step overflows keeps momenta that nobody wrote: NaN, or whatever lay there.
    fused = device.precision != "float16"
    if device.on_gpu and fused:
        rate = torch.tensor(rate, dtype=torch.float32, device=device.device)
    if settings.optimizer == "sgd":
        return torch.optim.SGD(
            parameters,
            lr=rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            nesterov=settings.nesterov,
            fused=fused,
        )
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    return kind(parameters, lr=rate, weight_decay=settings.weight_decay, fused=fused)
