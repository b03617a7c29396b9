"""Words -> extractors: inputs of any kind to feature rows."""

from confide.core.shards import open_features as open_features
from confide.features.clip import clip as clip
from confide.features.dinov2 import dinov2 as dinov2
from confide.features.efficientnet_lite0 import efficientnet_lite0 as efficientnet_lite0
from confide.features.efficientnet_lite2 import efficientnet_lite2 as efficientnet_lite2
from confide.features.extraction import extract as extract
from confide.features.family import EXTRACTORS as EXTRACTORS
from confide.features.family import Extractor as Extractor
from confide.features.family import create as create
from confide.features.family import names as names
from confide.features.family import usual as usual
from confide.features.mae import mae as mae
from confide.features.minilm import minilm as minilm
from confide.features.model import from_module as from_module
from confide.features.model import model as model
from confide.features.model import reads_checkpoints as reads_checkpoints
from confide.features.open_clip import open_clip as open_clip
from confide.features.pixels import pixels as pixels
from confide.features.timm import timm as timm
from confide.features.vit import vit as vit
