"""Fully connected layers on rows of features."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from confide.models.family import MODELS, Classifier


@MODELS.add("mlp", paper="Rosenblatt, 1958", takes="any", corners=({"hidden": ()}, {"dropout": 0.5}))
def mlp(
    shape: tuple[int, ...], num_classes: int, *, hidden: Sequence[int] = (256,), dropout: float = 0.0
) -> Classifier:
    """Fully connected layers with ReLU on rows of features (or on flattened images).

    Args:
        hidden: units of each hidden layer; none makes it a linear model.
        dropout: share of units dropped after each hidden layer.
    """
    size = 1
    for extent in shape:
        size *= extent
    layers: list[nn.Module] = [nn.Flatten()]
    for units in hidden:
        layers += [nn.Linear(size, units), nn.ReLU(inplace=True)]
        if dropout:
            layers.append(nn.Dropout(dropout))
        size = units
    return Classifier(nn.Sequential(*layers), nn.Linear(size, num_classes))
