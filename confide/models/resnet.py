"""Residual networks (He et al., 2016): for CIFAR-sized images, and in the form for ImageNet."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from confide.models.blocks import Basic, Bottleneck, Padding, Pool, PreActivation, conv, start_weights
from confide.models.family import MODELS, Classifier

PAPER = "He et al., 2016, arXiv:1512.03385"
DROPOUT: tuple[dict[str, float], ...] = ({"dropout": 0.2},)


def residual(
    stem: nn.Module, channels: int, block: type[Basic] | type[Bottleneck], depths: Sequence[int], width: int
) -> tuple[nn.Sequential, int]:
    """Stages of blocks, each twice as wide and half as large as the one before; returns (body, features)."""
    layers = [stem]
    for stage, depth in enumerate(depths):
        for number in range(depth):
            stride = 2 if stage and number == 0 else 1
            layers.append(block(channels, width << stage, stride))
            channels = (width << stage) * block.expansion
    body = nn.Sequential(*layers, Pool())
    start_weights(body)
    return body, channels


def _cifar(
    shape: tuple[int, ...], num_classes: int, block: type[Basic] | type[Bottleneck], depths: Sequence[int], drop: float
) -> Classifier:
    stem = nn.Sequential(conv(shape[0], 64, 3), nn.BatchNorm2d(64), nn.ReLU(inplace=True))
    body, features = residual(stem, 64, block, depths, 64)
    return Classifier(body, nn.Linear(features, num_classes), drop)


def _imagenet(
    shape: tuple[int, ...], num_classes: int, block: type[Basic] | type[Bottleneck], depths: Sequence[int], drop: float
) -> Classifier:
    stem = nn.Sequential(
        conv(shape[0], 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)
    )
    body, features = residual(stem, 64, block, depths, 64)
    return Classifier(body, nn.Linear(features, num_classes), drop)


@MODELS.add("resnet18", paper=PAPER, corners=DROPOUT)
def resnet18(shape: tuple[int, ...], num_classes: int, *, dropout: float = 0.0) -> Classifier:
    """ResNet-18 for small images: a 3x3 stem without pooling, 64 to 512 channels.

    Args:
        dropout: share of features dropped before the head.
    """
    return _cifar(shape, num_classes, Basic, (2, 2, 2, 2), dropout)


@MODELS.add("resnet34", paper=PAPER, corners=DROPOUT)
def resnet34(shape: tuple[int, ...], num_classes: int, *, dropout: float = 0.0) -> Classifier:
    """ResNet-34 for small images: a 3x3 stem without pooling, 64 to 512 channels.

    Args:
        dropout: share of features dropped before the head.
    """
    return _cifar(shape, num_classes, Basic, (3, 4, 6, 3), dropout)


@MODELS.add("resnet50", paper=PAPER, corners=DROPOUT)
def resnet50(shape: tuple[int, ...], num_classes: int, *, dropout: float = 0.0) -> Classifier:
    """ResNet-50 for small images: a 3x3 stem without pooling, bottlenecks of 256 to 2048 channels.

    Args:
        dropout: share of features dropped before the head.
    """
    return _cifar(shape, num_classes, Bottleneck, (3, 4, 6, 3), dropout)


@MODELS.add("resnet18_imagenet", paper=PAPER, corners=DROPOUT)
def resnet18_imagenet(shape: tuple[int, ...], num_classes: int, *, dropout: float = 0.0) -> Classifier:
    """ResNet-18 for large images: a 7x7 stem of stride 2 and max pooling.

    Args:
        dropout: share of features dropped before the head.
    """
    return _imagenet(shape, num_classes, Basic, (2, 2, 2, 2), dropout)


@MODELS.add("resnet34_imagenet", paper=PAPER, corners=DROPOUT)
def resnet34_imagenet(shape: tuple[int, ...], num_classes: int, *, dropout: float = 0.0) -> Classifier:
    """ResNet-34 for large images: a 7x7 stem of stride 2 and max pooling.

    Args:
        dropout: share of features dropped before the head.
    """
    return _imagenet(shape, num_classes, Basic, (3, 4, 6, 3), dropout)


@MODELS.add("resnet50_imagenet", paper=PAPER, corners=DROPOUT)
def resnet50_imagenet(shape: tuple[int, ...], num_classes: int, *, dropout: float = 0.0) -> Classifier:
    """ResNet-50 for large images: a 7x7 stem of stride 2, max pooling, bottlenecks (stride in the 3x3).

    Args:
        dropout: share of features dropped before the head.
    """
    return _imagenet(shape, num_classes, Bottleneck, (3, 4, 6, 3), dropout)


@MODELS.add("resnet110", paper=PAPER, corners=DROPOUT)
def resnet110(shape: tuple[int, ...], num_classes: int, *, dropout: float = 0.0) -> Classifier:
    """ResNet-110 of the paper's CIFAR section: 3 stages of 18 blocks, 16 to 64 channels, shortcuts by padding.

    Args:
        dropout: share of features dropped before the head.
    """
    layers: list[nn.Module] = [conv(shape[0], 16, 3), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    channels = 16
    for width in (16, 32, 64):
        for number in range(18):
            layers.append(Basic(channels, width, 2 if width > 16 and number == 0 else 1, Padding))
            channels = width
    body = nn.Sequential(*layers, Pool())
    start_weights(body)
    return Classifier(body, nn.Linear(64, num_classes), dropout)


@MODELS.add("preresnet56", paper="He et al., 2016, arXiv:1603.05027", corners=DROPOUT)
def preresnet56(shape: tuple[int, ...], num_classes: int, *, dropout: float = 0.0) -> Classifier:
    """PreResNet-56: norm and ReLU before the convolutions, 3 stages of 9 blocks, 16 to 64 channels.

    Args:
        dropout: share of features dropped before the head.
    """
    return preactivated(shape, num_classes, 9, (16, 32, 64), dropout)


def preactivated(
    shape: tuple[int, ...], num_classes: int, depth: int, widths: Sequence[int], dropout: float, inner: float = 0.0
) -> Classifier:
    """Three stages of pre-activation blocks on a stem of 16 channels, with a last norm and ReLU."""
    layers: list[nn.Module] = [conv(shape[0], 16, 3)]
    channels = 16
    for stage, width in enumerate(widths):
        for number in range(depth):
            layers.append(PreActivation(channels, width, 2 if stage and number == 0 else 1, inner))
            channels = width
    body = nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(inplace=True), Pool())
    start_weights(body)
    return Classifier(body, nn.Linear(channels, num_classes), dropout)
