"""Wide residual networks (Zagoruyko and Komodakis, 2016)."""

from __future__ import annotations

from torch import nn

from confide.models.blocks import Basic, Pool, conv, start_weights
from confide.models.family import MODELS, Classifier
from confide.models.resnet import preactivated

PAPER = "Zagoruyko and Komodakis, 2016, arXiv:1605.07146"


@MODELS.add("wide_resnet28_10", paper=PAPER, corners=({"dropout": 0.3},))
def wide_resnet28_10(shape: tuple[int, ...], num_classes: int, *, dropout: float = 0.0) -> Classifier:
    """WRN-28-10: three stages of four pre-activation blocks, 160 to 640 channels.

    Args:
        dropout: share of activations dropped between the two convolutions of each block, as in the paper.
    """
    return preactivated(shape, num_classes, 4, (160, 320, 640), 0.0, dropout)


@MODELS.add("wide_resnet26_10", paper=PAPER + "; in the form of the focal-loss papers", corners=({"dropout": 0.3},))
def wide_resnet26_10(shape: tuple[int, ...], num_classes: int, *, dropout: float = 0.0) -> Classifier:
    """WRN-26-10: three stages of four blocks with norm and ReLU after the convolutions, 160 to 640 channels.

    Args:
        dropout: share of features dropped before the head.
    """
    layers: list[nn.Module] = [conv(shape[0], 16, 3), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    channels = 16
    for stage, width in enumerate((160, 320, 640)):
        for number in range(4):
            layers.append(Basic(channels, width, 2 if stage and number == 0 else 1))
            channels = width
    body = nn.Sequential(*layers, Pool())
    start_weights(body)
    return Classifier(body, nn.Linear(channels, num_classes), dropout)
