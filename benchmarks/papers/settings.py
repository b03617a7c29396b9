"""The papers' own training settings, as far as papers and released code tell them."""

from __future__ import annotations

from benchmarks.lib.grid import MANY_CLASSES, Setting

RAW = {"weight_options": {"normalize": "minmax", "temperature": 0.7}}

# Cui et al. follow Wang et al. (2021) for CIFAR: 200 epochs, batch 512; 90 epochs for ImageNet.
CUI = {
    "epochs": 200,
    "batch_size": 512,
    "learning_rate": 0.1,
    "weight_decay": 1e-4,
    "schedule": "step",
    "schedule_options": {"milestones": [100, 150], "factor": 0.1},
    "augment": "crop_flip",
    **RAW,
}
CIFAR10_RESNET34 = Setting("cifar10", "resnet34", CUI, 5)
CIFAR100_RESNET34 = Setting("cifar100", "resnet34", CUI, 5, MANY_CLASSES)
IMAGENET = {
    "epochs": 90,
    "batch_size": 256,
    "learning_rate": 0.1,
    "weight_decay": 1e-4,
    "schedule": "step",
    "schedule_options": {"milestones": [30, 60], "factor": 0.1},
    "augment": "crop_flip",
    **RAW,
}
IMAGENET_RESNET34 = Setting("imagenet", "resnet34_imagenet", IMAGENET, 5, MANY_CLASSES)

# Zhou et al.: learning rate x 0.2 at epochs 60, 120, 160; the lowest validation loss after a warm-up.
ZHOU = {
    "epochs": 200,
    "batch_size": 128,
    "learning_rate": 0.1,
    "weight_decay": 5e-4,
    "schedule": "step",
    "schedule_options": {"milestones": [60, 120, 160], "factor": 0.2},
    "augment": "crop_flip",
    "choose": "nll",
    "choose_after": 40,
}
ZHOU_CIFAR10 = tuple(
    Setting("cifar10", model, ZHOU, 3) for model in ("resnet50", "resnet110", "wide_resnet28_10", "preresnet56")
)
ZHOU_CIFAR100 = tuple(
    Setting("cifar100", model, {**ZHOU, "epochs": 250}, 3, MANY_CLASSES)
    for model in ("resnet50", "resnet110", "wide_resnet28_10", "preresnet56")
)
ZHOU_TINY = Setting(
    "tiny-imagenet",
    "vit_small",
    {
        "epochs": 90,
        "batch_size": 256,
        "learning_rate": 1e-4,
        "weight_decay": 5e-4,
        "schedule": "cosine",
        "choose": "nll",
        "choose_after": 20,
    },
    3,
    MANY_CLASSES,
)
ZHOU_ALL = (*ZHOU_CIFAR10, *ZHOU_CIFAR100, ZHOU_TINY)

# Ghosh et al. follow Mukhoti et al. (2020): the loss summed over the batch, gradients clipped at norm 2.
GHOSH = {
    "epochs": 350,
    "batch_size": 128,
    "learning_rate": 0.1,
    "weight_decay": 5e-4,
    "schedule": "step",
    "schedule_options": {"milestones": [150, 250], "factor": 0.1},
    "reduction": "sum",
    "clip_norm": 2.0,
    "augment": "crop_flip",
    "choose": "accuracy",
}
GHOSH_TINY = {**GHOSH, "epochs": 100, "batch_size": 64, "schedule_options": {"milestones": [40, 60], "factor": 0.1}}
GHOSH_ALL = (
    *(Setting("cifar10", model, GHOSH, 5) for model in ("resnet50", "resnet110", "wide_resnet26_10", "densenet121")),
    *(
        Setting("cifar100", model, GHOSH, 5, MANY_CLASSES)
        for model in ("resnet50", "resnet110", "wide_resnet26_10", "densenet121")
    ),
    *(Setting("tiny-imagenet", model, GHOSH_TINY, 5, MANY_CLASSES) for model in ("resnet50", "resnet110")),
)

# Luo et al.: ResNet-50 on ImageNet (their ViT comes trained); VGG-16 on CIFAR-10 and a small network on MNIST, as
# Corbiere et al. (2019) trained them.
LUO = (Setting("imagenet", "resnet50_imagenet", IMAGENET, 3),)
CORBIERE = {"epochs": 250, "batch_size": 128, "learning_rate": 0.1, "weight_decay": 5e-4, "augment": "crop_flip"}
LUO_SMALL = (
    Setting("cifar10", "timm:vgg16_bn", {**CORBIERE, "model_options": {"pretrained": False}}, 1),
    Setting("mnist", "small_cnn", {**CORBIERE, "epochs": 100, "learning_rate": 0.01, "augment": "none"}, 1),
)

# The confusion score: three seeds of ResNet-50, 100 epochs on ImageNet; a larger one to compare with.
CONFUSION = tuple(
    Setting("imagenet", model, {**IMAGENET, "epochs": 100}, 3) for model in ("resnet50_imagenet", "resnet34_imagenet")
)
