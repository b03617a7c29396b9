"""`features:<word>` as a model: the network of an image extractor with a new head, for fine-tuning."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from confide.checks import InputError
from confide.features.extraction import create
from confide.features.images import Preprocess
from confide.models.base import MODELS, Classifier, feature_width


class ExtractorBody(nn.Module):
    """Feature rows of images in levels 0 to 255, resized and normalised as the extractor wants them."""

    def __init__(self, word: str) -> None:
        super().__init__()
        extractor = create(word)
        prepare = extractor.prepare
        if extractor.module is None or not isinstance(prepare, Preprocess) or not prepare.takes_batches():
            raise InputError(
                f"model 'features:{word}' must be an extractor with a network over images that prepares them in "
                f"batches, and '{word}' is none; use efficientnet_lite0, or the models timm:<name> and hf:<name>"
            )
        self.word, self.prepare, self.encode = word, prepare, extractor.encode
        self.network = extractor.module.train()

    def forward(self, levels: Tensor) -> Tensor:
        return self.encode(self.prepare.batch(levels))

    def __deepcopy__(self, memo: dict[int, Any]) -> ExtractorBody:
        # `encode` holds the network itself: a copy of the module alone would go on calling the first one.
        again = ExtractorBody(self.word).to(next(self.parameters()).device)
        again.load_state_dict(self.state_dict())
        return again.train(self.training)


@MODELS.add("features", paper="the extractor's own", named=True)
def features(
    shape: tuple[int, ...],
    num_classes: int,
    *,
    name: str,
    body_rate: float = 0.1,
    frozen_epochs: int = 1,
    dropout: float = 0.0,
) -> Classifier:
    """The network of an image extractor with a new linear head: `features:efficientnet_lite0`.

    When: few labelled images and a pre-trained extractor.
    When not: images are unlike what it was trained on and many are labelled.

    Args:
        shape: (channels, height, width) of an image.
        num_classes: width of the output.
        name: word of the extractor, after the colon.
        body_rate: learning rate of the extractor's weights, as a share of the head's.
        frozen_epochs: first epochs in which only the head learns, so that its first steps do not spoil the rest.
        dropout: share of features dropped before the head.

    Returns:
        A `Classifier` on the extractor's network, with its pre-trained weights.

    Raises:
        MissingExtra: without the package or the weights of the extractor.
        InputError: for an extractor that is no network over images.

    Example:
        >>> from confide import models
        >>> model = models.create("features:efficientnet_lite0", (3, 32, 32), 10)  # doctest: +SKIP
        >>> model.head.in_features  # doctest: +SKIP
        1280
    """
    body = ExtractorBody(name)
    model = Classifier(body, nn.Linear(feature_width(body, torch.zeros((1, *shape))), num_classes), dropout)
    model.body_rate, model.frozen_epochs = float(body_rate), int(frozen_epochs)
    return model
