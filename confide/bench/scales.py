"""The two grids of the tables at `lite` scale: ResNet-18, short one-cycle schedules, minutes on one GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from confide.bench.methods import ARCHITECTURES, MANY_CLASSES, METHODS, QUESTIONS, RECORDED, SWEEP, TASK
from confide.bench.plan import Cell, Setting, check_names, unique

SHORT = {
    "epochs": 16,
    "batch_size": 512,
    "learning_rate": 0.4,
    "nesterov": True,
    "weight_decay": 5e-4,
    "schedule": "one_cycle",
    "augment": "crop_flip",
}

COMPILED = {**SHORT, "compile": True}
"""Compiling pays where many cells share a network."""

CIFAR10 = Setting("cifar10", "resnet18", COMPILED, seeds=5)
TINY = Setting("tiny32", "resnet18", {**COMPILED, "epochs": 8}, seeds=3, options=MANY_CLASSES)
"""Twice the images of CIFAR-10 and half its epochs: the same number of steps."""
RECORDED_MODELS = ("resnet18", "small_cnn", "preresnet56")
"""Networks of three sizes whose validation probabilities are recorded."""

PARTS = ("main", "questions", "recorded", "sweep", "architectures", "task")
USUAL = PARTS[:-1]
"""Without the part whose scores need a network trained first."""


def lite_cells(
    datasets: Sequence[str] = ("cifar10", "tiny32"),
    *,
    parts: Sequence[str] = PARTS,
    seeds: Sequence[int] | None = None,
    methods: Sequence[str] | None = None,
    model: str | None = None,
    changes: Mapping[str, Any] | None = None,
) -> list[Cell]:
    """The cells in order of value: CIFAR-10 seeds 0 to 2, the questions, Tiny-ImageNet, records, the other seeds.

    Args:
        seeds: instead of each dataset's own.
        methods: names to keep.
        model: a network instead of each setting's own.
        changes: training settings to change, such as epochs.
    """
    cifar, tiny = (replace(one, training={**one.training, **(changes or {})}) for one in (CIFAR10, TINY))
    plain = {**cifar.training, "compile": False}
    others = {name: replace(cifar, model=name, training=plain) for name in (*RECORDED_MODELS, "resnet34")}
    first, rest = (range(3), range(3, cifar.seeds)) if seeds is None else (seeds, ())
    tiny_seeds = range(tiny.seeds) if seeds is None else seeds
    found = cifar.cells(METHODS, list(first))
    found += cifar.cells(QUESTIONS, list(first), "questions")
    found += tiny.cells(METHODS, list(tiny_seeds)[:1])
    for network in RECORDED_MODELS:
        found += others[network].cells(RECORDED, list(first), "recorded")
    found += tiny.cells(METHODS, list(tiny_seeds)[1:])
    found += cifar.cells(METHODS, list(rest))
    found += cifar.cells(SWEEP, list(first)[:1], "sweep")
    found += others["resnet34"].cells(ARCHITECTURES, list(first)[:1], "architectures")
    found += cifar.cells(TASK, list(first), "task")
    found = [c for c in found if c.dataset in datasets and c.part in parts]
    found = unique(c for c in found if methods is None or c.method.name in methods)
    found = unique(found if model is None else [replace(c, model=model) for c in found])
    check_names(found)
    return found
