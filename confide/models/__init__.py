"""Models: CIFAR and ImageNet networks, a text network, an MLP on features, and those of timm and transformers."""

from confide.models.family import MODELS, Classifier, check_output_width, create, method, names, parameter_count
from confide.models.mlp import mlp
from confide.models.small_cnn import small_cnn

__all__ = [
    "MODELS",
    "Classifier",
    "check_output_width",
    "create",
    "method",
    "mlp",
    "names",
    "parameter_count",
    "small_cnn",
]
