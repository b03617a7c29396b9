"""Words -> extractors: inputs of any kind to feature rows."""

from confide.features.extraction import (
    EXTRACTORS as EXTRACTORS,
    Extractor as Extractor,
    create as create,
    extract as extract,
    from_module as from_module,
    model as model,
    names as names,
    pixels as pixels,
    usual as usual,
)
from confide.features.pretrained import (
    clip as clip,
    dinov2 as dinov2,
    efficientnet_lite0 as efficientnet_lite0,
    efficientnet_lite2 as efficientnet_lite2,
    mae as mae,
    minilm as minilm,
    open_clip as open_clip,
    timm as timm,
    vit as vit,
)
