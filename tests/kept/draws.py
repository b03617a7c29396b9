"""Draws by seed and id: the same for all time, whoever asks for how many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from confide import random
from tests.kept.edges import or_line

IDS: dict[str, Any] = {
    "numbers": np.arange(-3, 9),
    "small": np.arange(12, dtype=np.uint8),
    "large": np.array([2**63, 2**64 - 1, 5], dtype=np.uint64),
    "words": np.array(["", "a", "b", "ä", "long word", "long word "]),
    "none": np.array([], dtype=np.str_),
}
LABELS = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 4])


def draw_entries() -> Iterator[tuple[str, Callable[[], Any]]]:
    for name, ids in IDS.items():
        yield f"keys {name}", lambda ids=ids: [str(k) for k in random.sample_keys(ids)]
    keys = random.sample_keys(IDS["numbers"])
    for draws in (1, 2, 3):
        yield (
            f"draws {draws}",
            lambda d=draws: [
                [str(b) for b in random.bits(1, keys, "x", counter=2, draws=d).reshape(-1)[:5]],
                [
                    [list(v.shape), v]
                    for v in (
                        random.uniform(1, keys, "x", draws=d),
                        random.integers(1, keys, "x", 7, counter=1, draws=d),
                        random.normal(1, keys, "x", draws=d),
                    )
                ],
            ],
        )
    yield "orders", lambda: [random.order(s, keys, "x", counter=c).tolist() for s in (0, 1) for c in (0, 1)]
    for purpose in ("split", "trust folds", "validation", "prediction sets"):
        yield (
            f"folds {purpose}",
            lambda p=purpose: [
                or_line(lambda n=n, ids=ids: random.folds(ids, LABELS[: len(ids)], n, seed=3, purpose=p).tolist())
                for n in (1, 2, 5)
                for ids in (IDS["numbers"], IDS["words"])
            ],
        )
    parts: list[dict[str, float]] = [
        {"val": 0.25},
        {"val": 0.1, "test": 0.3},
        {"val": 0.5, "test": 0.5},
        {"val": 0.5, "test": 0.4999},
        {"val": 1.0},
        {"val": 0.0},
    ]
    for purpose in ("split", "validation"):
        for fractions in parts:
            yield (
                f"split {purpose} {fractions}",
                lambda p=purpose, f=fractions: {
                    name: rows.tolist()
                    for name, rows in random.split(IDS["numbers"], LABELS, f, seed=1, purpose=p).items()
                },
            )
    counts = [np.array(c) for c in ([5, 5, 5], [1, 1, 1], [100], [0, 3, 7], [29, 31])]
    yield "shares", lambda: [random.class_shares(c, f).tolist() for c in counts for f in (0.0, 0.29, 0.5, 1 / 3, 1.0)]
    yield "uneven", lambda: [random.uneven_shares(c, 2, counter=k).tolist() for c in (1, 4) for k in (0, 1)]
    confusion = np.array([[9, 1, 0, 0, 2], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 5, 0], [2, 0, 0, 0, 0]])
    noises: dict[str, dict[str, Any]] = {
        "shares": {},
        "rotation": {"draw": "rotation"},
        "confusion": {"confusion": confusion},
        "all": {"rate": 1.0},
        "none": {"rate": 0.0},
        "two": {"num_classes": 2, "labels": LABELS % 2, "rate": 1.0},
        "exactly": {"num_classes": 5},
        "beyond": {"num_classes": 4},
        "below": {"labels": LABELS - 1},
        "one class": {"num_classes": 1, "labels": LABELS * 0},
        "one class kept": {"num_classes": 1, "labels": LABELS * 0, "rate": 0.0},
        "fractions": {"labels": LABELS / 2},
        "table": {"labels": LABELS[None]},
        "rate": {"rate": 1.01},
        "below 0": {"rate": -0.01},
        "draw": {"draw": "other"},
        "both": {"draw": "rotation", "confusion": confusion},
        "small": {"confusion": confusion[:4]},
        "negative": {"confusion": confusion - 1},
        "infinite": {"confusion": np.where(confusion == 9, np.inf, confusion)},
        "ids": {"ids": [1] * 12},
        "no labels": {"labels": LABELS[:0], "ids": []},
    }
    for name, options in noises.items():
        yield f"noise {name}", lambda o=options: or_line(lambda: _noisy(o))
    for purpose in ("bootstrap", "null", "classwise mass null", "bootstrap rows", "new"):
        yield (
            f"generator {purpose}",
            lambda p=purpose: [random.generator(5, p, *c).random(3) for c in ((), (0,), (1, 2))],
        )
    draws = random.Draws(7, keys, "shift", torch.device("cpu"))
    for shape in ((1,), (2,), (3,), (2, 3), (5, 1, 1)):
        yield (
            f"tensors {shape}",
            lambda s=shape: [[list(v.shape), v] for v in (draws.uniform("u", *s), draws.normal("u", *s))],
        )
    yield "steering", lambda: [draws.numbers("u", n) for n in (1, 3)]
    yield "words", lambda: [draws._words(name, 4).tolist() for name in ("a", "b")]
    yield "signed", lambda: [random._signed(v) for v in (0, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)]


def _noisy(options: dict[str, Any]) -> Any:
    known = {"labels": LABELS, "rate": 0.6, "num_classes": 5, "ids": IDS["numbers"], "seed": 3, **options}
    return random.noisy_labels(known.pop("labels"), known.pop("rate"), **known).tolist()
