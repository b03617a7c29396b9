"""Words -> extractors: inputs of any kind to feature rows."""

from confide.features.extraction import EXTRACTORS, Extractor, create, extract, from_module, model, names, pixels, usual
from confide.features.pretrained import (
    clip,
    dinov2,
    efficientnet_lite0,
    efficientnet_lite2,
    mae,
    minilm,
    open_clip,
    timm,
    vit,
)
