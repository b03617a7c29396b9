"""Parameter counts against the published ones, and the door."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from confide import models
from confide.checks import InputError, OptionError
from confide.models.base import Classifier

CIFAR, IMAGENET = (3, 32, 32), (3, 224, 224)
PUBLISHED = [
    # Small-image forms with a 3x3 stem: counts that the common public implementations print.
    ("resnet18", CIFAR, 10, 11_173_962),
    ("resnet34", CIFAR, 10, 21_282_122),
    ("resnet50", CIFAR, 10, 23_520_842),
    # He et al. (2016), Table 6: 1.7 million.
    ("resnet110", CIFAR, 10, 1_727_962),
    ("preresnet56", CIFAR, 10, 855_578),
    # Zagoruyko and Komodakis (2016), Table 4: 36.5 million.
    ("wide_resnet28_10", CIFAR, 10, 36_479_194),
    ("wide_resnet28_10", CIFAR, 100, 36_536_884),
    ("densenet121", CIFAR, 10, 6_956_298),
    ("densenet121", IMAGENET, 1000, 7_978_856),
    # ImageNet forms as distributed with torchvision; ViT-S/16 as in timm.
    ("resnet18_imagenet", IMAGENET, 1000, 11_689_512),
    ("resnet34_imagenet", IMAGENET, 1000, 21_797_672),
    ("resnet50_imagenet", IMAGENET, 1000, 25_557_032),
    ("vit_small", IMAGENET, 1000, 22_050_664),
]


@pytest.mark.parametrize(("word", "shape", "num_classes", "count"), PUBLISHED, ids=lambda v: str(v))
def test_parameter_count_is_the_published_one(word: str, shape: tuple[int, ...], num_classes: int, count: int) -> None:
    with torch.device("meta"):
        # The widths are checked without drawing the weights.
        model = models.create(word, shape, num_classes)
    assert models.parameter_count(model) == count


@pytest.mark.parametrize("layers", [18, 34, 50])
def test_a_resnet_for_large_images_differs_in_its_stem_only(layers: int) -> None:
    with torch.device("meta"):
        small, large = (models.create(f"resnet{layers}{form}", CIFAR, 10) for form in ("", "_imagenet"))
    weights = [[tuple(p.shape) for p in model.parameters()] for model in (small, large)]
    assert weights[0][1:] == weights[1][1:]
    assert (weights[0][0], weights[1][0]) == ((64, 3, 3, 3), (64, 3, 7, 7))


def test_wide_resnet26_differs_from_28_in_its_norms_only() -> None:
    with torch.device("meta"):
        post, pre = (models.create(f"wide_resnet{d}_10", CIFAR, 10) for d in (26, 28))
    convolutions = [sum(p.numel() for p in model.parameters() if p.ndim == 4) for model in (post, pre)]
    assert convolutions[0] == convolutions[1]
    # Norms: (16 + 3 stages x (8 + 1) x width) against pre-activation's, two numbers a channel.
    after = 2 * (16 + 9 * (160 + 320 + 640))
    before = 2 * ((16 + 7 * 160) + (160 + 7 * 320) + (320 + 7 * 640) + 640)
    assert models.parameter_count(post) - models.parameter_count(pre) == after - before


def test_text_cnn_by_hand() -> None:
    # Vectors 1000 x 100; convolutions 100-128-128-128 over five words; dense 128; head 128 x 20.
    expected = 1000 * 100 + (100 + 128 + 128) * 128 * 5 + 3 * 128 + (128 * 128 + 128) + (128 * 20 + 20)
    assert models.parameter_count(models.create("text_cnn", (50,), 20, vocabulary=1000)) == expected


def test_bad_words_and_shapes_get_one_line() -> None:
    with pytest.raises(InputError, match="did you mean 'resnet18'"):
        models.create("resnet81", CIFAR, 10)
    with pytest.raises(InputError, match="takes image inputs, got inputs of shape"):
        models.create("resnet18", (64,), 10)
    with pytest.raises(OptionError, match="did you mean 'dropout'"):
        models.create("resnet18", CIFAR, 10, droput=0.1)
    with pytest.raises(InputError, match="after the colon"):
        models.create("timm:", CIFAR, 10)
    with pytest.raises(InputError, match="num_classes"):
        models.create("mlp", (4,), 1)
    with pytest.raises(InputError, match="patch must divide"):
        models.create("vit_small", CIFAR, 10, patch=5)


@pytest.mark.parametrize(
    ("word", "options", "line"),
    [
        ("small_cnn", {"width": 0}, r"width of model 'small_cnn' must lie in \[1, 1e\+06\], got 0"),
        ("small_cnn", {"width": "wide"}, r"width of model 'small_cnn' must be a number, got 'wide'"),
        ("small_cnn", {"hidden": 2.5}, r"hidden of model 'small_cnn' must be a whole number, got 2.5"),
        ("resnet18", {"dropout": 2}, r"dropout of model 'resnet18' must lie in \[0, 1\], got 2"),
        ("vit_small", {"depth": 0}, r"depth of model 'vit_small' must lie in"),
        ("mlp", {"hidden": 256}, r"hidden of model 'mlp' must be a list of numbers, such as \[256, 128\], got 256"),
        ("mlp", {"hidden": [64, "x"]}, r"hidden of model 'mlp' must be a number, got 'x'"),
        ("timm:resnet18", {"name": "resnet34"}, r"model 'timm' has no option 'name'"),
        ("timm:resnet18", {"pretrained": "yes"}, r"pretrained of model 'timm' must be one of True, False, got 'yes'"),
    ],
)
def test_values_of_options_are_checked(word: str, options: dict[str, object], line: str) -> None:
    shape = (7,) if word == "mlp" else (3, 32, 32)
    with pytest.raises((InputError, OptionError), match=line):
        models.create(word, shape, 10, **options)


def test_an_output_of_another_width_is_refused() -> None:
    model = models.create("mlp", (4,), 3)
    with pytest.raises(InputError, match=r"one logit per class \(5\)"):
        models.check_output_width(model, torch.zeros(2, 4), 5)


def test_predictions_under_autocast_keep_the_digits_of_their_logits():
    torch.manual_seed(0)
    model, inputs = models.create("small_cnn", (1, 28, 28), 10).eval(), torch.randn(2000, 1, 28, 28)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        logits = model(inputs)
        assert model.train()(inputs).dtype == torch.bfloat16  # steps are as quick as they were
    assert logits.dtype == torch.float32
    assert len(logits[:, 0].unique()) > 1900
    with torch.no_grad():
        assert model.half().eval()(inputs[:4].half()).dtype == torch.float16


def test_a_vision_transformer_answers_with_its_class_token() -> None:
    model = models.create("vit_small", (3, 8, 8), 2, patch=4, depth=1)
    body = next(part for part in model.modules() if hasattr(part, "token"))
    body.blocks = torch.nn.Identity()
    found = body(torch.randn(2, 3, 8, 8))
    torch.testing.assert_close(found, body.norm(body.token[0] + body.places[0, :1]).expand(2, -1))


def test_what_fills_up_a_short_text_says_nothing() -> None:
    model = models.create("text_cnn", (9,), 2, vocabulary=5)
    vectors = next(part for part in model.modules() if isinstance(part, torch.nn.Embedding)).weight
    assert [bool(row.any()) for row in vectors] == [False, True, True, True, True]


def test_logits_are_exact_in_use_and_as_quick_as_asked_for_in_training() -> None:
    model = Classifier(nn.Linear(3, 4), nn.Linear(4, 2))
    rows = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        dtypes = [model.train(training)(rows).dtype for training in (True, False)]
    assert dtypes == [torch.bfloat16, torch.float32]
    with torch.autocast("cpu", enabled=False):
        assert model.double()(rows.double()).dtype == torch.float64
