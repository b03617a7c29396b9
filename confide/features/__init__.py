"""Words -> extractors: inputs of any kind to feature rows."""

from confide.core.shards import open_features as open_features
from confide.features.extraction import extract as extract
from confide.features.family import EXTRACTORS as EXTRACTORS
from confide.features.family import Extractor as Extractor
from confide.features.family import create as create
from confide.features.family import names as names
from confide.features.pixels import pixels as pixels
