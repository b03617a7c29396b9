"""Residual blocks that several networks share."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

Shortcut = Callable[[int, int, int], nn.Module]


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias that keeps the size at stride 1."""
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


def projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Shortcut by a 1x1 convolution and batch norm (option B of He et al.)."""
    return nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class Padding(nn.Module):
    """Shortcut without parameters: every second pixel, and zeros for the new channels (option A of He et al.)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.extra, self.stride = outputs - inputs, stride

    def forward(self, inputs: Tensor) -> Tensor:
        thinned = inputs[:, :, :: self.stride, :: self.stride]
        return functional.pad(thinned, (0, 0, 0, 0, self.extra // 2, self.extra - self.extra // 2))


class Basic(nn.Module):
    """Two 3x3 convolutions, each with batch norm, added to the shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, shortcut: Shortcut = projection) -> None:
        super().__init__()
        self.conv1, self.norm1 = conv(inputs, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = conv(width, width, 3), nn.BatchNorm2d(width)
        same = stride == 1 and inputs == width
        self.shortcut = nn.Identity() if same else shortcut(inputs, width, stride)

    def forward(self, inputs: Tensor) -> Tensor:
        inner = torch.relu(self.norm1(self.conv1(inputs)))
        return torch.relu(self.norm2(self.conv2(inner)) + self.shortcut(inputs))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions, the last four times as wide, added to the shortcut."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, shortcut: Shortcut = projection) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1, self.norm1 = conv(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.norm3 = conv(width, outputs, 1), nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else shortcut(inputs, outputs, stride)

    def forward(self, inputs: Tensor) -> Tensor:
        inner = torch.relu(self.norm1(self.conv1(inputs)))
        inner = torch.relu(self.norm2(self.conv2(inner)))
        return torch.relu(self.norm3(self.conv3(inner)) + self.shortcut(inputs))


class PreActivation(nn.Module):
    """Norm and ReLU before each of two 3x3 convolutions; a wider block projects what was activated."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), conv(inputs, width, 3, stride)
        self.norm2, self.conv2 = nn.BatchNorm2d(width), conv(width, width, 3)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        same = stride == 1 and inputs == width
        self.projection = None if same else conv(inputs, width, 1, stride)

    def forward(self, inputs: Tensor) -> Tensor:
        active = torch.relu(self.norm1(inputs))
        kept = inputs if self.projection is None else self.projection(active)
        inner = self.dropout(torch.relu(self.norm2(self.conv1(active))))
        outputs: Tensor = self.conv2(inner) + kept
        return outputs


class Pool(nn.Module):
    """Mean over all places: n c h w -> n c."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.mean(dim=(2, 3))


def start_weights(model: nn.Module) -> None:
    """He initialisation of convolutions, fan out (He et al., 2015)."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
