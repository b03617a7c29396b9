"""Every model of the registry: a paper, a summary, logits of the right shape, features, gradients, every corner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from confide import models
from confide.models import MODELS, Classifier

OWN = [method for method in MODELS if not method.spec.named]
CASES = [(m.word, options) for m in OWN for options in ({}, *m.corners)]
SHAPES: Mapping[str, tuple[int, ...]] = {"image": (3, 8, 8), "any": (12,), "text": (20,)}


def inputs_of(word: str, n: int = 2) -> torch.Tensor:
    kind = MODELS.get(word).spec.takes
    shape = (3, 64, 64) if word.endswith("_imagenet") else SHAPES[kind]
    torch.manual_seed(0)
    return torch.randint(0, 50, (n, *shape)) if kind == "text" else torch.randn(n, *shape)


@pytest.mark.parametrize(("word", "options"), CASES, ids=str)
def test_logits_features_and_gradients(word: str, options: dict[str, Any]) -> None:
    inputs = inputs_of(word)
    model = models.create(word, tuple(inputs.shape[1:]), 4, **options)
    assert isinstance(model, Classifier)
    logits = model(inputs)
    assert logits.shape == (2, 4)
    logits.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert bool(torch.isfinite(parameter.grad).all()), name
    model.eval()
    with torch.no_grad():
        features = model.features(inputs)
        assert features.ndim == 2
        assert torch.equal(model.head(features), model(inputs))


@pytest.mark.parametrize("method", list(MODELS), ids=lambda m: m.word)
def test_paper_and_summary_are_given(method: Any) -> None:
    assert method.paper
    assert method.summary.endswith(".")
    for option in method.options:
        assert f"{option}:" in (method.function.__doc__ or ""), f"option {option} is not explained"


@pytest.mark.parametrize("method", OWN, ids=lambda m: m.word)
def test_the_word_is_the_function(method: Any) -> None:
    assert getattr(models, method.word) is method.function
    assert method.word in models.names()
