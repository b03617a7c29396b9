"""Trained networks in files: the one format of `model.safetensors`, and a network loaded from it, ready to use.

`confide.training` writes these files and adds its log; `features.extract("model:...")` needs the network alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from confide.checks import InputError, check_range
from confide.files import formats
from confide.files.fitted import FittedState, load_fitted, save_fitted
from confide.models.base import Classifier, check_output_width, create, method
from confide.models.device import Device
from confide.models.preparation import Feed, Preparation, rows_in_batches
from confide.records import Split
from confide.types import JsonObject, Options

MODEL_FILE = "model.safetensors"
"""The file of a trained model in its folder."""


# ---- A network, ready to use ----


@dataclass(frozen=True, eq=False)
class TrainedNetwork:
    """A trained model with what it takes to use it: how inputs are prepared, its classes, the precision it had."""

    model: Classifier
    preparation: Preparation
    class_names: tuple[str, ...]
    word: str
    precision: str = "auto"
    deterministic: bool = False

    def penultimate_rows(self, split: Split, *, device: str = "auto", batch_size: int | None = None) -> NDArray[Any]:
        """float32 `n d`: what enters the head, for every sample of a split, prepared as in training."""
        if batch_size is not None:
            check_range(batch_size, "batch_size", 1)
        self.preparation.check(split, "the split")
        where = Device.for_prediction(device, self.precision, deterministic=self.deterministic)
        feed = Feed(split, self.preparation, where.device)
        network = where.place(self.model).eval()
        batches = feed.batches(rows_in_batches(len(feed), batch_size or where.forward_batch))
        with torch.no_grad(), where.autocast():
            parts = [self.model.features(inputs).float().cpu() for inputs, _ in batches]
        network.to("cpu")
        return torch.cat(parts).numpy()


def load_network(path: str | Path) -> TrainedNetwork:
    """The network of a trained model: of a folder with `model.safetensors`, or of that file.

    Args:
        path: what `confide train` or `training.fit(folder=...)` wrote.

    Returns:
        The network with its preparation of inputs and its class names.

    Raises:
        InputError: where there is no such file, or it is of another format.

    Example:
        >>> import numpy as np
        >>> from confide import data, models, training
        >>> labels = np.arange(20) % 2
        >>> dataset = data.load_dataset((np.eye(20), np.array(["cat", "dog"])[labels]))
        >>> settings = training.Settings(model="mlp", epochs=1, batch_size=8, device="cpu")
        >>> trained = training.fit(dataset, settings, folder="run")
        >>> models.load_network("run").class_names
        ('cat', 'dog')
    """
    return TrainedFile.read(path).network()


# ---- The file ----


@dataclass(frozen=True)
class TrainingIdentity:
    """What makes two trainings the same: a checkpoint may be resumed where all of it is equal.

    `settings` are those of the training as its file holds them; what a file does not say is None.
    """

    settings: JsonObject = field(default_factory=dict)
    dataset: str | None = None
    training_samples: int | None = None
    training_data: str | None = None
    validation_data: str | None = None
    difficulty_scores: str | None = None
    device: str | None = None
    precision: str | None = None
    processes: int | None = None

    def as_dict(self) -> JsonObject:
        """As files hold it, settings and the rest side by side: precision is the one in use, not the one asked for."""
        own = {word: getattr(self, name) for word, name in self._words().items()}
        # Those asked for make way first, so that an identity that was read is written in the same order again.
        return {**{key: value for key, value in self.settings.items() if key not in own}, **own}

    @classmethod
    def from_dict(cls, record: JsonObject) -> TrainingIdentity:
        """The inverse of `as_dict`."""
        words = cls._words()
        settings = {key: value for key, value in record.items() if key not in words}
        return cls(settings, **{name: record.get(word) for word, name in words.items()})

    @classmethod
    def _words(cls) -> dict[str, str]:
        return {own.name.replace("_", " "): own.name for own in fields(cls) if own.name != "settings"}


@dataclass(frozen=True, eq=False)
class TrainedFile:
    """What `model.safetensors` holds; `settings` are all those of the training, as a plain dictionary."""

    settings: JsonObject
    preparation: Preparation
    class_names: tuple[str, ...]
    weights: Mapping[str, Tensor]
    loss_state: Mapping[str, Tensor] = field(default_factory=dict)
    chosen_epoch: int = -1
    notes: tuple[str, ...] = ()
    identity: TrainingIdentity = field(default_factory=TrainingIdentity)

    def write(self, folder: Path) -> None:
        """Write it into a folder, whole or not at all."""
        record = {
            "settings": self.settings,
            "preparation": self.preparation.as_dict(),
            "class_names": self.class_names,
            "chosen_epoch": self.chosen_epoch,
            "notes": self.notes,
            "identity": self.identity.as_dict(),
        }
        tensors = {f"model.{name}": values for name, values in self.weights.items()}
        tensors |= {f"loss.{name}": values for name, values in self.loss_state.items()}
        save_fitted(folder / MODEL_FILE, formats.TRAINED, FittedState(record, tensors))

    @classmethod
    def read(cls, path: str | Path) -> TrainedFile:
        """Read a folder's file, or the file itself."""
        file = trained_file(path)
        if not file.exists():
            raise InputError(f"{path} must be a trained model (a folder with {MODEL_FILE}), but there is none")
        return load_fitted(file, formats.TRAINED, cls._of)

    @classmethod
    def _of(cls, state: FittedState) -> TrainedFile:
        record, tensors = state.record, state.tensors
        return cls(
            record["settings"],
            Preparation.from_dict(record["preparation"]),
            tuple(record["class_names"]),
            {name.removeprefix("model."): v for name, v in tensors.items() if name.startswith("model.")},
            {name.removeprefix("loss."): v for name, v in tensors.items() if name.startswith("loss.")},
            record["chosen_epoch"],
            tuple(record["notes"]),
            TrainingIdentity.from_dict(record["identity"]),
        )

    def network(self) -> TrainedNetwork:
        """The model of the settings with the weights of the file."""
        word, options = self.settings["model"], self.settings["model_options"]
        model = build_model(word, options, self.preparation, len(self.class_names), load_pretrained=False)
        load_weights(model, self.weights)
        precision, deterministic = self.settings["precision"], self.settings["deterministic"]
        return TrainedNetwork(model.eval(), self.preparation, self.class_names, word, precision, deterministic)


def trained_file(path: str | Path) -> Path:
    """The file of a trained model: a folder's, or the file itself."""
    return Path(path) / MODEL_FILE if Path(path).is_dir() else Path(path)


def build_model(
    word: str, options: Options, preparation: Preparation, num_classes: int, *, load_pretrained: bool = True
) -> Classifier:
    """The model of a word for prepared inputs; its output width is checked."""
    known, options = method(word)[0].options, dict(options)
    if "vocabulary" in known and preparation.words:
        options["vocabulary"] = len(preparation.words) + 2
    if "pretrained" in known and not load_pretrained:
        options["pretrained"] = False
    model = create(word, preparation.shape, num_classes, **options)
    check_output_width(model, preparation.blank(2), num_classes)
    return model


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
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
