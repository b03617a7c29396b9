"""Models: CIFAR and ImageNet networks, a text network, an MLP on features, and those of timm and transformers."""

from confide.models.base import (
    MODELS as MODELS,
    Classifier as Classifier,
    check_output_width as check_output_width,
    create as create,
    method as method,
    names as names,
    parameter_count as parameter_count,
)
from confide.models.device import Device as Device
from confide.models.networks import (
    densenet121 as densenet121,
    mlp as mlp,
    preresnet56 as preresnet56,
    resnet18 as resnet18,
    resnet18_imagenet as resnet18_imagenet,
    resnet34 as resnet34,
    resnet34_imagenet as resnet34_imagenet,
    resnet50 as resnet50,
    resnet50_imagenet as resnet50_imagenet,
    resnet110 as resnet110,
    small_cnn as small_cnn,
    text_cnn as text_cnn,
    vit_small as vit_small,
    wide_resnet26_10 as wide_resnet26_10,
    wide_resnet28_10 as wide_resnet28_10,
)
from confide.models.pretrained import hf as hf, timm as timm
from confide.models.trained import TrainedNetwork as TrainedNetwork, load_network as load_network
