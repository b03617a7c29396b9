"""A small convolutional network for small images."""

from __future__ import annotations

from torch import nn

from confide.models.family import MODELS, Classifier


@MODELS.add("small_cnn", paper="after LeCun et al., 1998", corners=({"width": 4}, {"dropout": 0.5, "hidden": 0}))
def small_cnn(
    shape: tuple[int, ...], num_classes: int, *, width: int = 16, hidden: int = 128, dropout: float = 0.0
) -> Classifier:
    """Three blocks of 3x3 convolution, batch norm, ReLU and pooling with 1, 2, 4 times `width` channels, flattened.

    Args:
        width: channels of the first block.
        hidden: units of a hidden layer between the flattened map and the head; 0 leaves it out.
        dropout: share of features dropped before the head.
    """
    channels, height, wide = shape
    layers: list[nn.Module] = []
    for out in (width, 2 * width, 4 * width):
        layers += [nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
        if min(height, wide) > 1:
            layers.append(nn.MaxPool2d(2))
            height, wide = height // 2, wide // 2
        channels = out
    layers.append(nn.Flatten())
    size = channels * height * wide
    if hidden:
        layers += [nn.Linear(size, hidden), nn.ReLU(inplace=True)]
    return Classifier(nn.Sequential(*layers), nn.Linear(hidden or size, num_classes), dropout)
