"""What makes two trainings the same: settings, data, difficulty scores, device and number of processes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from confide.core.door import InputError
from confide.core.records import Dataset, Scores, Split
from confide.training.device import Device
from confide.training.distributed import World
from confide.training.samples import Samples
from confide.training.settings import Settings

LOOKED_AT = 64 << 20
"""Bytes of inputs that the digest reads; of larger splits evenly spread samples."""


def identity_of(
    dataset: Dataset, settings: Settings, samples: Samples, scores: Scores | None, device: Device, world: World
) -> dict[str, Any]:
    """A checkpoint may be resumed where all of this is equal."""
    return {
        **settings.as_dict(),
        **data_identity(dataset, samples, scores),
        "device": device.device.type,
        "precision": device.precision,
        "processes": world.size,
    }


def data_identity(dataset: Dataset, samples: Samples, scores: Scores | None) -> dict[str, Any]:
    """Name, size and digests of the data and scores of a training."""
    digest = None
    if scores is not None:
        values = np.ascontiguousarray(scores.values, dtype=np.float64)
        digest = hashlib.sha256("\0".join(map(str, scores.ids)).encode() + values.tobytes()).hexdigest()[:16]
    return {
        "dataset": dataset.name,
        "training samples": len(samples.train),
        "training data": split_digest(samples.train),
        "validation data": None if samples.val is None else split_digest(samples.val),
        "difficulty scores": digest,
    }


def split_digest(split: Split) -> str:
    """A digest of ids, labels and inputs."""
    digest = hashlib.sha256("\0".join(map(str, split.ids)).encode())
    digest.update(np.ascontiguousarray(split.labels, dtype=np.int64).tobytes())
    fingerprint = getattr(split.inputs, "fingerprint", None)
    if fingerprint is not None:
        digest.update(str(fingerprint).encode())
    elif isinstance(split.inputs, (list, tuple)):
        digest.update("\0".join(map(str, split.inputs)).encode())
    elif len(split):
        size = np.asarray(split.inputs[:1]).nbytes
        rows = np.unique(np.linspace(0, len(split) - 1, max(1, min(len(split), LOOKED_AT // max(size, 1)))).astype(int))
        looked = np.asarray(split.inputs[rows])
        digest.update(looked.tobytes() if looked.dtype != object else "\0".join(map(str, looked)).encode())
    return digest.hexdigest()[:16]


def first_difference(held: Mapping[str, Any], wanted: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """(what, then, now) of the first thing in which two identities differ."""
    now = json.loads(json.dumps(dict(wanted)))
    for key in sorted({*held, *now}):
        if held.get(key) != now.get(key):
            return key, held.get(key), now.get(key)
    return None


def refuse_other(where: Any, difference: tuple[str, Any, Any] | None) -> None:
    """One clear line where a folder holds another training."""
    if difference is not None:
        key, then, now = difference
        raise InputError(
            f"{where} holds a training with {key} = {then!r}, now {now!r}; "
            "choose another folder, or the same settings to go on"
        )
