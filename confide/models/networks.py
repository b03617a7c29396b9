"""Networks written out: residual, wide and dense ones, a small CNN, a vision transformer, an MLP and a text CNN."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from confide.checks import InputError
from confide.models.base import MODELS, Classifier

# ---- Residual blocks that several networks share ----

Shortcut = Callable[[int, int, int], nn.Module]


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """A convolution without bias that keeps the size at stride 1."""
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


def projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Shortcut by a 1x1 convolution and batch norm (option B of He et al.)."""
    return nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class PaddingShortcut(nn.Module):
    """Shortcut without parameters: every second pixel, and zeros for the new channels (option A of He et al.)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.extra, self.stride = outputs - inputs, stride

    def forward(self, inputs: Tensor) -> Tensor:
        thinned = inputs[:, :, :: self.stride, :: self.stride]
        return functional.pad(thinned, (0, 0, 0, 0, self.extra // 2, self.extra - self.extra // 2))


class BasicBlock(nn.Module):
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


class PreActivationBlock(nn.Module):
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
        passed = inputs if self.projection is None else self.projection(active)
        inner = self.dropout(torch.relu(self.norm2(self.conv1(active))))
        outputs: Tensor = self.conv2(inner) + passed
        return outputs


class MeanPool(nn.Module):
    """Mean over all places: n c h w -> n c."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.mean(dim=(2, 3))


def stages(
    block: Callable[[int, int, int], nn.Module], channels: int, widths: Sequence[int], depths: Sequence[int]
) -> list[nn.Module]:
    """Stages of blocks, each half as large as the one before; `channels` enter the first block."""
    layers = []
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        for number in range(depth):
            layers.append(block(channels, width, 2 if stage and number == 0 else 1))
            channels = width * getattr(block, "expansion", 1)
    return layers


def pooled(layers: Sequence[nn.Module], channels: int, num_classes: int, dropout: float) -> Classifier:
    """A classifier on the mean over all places of what the layers give; convolutions as He et al., 2015, fan out."""
    body = nn.Sequential(*layers, MeanPool())
    for module in body.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return Classifier(body, nn.Linear(channels, num_classes), dropout)


# ---- Residual networks (He et al., 2016): for CIFAR-sized images, and in the form for ImageNet ----

