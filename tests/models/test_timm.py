"""timm's models, through a stand-in for the library where it is not installed."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from confide import models
from confide.checks import InputError, MissingExtra


def stand_in(calls: list[dict[str, Any]], fixed_size: bool) -> Any:
    def create_model(name: str, **options: Any) -> nn.Module:
        if fixed_size and "img_size" in options:
            raise TypeError("unexpected keyword argument 'img_size'")
        calls.append(options)
        return nn.Sequential(nn.Conv2d(options["in_chans"], 6, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())

    return SimpleNamespace(
        create_model=create_model, is_model=lambda name: name == "known", list_models=lambda pattern: ["known"]
    )


@pytest.mark.parametrize("fixed_size", [True, False])
def test_a_new_head_sits_on_its_features(monkeypatch: pytest.MonkeyPatch, fixed_size: bool) -> None:
    calls: list[dict[str, Any]] = []
    monkeypatch.setitem(sys.modules, "timm", stand_in(calls, fixed_size))
    model = models.create("timm:known", (1, 16, 16), 7, pretrained=False)
    assert model(torch.randn(2, 1, 16, 16)).shape == (2, 7)
    assert model.features(torch.randn(2, 1, 16, 16)).shape == (2, 6)
    assert calls[0]["in_chans"] == 1
    assert calls[0]["num_classes"] == 0
    assert calls[0]["pretrained"] is False


def test_an_unknown_name_and_a_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", stand_in([], False))
    with pytest.raises(InputError, match="timm has no model 'strange'; it has known"):
        models.create("timm:strange", (3, 16, 16), 7)
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtra, match=r"confide\[timm\]"):
        models.create("timm:known", (3, 16, 16), 7)


def test_weights_that_cannot_be_fetched_are_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    library = stand_in([], False)

    def offline(name: str, **options: Any) -> Any:
        raise OSError("no connection\nand much more")

    library.create_model = offline
    monkeypatch.setitem(sys.modules, "timm", library)
    with pytest.raises(InputError, match=r"could not be had \(no connection\).*model_options.pretrained=false"):
        models.create("timm:known", (3, 16, 16), 7)
