"""Densely connected network (Huang et al., 2017)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from confide.models.blocks import Pool, conv, start_weights
from confide.models.family import MODELS, Classifier


class Dense(nn.Module):
    """A bottleneck whose output is joined to its input."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(channels), conv(channels, 4 * growth, 1)
        self.norm2, self.conv2 = nn.BatchNorm2d(4 * growth), conv(4 * growth, growth, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        inner = self.conv1(torch.relu(self.norm1(inputs)))
        inner = self.conv2(torch.relu(self.norm2(inner)))
        return torch.cat([inputs, inner], dim=1)


@MODELS.add("densenet121", paper="Huang et al., 2017, arXiv:1608.06993", corners=({"growth": 12}, {"dropout": 0.2}))
def densenet121(
    shape: tuple[int, ...], num_classes: int, *, growth: int = 32, stem: str = "auto", dropout: float = 0.0
) -> Classifier:
    """DenseNet-121: dense blocks of 6, 12, 24 and 16 bottlenecks, halved in width and size between them.

    Args:
        growth: channels that each bottleneck adds.
        stem: small (3x3), large (7x7 of stride 2 and max pooling), or auto: large from 64 pixels on.
        dropout: share of features dropped before the head.
    """
    channels = 2 * growth
    large = stem == "large" or (stem == "auto" and min(shape[1:]) >= 64)
    layers: list[nn.Module] = [conv(shape[0], channels, 7, 2) if large else conv(shape[0], channels, 3)]
    if large:
        layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
    for block, depth in enumerate((6, 12, 24, 16)):
        for _ in range(depth):
            layers.append(Dense(channels, growth))
            channels += growth
        if block < 3:
            layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), conv(channels, channels // 2, 1)]
            layers.append(nn.AvgPool2d(2))
            channels //= 2
    body = nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(inplace=True), Pool())
    start_weights(body)
    return Classifier(body, nn.Linear(channels, num_classes), dropout)