RESNET_PAPER = "He et al., 2016, arXiv:1512.03385"
DROPOUT: tuple[dict[str, float], ...] = ({"dropout": 0.2},)
RESNETS: dict[int, tuple[type[BasicBlock] | type[Bottleneck], tuple[int, ...]]] = {
    18: (BasicBlock, (2, 2, 2, 2)),
    34: (BasicBlock, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
}
"""Number of layers -> the block, and how many of it in each stage: the same for small and large images."""


def _resnet(layers: int, about: str, *, large: bool = False) -> Callable[..., Classifier]:
    """Register the ResNet of so many layers; its `help()` is that of a function written out."""
    block, depths = RESNETS[layers]
    word = f"resnet{layers}_imagenet" if large else f"resnet{layers}"
    title = f"ResNet-{layers} for {'large' if large else 'small'} images: {about}."
    choice = "first choice" if layers == 18 else "more time than resnet18, or papers that use it are compared"

    def build(shape: tuple[int, ...], num_classes: int, *, dropout: float = 0.0) -> Classifier:
        """{title}

        When: {when}.
        When not: {when_not}.

        Args:
            shape: (channels, height, width) of an image.
            num_classes: width of the output.
            dropout: share of features dropped before the head.

        Returns:
            A `Classifier`: its `features` are {width} numbers per image.

        Example:
            >>> from confide import models
            >>> model = models.create("{word}", (3, 32, 32), 10)
            >>> model.head.in_features
            {width}
        """
        first = conv(shape[0], 64, 7, 2) if large else conv(shape[0], 64, 3)
        stem = nn.Sequential(first, nn.BatchNorm2d(64), nn.ReLU(inplace=True))
        if large:
            stem.append(nn.MaxPool2d(3, 2, padding=1))
        blocks = stages(block, 64, (64, 128, 256, 512), depths)
        return pooled([stem, *blocks], 512 * block.expansion, num_classes, dropout)

    build.__name__ = build.__qualname__ = word
    when = f"images of {'some 200 pixels' if large else 'some 32 pixels'}; {choice}"
    large_ones = f"images are large: take {word}_imagenet"
    when_not = "images are small: its stem throws most of them away" if large else large_ones
    build.__doc__ = (build.__doc__ or "").format(
        title=title, word=word, width=512 * block.expansion, when=when, when_not=when_not
    )
    return MODELS.add(word, paper=RESNET_PAPER, corners=DROPOUT)(build)


SMALL_STEM, LARGE_STEM = "a 3x3 stem without pooling", "a 7x7 stem of stride 2"
resnet18 = _resnet(18, f"{SMALL_STEM}, 64 to 512 channels")
resnet34 = _resnet(34, f"{SMALL_STEM}, 64 to 512 channels")
resnet50 = _resnet(50, f"{SMALL_STEM}, bottlenecks of 256 to 2048 channels")
resnet18_imagenet = _resnet(18, f"{LARGE_STEM} and max pooling", large=True)
resnet34_imagenet = _resnet(34, f"{LARGE_STEM} and max pooling", large=True)
resnet50_imagenet = _resnet(50, f"{LARGE_STEM}, max pooling, bottlenecks (stride in the 3x3)", large=True)


def plain_residual(
    shape: tuple[int, ...], num_classes: int, depth: int, width: int, dropout: float, shortcut: Shortcut = projection
) -> Classifier:
    """Three stages of basic blocks, each twice as wide, on a stem of 16 channels with norm and ReLU."""
    stem = (conv(shape[0], 16, 3), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
    blocks = stages(partial(BasicBlock, shortcut=shortcut), 16, (width, 2 * width, 4 * width), (depth,) * 3)
    return pooled([*stem, *blocks], 4 * width, num_classes, dropout)


@MODELS.add("resnet110", paper=RESNET_PAPER, corners=DROPOUT)
def resnet110(shape: tuple[int, ...], num_classes: int, *, dropout: float = 0.0) -> Classifier:
    """ResNet-110 of the paper's CIFAR section: 3 stages of 18 blocks, 16 to 64 channels, shortcuts by padding.

    When: papers on CIFAR that use it are compared.
    When not: time counts: deep and thin.

    Args:
        shape: (channels, height, width) of an image.
        num_classes: width of the output.
        dropout: share of features dropped before the head.

    Returns:
        A `Classifier`: a body that gives features `n d`, and a linear head on them.

    Example:
        >>> from confide import models
        >>> model = models.create("resnet110", (3, 32, 32), 10)
        >>> model.head.in_features, model.head.out_features
        (64, 10)
    """
    return plain_residual(shape, num_classes, 18, 16, dropout, PaddingShortcut)


def preactivated(
    shape: tuple[int, ...], num_classes: int, depth: int, width: int, dropout: float, inner: float = 0.0
) -> Classifier:
    """Three stages of pre-activation blocks, each twice as wide, on a stem of 16 channels; last a norm and ReLU."""
    stem = conv(shape[0], 16, 3)
    blocks = stages(partial(PreActivationBlock, dropout=inner), 16, (width, 2 * width, 4 * width), (depth,) * 3)
    last = (nn.BatchNorm2d(4 * width), nn.ReLU(inplace=True))
    return pooled([stem, *blocks, *last], 4 * width, num_classes, dropout)


@MODELS.add("preresnet56", paper="He et al., 2016, arXiv:1603.05027", corners=DROPOUT)
def preresnet56(shape: tuple[int, ...], num_classes: int, *, dropout: float = 0.0) -> Classifier:
    """PreResNet-56: norm and ReLU before the convolutions, 3 stages of 9 blocks, 16 to 64 channels.

    When: many runs on small images: few numbers.
    When not: accuracy counts most.

    Args:
        shape: (channels, height, width) of an image.
        num_classes: width of the output.
        dropout: share of features dropped before the head.

    Returns:
        A `Classifier`: a body that gives features `n d`, and a linear head on them.

    Example:
        >>> from confide import models
        >>> model = models.create("preresnet56", (3, 32, 32), 10)
        >>> model.head.in_features, model.head.out_features
        (64, 10)
    """
    return preactivated(shape, num_classes, 9, 16, dropout)


# ---- Wide residual networks (Zagoruyko and Komodakis, 2016) ----

WIDE_RESNET_PAPER = "Zagoruyko and Komodakis, 2016, arXiv:1605.07146"


@MODELS.add("wide_resnet28_10", paper=WIDE_RESNET_PAPER, corners=({"dropout": 0.3},))
def wide_resnet28_10(shape: tuple[int, ...], num_classes: int, *, dropout: float = 0.0) -> Classifier:
    """WRN-28-10: three stages of four pre-activation blocks, 160 to 640 channels.

    When: papers on CIFAR that use it are compared.
    When not: time counts.

    Args:
        shape: (channels, height, width) of an image.
        num_classes: width of the output.
        dropout: share of activations dropped between the two convolutions of each block, as in the paper.

    Returns:
        A `Classifier`: a body that gives features `n d`, and a linear head on them.

    Example:
        >>> import torch
        >>> from confide import models
        >>> with torch.device("meta"):  # shapes without memory
        ...     model = models.create("wide_resnet28_10", (3, 32, 32), 10)
        >>> model.head.in_features, model.head.out_features
        (640, 10)
    """
    return preactivated(shape, num_classes, 4, 160, 0.0, dropout)


@MODELS.add(
    "wide_resnet26_10", paper=WIDE_RESNET_PAPER + "; in the form of the focal-loss papers", corners=({"dropout": 0.3},)
)
def wide_resnet26_10(shape: tuple[int, ...], num_classes: int, *, dropout: float = 0.0) -> Classifier:
    """WRN-26-10: three stages of four blocks with norm and ReLU after the convolutions, 160 to 640 channels.

    When: papers on focal losses are compared.
    When not: time counts.

    Args:
        shape: (channels, height, width) of an image.
        num_classes: width of the output.
        dropout: share of features dropped before the head.

    Returns:
        A `Classifier`: a body that gives features `n d`, and a linear head on them.

    Example:
        >>> import torch
        >>> from confide import models
        >>> with torch.device("meta"):  # shapes without memory
        ...     model = models.create("wide_resnet26_10", (3, 32, 32), 10)
        >>> model.head.in_features, model.head.out_features
        (640, 10)
    """
    return plain_residual(shape, num_classes, 4, 160, dropout)


# ---- Densely connected network (Huang et al., 2017) ----


class DenseLayer(nn.Module):
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

    When: papers on CIFAR that use it are compared.
    When not: memory is short: it keeps all feature maps.

    Args:
        shape: (channels, height, width) of an image.
        num_classes: width of the output.
        growth: channels that each bottleneck adds.
        stem: small (3x3), large (7x7 of stride 2 and max pooling), or auto: large from 64 pixels on.
        dropout: share of features dropped before the head.

    Returns:
        A `Classifier`: a body that gives features `n d`, and a linear head on them.

    Example:
        >>> from confide import models
        >>> model = models.create("densenet121", (3, 32, 32), 10, growth=12)
        >>> model.head.in_features, model.head.out_features
        (384, 10)
    """
    channels = 2 * growth
    large = stem == "large" or (stem == "auto" and min(shape[1:]) >= 64)
    layers: list[nn.Module] = [conv(shape[0], channels, 7, 2) if large else conv(shape[0], channels, 3)]
    if large:
        layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
    for block, depth in enumerate((6, 12, 24, 16)):
        for _ in range(depth):
            layers.append(DenseLayer(channels, growth))
            channels += growth
        if block < 3:
            layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True), conv(channels, channels // 2, 1)]
            layers.append(nn.AvgPool2d(2))
            channels //= 2
    layers += [nn.BatchNorm2d(channels), nn.ReLU(inplace=True)]
    return pooled(layers, channels, num_classes, dropout)


# ---- A small CNN ----


@MODELS.add("small_cnn", paper="after LeCun et al., 1998", corners=({"width": 4}, {"dropout": 0.5, "hidden": 0}))
def small_cnn(
    shape: tuple[int, ...], num_classes: int, *, width: int = 16, hidden: int = 128, dropout: float = 0.0
) -> Classifier:
    """Three blocks of 3x3 convolution, batch norm, ReLU and pooling with 1, 2, 4 times `width` channels, flattened.

    When: minutes on a CPU: demos and tests.
    When not: accuracy counts.

    Args:
        shape: (channels, height, width) of an image.
        num_classes: width of the output.
        width: channels of the first block.
        hidden: units of a hidden layer between the flattened map and the head; 0 leaves it out.
        dropout: share of features dropped before the head.

    Returns:
        A `Classifier`: a body that gives features `n d`, and a linear head on them.

    Example:
        >>> from confide import models
        >>> model = models.create("small_cnn", (1, 28, 28), 10, width=8)
        >>> model.head.in_features, model.head.out_features
        (128, 10)
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


# ---- Vision transformer (Dosovitskiy et al., 2021), small ----


class TransformerBlock(nn.Module):
    """Attention and a two-layer network, each on normed inputs and added to them."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        n, length, width = tokens.shape
        mixed = self.mix(self.norm1(tokens)).view(n, length, 3, self.heads, width // self.heads)
        query, key, value = mixed.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value)
        tokens = tokens + self.dropout(self.out(seen.transpose(1, 2).reshape(n, length, width)))
        result: Tensor = tokens + self.dropout(self.network(self.norm2(tokens)))
        return result


class PatchTransformer(nn.Module):
    """Image patches as tokens with positions, through the blocks; the class token comes out."""

    def __init__(self, shape: tuple[int, ...], patch: int, width: int, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.cut = nn.Conv2d(shape[0], width, patch, patch)
        length = (shape[1] // patch) * (shape[2] // patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.empty(1, length + 1, width))
        self.blocks, self.norm = nn.Sequential(*blocks), nn.LayerNorm(width, eps=1e-6)
        nn.init.trunc_normal_(self.places, std=0.02)
        nn.init.normal_(self.token, std=1e-6)

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = self.cut(inputs).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(tokens), -1, -1), tokens], dim=1) + self.places
        result: Tensor = self.norm(self.blocks(tokens))[:, 0]
        return result


@MODELS.add("vit_small", paper="Dosovitskiy et al., 2021, arXiv:2010.11929", corners=({"depth": 2}, {"dropout": 0.1}))
def vit_small(
    shape: tuple[int, ...], num_classes: int, *, patch: int = 0, depth: int = 12, dropout: float = 0.0
) -> Classifier:
    """ViT-Small: 384 wide, 12 blocks of 6 heads, the class token's features.

    When: very many images, or papers that use it are compared.
    When not: images are few: convolutions learn from fewer.

    Args:
        shape: (channels, height, width) of an image.
        num_classes: width of the output.
        patch: side of a patch; 0 takes 16 from 128 pixels on and 4 below.
        depth: number of blocks.
        dropout: share dropped after attention and in the two-layer networks.

    Returns:
        A `Classifier`: a body that gives features `n d`, and a linear head on them.

    Raises:
        InputError: a patch that does not divide the image's sides.

    Example:
        >>> from confide import models
        >>> model = models.create("vit_small", (3, 32, 32), 10, depth=2)
        >>> model.head.in_features, model.head.out_features
        (384, 10)
    """
    patch = patch or (16 if min(shape[1:]) >= 128 else 4)
    if shape[1] % patch or shape[2] % patch:
        raise InputError(f"patch must divide the image's sides, {shape[1]} x {shape[2]}, got {patch}; choose another")
    body = PatchTransformer(shape, patch, 384, [TransformerBlock(384, 6, dropout) for _ in range(depth)])
    for module in body.modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
            nn.init.zeros_(module.bias)
    return Classifier(body, nn.Linear(384, num_classes))


# ---- Fully connected layers ----


@MODELS.add("mlp", paper="Rosenblatt, 1958", takes="any", corners=({"hidden": ()}, {"dropout": 0.5}))
def mlp(
    shape: tuple[int, ...], num_classes: int, *, hidden: Sequence[int] = (256,), dropout: float = 0.0
) -> Classifier:
    """Fully connected layers with ReLU on rows of features (or on flattened images).

    When: rows of numbers or features.
    When not: images or texts as they are.

    Args:
        shape: of one input: (d,) of a row, or (channels, height, width) of an image.
        num_classes: width of the output.
        hidden: units of each hidden layer; none makes it a linear model.
        dropout: share of units dropped after each hidden layer.

    Returns:
        A `Classifier`: a body that gives features `n d`, and a linear head on them.

    Example:
        >>> from confide import models
        >>> model = models.create("mlp", (64,), 10, hidden=(32, 16))
        >>> model.head.in_features, model.head.out_features
        (16, 10)
    """
    size = math.prod(shape)
    layers: list[nn.Module] = [nn.Flatten()]
    for units in hidden:
        layers += [nn.Linear(size, units), nn.ReLU(inplace=True)]
        if dropout:
            layers.append(nn.Dropout(dropout))
        size = units
    return Classifier(nn.Sequential(*layers), nn.Linear(size, num_classes))


# ---- A convolutional network for texts, with global pooling ----


class TextConvolutions(nn.Module):
    """Word vectors, three convolutions with pooling between them, the largest response anywhere, a dense layer."""

    def __init__(self, vocabulary: int, width: int, filters: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(vocabulary, width, padding_idx=0)
        widths = (width, filters, filters, filters)
        self.layers = nn.ModuleList(nn.Conv1d(a, b, 5, padding=2) for a, b in pairwise(widths))
        self.dense = nn.Linear(filters, filters)

    def forward(self, inputs: Tensor) -> Tensor:
        signal = self.vectors(inputs).transpose(1, 2)
        for number, layer in enumerate(self.layers):
            signal = torch.relu(layer(signal))
            if number < len(self.layers) - 1 and signal.shape[2] >= 10:
                signal = torch.max_pool1d(signal, 2)
        return torch.relu(self.dense(signal.amax(dim=2)))


@MODELS.add("text_cnn", paper="Lin et al., 2014, arXiv:1312.4400", takes="text", corners=({"filters": 8},))
def text_cnn(
    shape: tuple[int, ...],
    num_classes: int,
    *,
    vocabulary: int = 20_000,
    width: int = 100,
    filters: int = 128,
    dropout: float = 0.2,
) -> Classifier:
    """Global-pooling text CNN: three convolutions over five words each, 128 filters.

    When: texts without a trained encoder, on a CPU.
    When not: texts are few: take features of minilm.

    Args:
        shape: (length,) of a text's word numbers.
        num_classes: width of the output.
        vocabulary: numbers of words, of which 0 pads and 1 is unknown; training sets it from its data.
        width: of the word vectors.
        filters: of each convolution and units of the dense layer.
        dropout: share of features dropped before the head.

    Returns:
        A `Classifier`: a body that gives features `n d`, and a linear head on them.

    Example:
        >>> from confide import models
        >>> model = models.create("text_cnn", (20,), 5, vocabulary=100)
        >>> model.head.in_features, model.head.out_features
        (128, 5)
    """
    return Classifier(TextConvolutions(vocabulary, width, filters), nn.Linear(filters, num_classes), dropout)
