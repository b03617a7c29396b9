"""Models: CIFAR and ImageNet networks, a text network, an MLP on features, and those of timm and transformers."""

from confide.models.densenet121 import densenet121
from confide.models.family import MODELS, Classifier, check_output_width, create, method, names, parameter_count
from confide.models.hf import hf
from confide.models.mlp import mlp
from confide.models.resnet import (
    preresnet56,
    resnet18,
    resnet18_imagenet,
    resnet34,
    resnet34_imagenet,
    resnet50,
    resnet50_imagenet,
    resnet110,
)
from confide.models.small_cnn import small_cnn
from confide.models.text_cnn import text_cnn
from confide.models.timm import timm
from confide.models.vit_small import vit_small
from confide.models.wide_resnet import wide_resnet26_10, wide_resnet28_10

__all__ = [
    "MODELS",
    "Classifier",
    "check_output_width",
    "create",
    "densenet121",
    "hf",
    "method",
    "mlp",
    "names",
    "parameter_count",
    "preresnet56",
    "resnet18",
    "resnet18_imagenet",
    "resnet34",
    "resnet34_imagenet",
    "resnet50",
    "resnet50_imagenet",
    "resnet110",
    "small_cnn",
    "text_cnn",
    "timm",
    "vit_small",
    "wide_resnet26_10",
    "wide_resnet28_10",
]
