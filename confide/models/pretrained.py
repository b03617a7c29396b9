"""Every model of timm (`timm:<name>`) and every encoder of the Hugging Face hub (`hf:<name>`), with a new head."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from confide.checks import InputError, MissingExtra
from confide.models.base import MODELS, Classifier, feature_width
from confide.types import Options

# ---- Every model of timm, by name: `timm:<name>` ----


@MODELS.add("timm", paper="Wightman, 2019, PyTorch Image Models", named=True)
def timm(
    shape: tuple[int, ...], num_classes: int, *, name: str, pretrained: bool = True, dropout: float = 0.0
) -> Classifier:
    """A model of timm with a new linear head on its pooled features.

    When: large images with a trained network of timm.
    When not: there is no network access to fetch the weights.

    Args:
        shape: (channels, height, width) of an image.
        num_classes: width of the output.
        name: of the model in timm; in a word it stands after the colon, `timm:resnet50`.
        pretrained: start from timm's weights for that name.
        dropout: share of features dropped before the head.

    Returns:
        A `Classifier` on timm's body.

    Raises:
        MissingExtra: without the package timm.
        InputError: for a name that timm does not have, or weights that cannot be had.

    Example:
        >>> from confide import models
        >>> model = models.create("timm:resnet18", (3, 64, 64), 5, pretrained=False)  # doctest: +SKIP
        >>> model.head.out_features  # doctest: +SKIP
        5
    """
    try:
        import timm as library
    except ImportError:
        raise MissingExtra("timm", "timm", f"model 'timm:{name}'") from None
    if not library.is_model(name.split(".")[0]):
        near = library.list_models(f"*{name.split('_')[0]}*")[:5]
        hint = f"it has {', '.join(near)}" if near else "timm.list_models() lists them"
        raise InputError(f"timm has no model '{name}'; {hint}")
    body = _timm_body(library, name, shape, pretrained)
    return Classifier(body, nn.Linear(feature_width(body, torch.zeros((1, *shape))), num_classes), dropout)


def _timm_body(library: Any, name: str, shape: tuple[int, ...], pretrained: bool) -> nn.Module:
    options: Options = {"pretrained": pretrained, "num_classes": 0, "in_chans": shape[0]}
    try:
        try:
            body: nn.Module = library.create_model(name, **options, img_size=shape[1])
        except TypeError:
            # Networks that take any size have no such argument.
            body = library.create_model(name, **options)
    except (OSError, RuntimeError, ValueError) as error:
        if not pretrained:
            raise
        raise InputError(
            f"the weights of 'timm:{name}' could not be had ({str(error).splitlines()[0]}); put them into the hub's "
            "cache, or train from nothing with model_options.pretrained=false"
        ) from None
    return body


# ---- Every encoder of the Hugging Face hub, for texts and images: `hf:<name or folder>` ----


def mean_over_tokens(hidden: Tensor, mask: Tensor) -> Tensor:
    """Mean of a text's token vectors `n l d` over the places that hold a token."""
    weights = mask.to(hidden.dtype)[:, :, None]
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp_min(1)


class HubEncoder(nn.Module):
    """Features of a pre-trained encoder: the mean over a text's tokens, an image's pooled features."""

    def __init__(self, encoder: nn.Module, text: bool, resized: bool) -> None:
        super().__init__()
        self.encoder, self.text, self.resized = encoder, text, resized

    def forward(self, inputs: Tensor) -> Tensor:
        return self._of_text(inputs) if self.text else self._of_image(inputs)

    def _of_text(self, inputs: Tensor) -> Tensor:
        # Places without a token are marked -1, whatever number the tokenizer pads with.
        mask = inputs >= 0
        hidden: Tensor = self.encoder(input_ids=inputs.clamp_min(0), attention_mask=mask.long()).last_hidden_state
        return mean_over_tokens(hidden, mask)

    def _of_image(self, inputs: Tensor) -> Tensor:
        more: Options = {"interpolate_pos_encoding": True} if self.resized else {}
        hidden: Tensor = self.encoder(pixel_values=inputs, **more).last_hidden_state
        return hidden.mean(dim=(2, 3)) if hidden.ndim == 4 else hidden[:, 0]


@MODELS.add("hf", paper="Wolf et al., 2020, arXiv:1910.03771", named=True, takes="any")
def hf(
    shape: tuple[int, ...], num_classes: int, *, name: str, pretrained: bool = True, dropout: float = 0.1
) -> Classifier:
    """An encoder of the hub with a new linear head, for fine-tuning.

    When: texts or images with a trained encoder of the hub.
    When not: there is no network access to fetch the weights.

    Args:
        shape: (channels, height, width) of an image, or (length,) of a text's tokens.
        num_classes: width of the output.
        name: of the encoder on the hub, or a local folder; in a word it stands after the colon, `hf:bert-base-uncased`.
        pretrained: start from its weights; otherwise only its configuration is used.
        dropout: share of features dropped before the head.

    Returns:
        A `Classifier` on the encoder: the mean over a text's tokens, an image's pooled features.

    Raises:
        MissingExtra: without the package transformers.
        InputError: for an encoder that cannot be had.

    Example:
        >>> from confide import models
        >>> model = models.create("hf:bert-base-uncased", (64,), 5)  # doctest: +SKIP
    """
    try:
        from transformers import AutoConfig, AutoModel
    except ImportError:
        raise MissingExtra("transformers", "text", f"model 'hf:{name}'") from None
    text = len(shape) == 1
    try:
        config = AutoConfig.from_pretrained(name)
        side = getattr(config, "image_size", None)
        if not pretrained and not text and side is not None:
            config.image_size = shape[1]
        encoder = AutoModel.from_pretrained(name) if pretrained else AutoModel.from_config(config)
    except (OSError, ValueError) as error:
        raise InputError(f"model 'hf:{name}' could not be loaded: {str(error).splitlines()[0]}") from None
    # from_pretrained leaves the model in eval mode; building must not depend on where the weights came from.
    body = HubEncoder(encoder.train(), text, resized=bool(pretrained and not text and side not in (None, shape[1])))
    inputs = torch.zeros((1, *shape), dtype=torch.int64 if text else torch.float32)
    return Classifier(body, nn.Linear(feature_width(body, inputs), num_classes), dropout)
