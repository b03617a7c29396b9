"""Out-of-distribution data (OOD): which datasets go together, which of their classes overlap, and samples of one in
the shape of another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confide.checks import InputError
from confide.records import Dataset, Split


@dataclass(frozen=True)
class OODPair:
    """A dataset of other classes for a known one: `near` or `far`, and those of its classes that overlap."""

    known: str
    ood: str
    distance: str
    overlapping: tuple[str, ...] = ()


def _class_names(text: str) -> tuple[str, ...]:
    return tuple(word.replace("_", " ") for word in text.split())


# Birds, cats, dogs, frogs, hoofed animals, cars, vans, trucks and boats.
TINY_IMAGENET_AS_CIFAR10 = _class_names(
    "bullfrog tailed_frog goose black_stork king_penguin albatross Chihuahua Yorkshire_terrier golden_retriever "
    "Labrador_retriever German_shepherd standard_poodle tabby Persian_cat Egyptian_cat cougar lion hog ox bison "
    "bighorn gazelle Arabian_camel beach_wagon convertible freight_car go-kart gondola lifeboat limousine moving_van "
    "police_van school_bus sports_car tractor trolleybus"
)
CIFAR100_AS_CIFAR10 = _class_names("bus pickup_truck streetcar tractor tank cattle camel leopard lion tiger wolf fox")

OOD_PAIRS = (
    OODPair("cifar10", "tinyimagenet32", "near", TINY_IMAGENET_AS_CIFAR10),
    OODPair("cifar10", "cifar100", "near", CIFAR100_AS_CIFAR10),
    OODPair("cifar10", "svhn", "far"),
    OODPair("cifar10", "dtd", "far"),
    OODPair("cifar10", "mnist", "far"),
    OODPair("clinc150", "out-of-scope", "near"),
)


def ood_pair(known: str, ood: str) -> OODPair:
    """The pair of these names; one that is not listed overlaps nowhere that we know of.

    Args:
        known: name of the dataset that a model was trained on.
        ood: name of the dataset of other classes.

    Returns:
        How near they are, and which classes overlap.

    Example:
        >>> confide.shift.ood_pair("cifar10", "svhn").distance
        'far'
    """
    for pair in OOD_PAIRS:
        if pair.known == known and ood.lower().startswith(pair.ood):
            return pair
    return OODPair(known, ood, "unknown")


def ood_split(dataset: Dataset, pair: OODPair, shape: tuple[int, ...] | None = None, *, most: int = 0) -> Split:
    """The samples to show as out of distribution: of `test`, else `val`, else `train`, without overlapping classes.

    Ids get the dataset's name in front: those of two datasets may read alike.

    Args:
        dataset: of other classes.
        pair: what overlaps, from `ood_pair`.
        shape: `c h w` of the model; images are scaled and their channels made alike. None leaves inputs as they are.
        most: samples at most, the first ones; 0 takes all.

    Returns:
        A split with the dataset's own labels.

    Raises:
        InputError: nothing is left to show.

    Example:
        >>> import numpy as np
        >>> dataset = confide.load_dataset((np.eye(20), np.arange(20) % 2))
        >>> pair = confide.shift.ood_pair("cifar10", "svhn")
        >>> len(confide.shift.ood_split(dataset, pair, most=3))
        2
    """
    name = next((word for word in ("test", "val", "train") if word in dataset.splits), None)
    if name is None or not len(dataset.splits[name]):
        raise InputError(f"dataset '{dataset.name}' must have samples to show as out of distribution, got none")
    split = dataset.splits[name]
    dropped = {i for i, word in enumerate(dataset.class_names) if word.replace("_", " ") in pair.overlapping}
    rows = np.flatnonzero(~np.isin(split.labels, list(dropped)))
    rows = rows[:most] if most else rows
    if not len(rows):
        raise InputError(f"all classes of '{dataset.name}' overlap with '{pair.known}'; no other class is left")
    split = split.take(rows)
    inputs = split.inputs if shape is None else to_shape(np.asarray(split.inputs[np.arange(len(rows))]), shape)
    return Split(inputs, split.labels, named_ids(split.ids, dataset.name), split.columns)


def named_ids(ids: NDArray[Any], name: str) -> NDArray[Any]:
    """Ids with the dataset's name in front."""
    return np.array([f"{name}/{sample_id}" for sample_id in ids.tolist()], dtype=np.str_)


def to_shape(images: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """uint8 images `n c h w` in another shape: grey repeated or colours averaged, scaled with smoothing."""
    if images.ndim != 4 or images.dtype != np.uint8:
        raise InputError(f"OOD inputs must be uint8 images n x c x h x w, got {images.dtype} {images.shape}")
    tensor = torch.from_numpy(np.ascontiguousarray(images)).float()
    if tensor.shape[1] != shape[0]:
        tensor = tensor.mean(dim=1, keepdim=True).expand(-1, shape[0], -1, -1)
    if tuple(tensor.shape[2:]) != tuple(shape[1:]):
        tensor = torch.nn.functional.interpolate(
            tensor, size=shape[1:], mode="bilinear", align_corners=False, antialias=True
        )
    scaled: NDArray[np.uint8] = tensor.round().clamp(0, 255).to(torch.uint8).numpy()
    return scaled
