"""Trained: a model with all that is needed to use it, as a record and as files of a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from confide import models
from confide.core import files
from confide.core.door import InputError
from confide.core.results import Curve
from confide.models import Classifier
from confide.training.preparation import Preparation
from confide.training.settings import Settings
from confide.training.state import load_weights

FORMAT = "trained/1"
Column = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model, its preparation of inputs, and its log.

    `log` has a column per quantity and a row per epoch, and no clock in it: the same run gives the same log.
    `timings` has the seconds of training and validation per epoch, of this process alone.
    """

    model: Classifier
    settings: Settings
    preparation: Preparation
    class_names: tuple[str, ...]
    log: Mapping[str, Column]
    loss_state: Mapping[str, Tensor] = field(default_factory=dict)
    timings: Mapping[str, Column] = field(default_factory=dict)
    chosen_epoch: int = -1
    notes: tuple[str, ...] = ()
    identity: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    def curves(self, name: str = "model") -> tuple[Curve, ...]:
        """The log as curves to draw: quantities per epoch, AdaFocal's gamma per bin, the doubt per band."""
        columns = {k: tuple(float(x) for x in v) for k, v in self.log.items()}
        rest = {k: v for k, v in columns.items() if not k.startswith(("gamma", "doubt"))}
        drawn = [Curve("training", rest, model=name)]
        for word, part in (("gamma", "bin"), ("doubt", "band")):
            parts = {k.replace(word, part): v for k, v in columns.items() if k.startswith(word)}
            if parts:
                drawn.append(Curve(f"{word}s", {"epoch": columns["epoch"], **parts}, model=name))
        return tuple(drawn)

    def save(self, folder: str | Path) -> None:
        """Write log.parquet, timings.parquet and, last, model.safetensors: its presence means the run is whole."""
        folder = Path(folder)
        files.write_table(folder / "log.parquet", self.log)
        if self.timings:
            files.write_table(folder / "timings.parquet", self.timings)
        about = {
            "format": FORMAT,
            "settings": self.settings.as_dict(),
            "preparation": self.preparation.as_dict(),
            "class_names": list(self.class_names),
            "chosen_epoch": self.chosen_epoch,
            "notes": list(self.notes),
            "identity": dict(self.identity),
        }
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        tensors |= {f"loss.{k}": v for k, v in self.loss_state.items()}
        files.write_checkpoint(folder / "model.safetensors", tensors, {"about": json.dumps(about)})

    @classmethod
    def load(cls, path: str | Path) -> Trained:
        """Read a folder that `save` wrote, or its model.safetensors."""
        path = Path(path)
        file = path / "model.safetensors" if path.is_dir() else path
        if not file.exists():
            raise InputError(f"{path} must be a trained model (a folder with model.safetensors), but there is none")
        tensors, notes = files.read_checkpoint(file)
        about = _about(notes, file)
        settings = Settings.from_dict(about["settings"])
        preparation = Preparation.from_dict(about["preparation"])
        class_names = tuple(about["class_names"])
        model = build_model(settings, preparation, len(class_names), load_pretrained=False)
        load_weights(model, {k[6:]: v for k, v in tensors.items() if k.startswith("model.")})
        log = file.parent / "log.parquet"
        timings = file.parent / "timings.parquet"
        return cls(
            model.eval(),
            settings,
            preparation,
            class_names,
            files.read_table(log)[0] if log.exists() else {},
            {k[5:]: v for k, v in tensors.items() if k.startswith("loss.")},
            files.read_table(timings)[0] if timings.exists() else {},
            about["chosen_epoch"],
            tuple(about["notes"]),
            about["identity"],
        )


def _about(notes: Mapping[str, str], file: Path) -> dict[str, Any]:
    about = json.loads(notes.get("about", "{}"))
    if about.get("format") != FORMAT:
        raise InputError(f"{file} must be a model of format '{FORMAT}', got {about.get('format')!r}; train it again")
    return dict(about)


def build_model(
    settings: Settings, preparation: Preparation, num_classes: int, *, load_pretrained: bool = True
) -> Classifier:
    """The model of the settings for prepared inputs; its output width is checked."""
    options = dict(settings.model_options)
    known = models.method(settings.model)[0].options
    if "vocabulary" in known and preparation.words:
        options["vocabulary"] = len(preparation.words) + 2
    if "pretrained" in known and not load_pretrained:
        options["pretrained"] = False
    model = models.create(settings.model, preparation.shape, num_classes, **options)
    dtype = torch.int64 if preparation.kind == "text" else torch.float32
    models.check_output_width(model, torch.zeros((2, *preparation.shape), dtype=dtype), num_classes)
    return model
