"""Models: CIFAR and ImageNet networks, a text network, an MLP on features, and those of timm and transformers."""

from confide.models.base import MODELS, Classifier, check_output_width, create, method, names, parameter_count
from confide.models.device import Device
from confide.models.networks import (
    densenet121,
    mlp,
    preresnet56,
    resnet18,
    resnet18_imagenet,
    resnet34,
    resnet34_imagenet,
    resnet50,
    resnet50_imagenet,
    resnet110,
    small_cnn,
    text_cnn,
    vit_small,
    wide_resnet26_10,
    wide_resnet28_10,
)
from confide.models.pretrained import hf, timm
from confide.models.trained import TrainedNetwork, load_network
