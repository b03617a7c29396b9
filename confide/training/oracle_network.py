"""The network of an oracle: a copy of a backbone, hidden layers and a head; its settings, and its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from confide.core import files
from confide.core.door import InputError, check_choice, check_options, check_range
from confide.core.predictions import Predictions
from confide.core.records import Dataset, Split, rows_of
from confide.training.device import Device
from confide.training.feed import Feed
from confide.training.preparation import Preparation
from confide.training.settings import AUGMENTS, Settings
from confide.training.trained import build_model
from confide.training.validation import rows_in_batches
from confide.trust.heads import HEADS, apply_head
from confide.trust.losses import TRUST_LOSSES

FORMAT = "oracle/1"
DEPTHS = ("head", "network")
BALANCED = "class_balanced"
TARGETS = ("probability", "ratio")
BATCH_NORMS = ("frozen", "trained")


@dataclass(frozen=True)
class OracleSettings:
    """How an oracle is trained.

    Args:
        loss: a trust loss, `loss_options` are its options; or `class_balanced`, cross-entropy weighted by the effective
            numbers of right and wrong, with the option `beta`.
        target: what `tcp` learns: the true class's `probability`, or its `ratio` to the largest one.
        head: signed_distance or linear; by default the first for steep_slope and the second for all others.
        depth: train a new `head` on a frozen backbone, or the whole `network`.
        hidden: widths of hidden layers between backbone and head (ConfidNet has four of 400).
        batch_norm: `frozen` keeps statistics and scales of the backbone's batch norms; `trained` lets both move.
        augment: crops and flips of the fitting samples; the classifier errs more on them, so there is more to learn.
        learning_rate: largest value of a one-cycle schedule; the backbone gets `backbone_rate` times of it.
    """

    loss: str = "steep_slope"
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    head: str = ""
    depth: str = "network"
    hidden: tuple[int, ...] = ()
    batch_norm: str = "frozen"
    augment: str = "none"
    epochs: int = 10
    batch_size: int = 128
    learning_rate: float = 1e-3
    backbone_rate: float = 0.1
    weight_decay: float = 1e-2
    seed: int = 0
    device: str = "auto"
    precision: str = "auto"
    target: str = "probability"

    def __post_init__(self) -> None:
        if self.loss == BALANCED:
            check_options(BALANCED, "trust loss", self.loss_options, ("beta",))
            check_range(self.beta, "beta", 0, 1, high_open=True)
        else:
            TRUST_LOSSES.get(self.loss).check_options(self.loss_options)
        check_choice(self.target, TARGETS, "target")
        check_choice(self.depth, DEPTHS, "depth")
        check_choice(self.batch_norm, BATCH_NORMS, "batch_norm")
        check_choice(self.augment, AUGMENTS, "augment")
        check_choice(self.head or "linear", HEADS, "head")
        check_range(self.epochs, "epochs", 1)
        check_range(self.batch_size, "batch_size", 1)
        check_range(self.learning_rate, "learning_rate", 0, low_open=True)
        check_range(self.backbone_rate, "backbone_rate", 0)

    @property
    def loss_word(self) -> str:
        """The trust loss that is computed."""
        return "binary_cross_entropy" if self.loss == BALANCED else self.loss

    @property
    def beta(self) -> float:
        """Of the class-balanced loss."""
        return float(self.loss_options.get("beta", 0.999))

    @property
    def head_word(self) -> str:
        """The head, by the loss where none was named."""
        return self.head or ("signed_distance" if self.loss == "steep_slope" else "linear")


class OracleNetwork(nn.Module):
    """z of the inputs: body, hidden layers, head."""

    def __init__(self, body: nn.Module, dim: int, settings: OracleSettings) -> None:
        super().__init__()
        self.body, self.head_word = body, settings.head_word
        widths = (dim, *settings.hidden)
        layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU(inplace=True))]
        self.hidden = nn.Sequential(*layers)
        self.weight = nn.Parameter(torch.randn(widths[-1]) * widths[-1] ** -0.5)
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.hidden(self.body(inputs).flatten(1))
        # Under autocast the product would give z eight bits: a thousand values for ten thousand samples.
        with torch.autocast(hidden.device.type, enabled=False):
            return apply_head(self.head_word, hidden.float(), self.weight, self.bias)


@dataclass(frozen=True, eq=False)
class Oracle:
    """A trained oracle with what is needed to use it; trust a prediction iff z > 0. `log` has a row per epoch."""

    network: OracleNetwork
    settings: OracleSettings
    backbone: Settings
    preparation: Preparation
    about: Mapping[str, Any] = field(default_factory=dict)
    log: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def __call__(self, dataset: Dataset | Split, split: str = "test", *, batch_size: int = 1000) -> Tensor:
        """z of every sample of a split, high = safe."""
        samples = dataset.split(split) if isinstance(dataset, Dataset) else dataset
        self.preparation.check(samples, f"split '{split}'")
        where = device_of(self.settings)
        feed = Feed(samples, self.preparation, where.device)
        network = where.place(self.network).eval()
        parts = []
        with torch.no_grad():
            for inputs, _ in feed.batches(rows_in_batches(len(feed), batch_size)):
                with where.autocast():
                    parts.append(network(inputs).float().cpu())
        self.network.to("cpu")
        return torch.cat(parts)

    def add_to(self, predictions: Predictions, dataset: Dataset | Split, split: str = "test") -> Predictions:
        """The predictions with their column `trust`, matched by id."""
        samples = dataset.split(split) if isinstance(dataset, Dataset) else dataset
        rows = rows_of(predictions.ids, samples.ids, "the oracle's samples")
        return replace(predictions, trust=self(dataset, split)[torch.from_numpy(rows)])

    def save(self, folder: str | Path) -> None:
        """Write oracle.safetensors and, last, oracle.json."""
        folder = Path(folder)
        files.write_tensors(folder / "oracle.safetensors", self.network.state_dict())
        record = {
            "format": FORMAT,
            "settings": asdict(self.settings),
            "backbone": self.backbone.as_dict(),
            "preparation": self.preparation.as_dict(),
            "about": dict(self.about),
            "log": dict(self.log),
            "sha256": files.checksum(folder / "oracle.safetensors"),
        }
        files.write_json(folder / "oracle.json", record)

    @classmethod
    def load(cls, folder: str | Path) -> Oracle:
        """Read what `save` wrote."""
        folder = Path(folder)
        if not (folder / "oracle.json").exists():
            raise InputError(f"{folder} must be the folder of an oracle, but oracle.json is missing; check the path")
        record = files.read_json(folder / "oracle.json")
        found = record.get("format") if isinstance(record, dict) else None
        if found != FORMAT:
            raise InputError(f"{folder}/oracle.json must be of format '{FORMAT}', got {found!r}")
        if not (folder / "oracle.safetensors").exists():
            raise InputError(f"{folder} must hold oracle.safetensors beside oracle.json; copy both")
        if files.checksum(folder / "oracle.safetensors") != record.get("sha256"):
            raise InputError(f"{folder}/oracle.safetensors must be the file oracle.json names; its checksum differs")
        try:
            return cls._restored(record, files.read_tensors(folder / "oracle.safetensors"))
        except (KeyError, TypeError, AttributeError, RuntimeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            raise InputError(f"{folder}/oracle.json must be what `save` wrote, but it is damaged ({what})") from None

    @classmethod
    def _restored(cls, record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Oracle:
        settings = OracleSettings(**{**record["settings"], "hidden": tuple(record["settings"]["hidden"])})
        backbone, preparation = Settings.from_dict(record["backbone"]), Preparation.from_dict(record["preparation"])
        body = build_model(backbone, preparation, int(record["about"]["num_classes"]), load_pretrained=False).body
        network = OracleNetwork(body, int(record["about"]["dim"]), settings)
        network.load_state_dict(tensors)
        log = {name: tuple(values) for name, values in record["log"].items()}
        return cls(network.eval(), settings, backbone, preparation, record["about"], log)


def device_of(settings: OracleSettings) -> Device:
    """Where the settings say to run."""
    return Device.of(Settings(device=settings.device, precision=settings.precision))
