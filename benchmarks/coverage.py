"""How often the 95 % intervals hold the true value, and how often the calibration test rejects a calibrated model.

Labels are drawn from softmax(z); the model says softmax(sharpness z), so sharpness 1 is perfectly calibrated and
sharpness 2 is overconfident. True values come from a population of 400,000.

    python -m benchmarks.coverage --draws 200
    python -m benchmarks.coverage --draws 200 --forms       # three ways to make the interval of ECE
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import confide
from confide.evaluation.evaluate import MetricRequest, ModelStage, measurements
from confide.metrics.base import parse_metric
from confide.metrics.resampling import bootstrap, calibration_interval, nulls
from confide.metrics.view import MetricSamples, View

WORDS = ("accuracy", "nll", "brier", "aurc", "auroc", "ece", "ece_mass")


def population(n: int, sharpness: float, seed: int) -> confide.Predictions:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(n, 5, generator=generator)
    labels = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator).squeeze(1)
    return confide.Predictions(sharpness * logits, labels)


def asked() -> list[MetricRequest]:
    found = []
    for word in WORDS:
        method, options = parse_metric(word)
        found.append(MetricRequest(method, {**options, "score": "msp"} if "score" in method.options else options))
    return found


def coverage(n: int, sharpness: float, draws: int, resamples: int) -> tuple[Sequence[float], float]:
    """Share of intervals that hold the truth, by metric, and share of draws in which the test rejects."""
    wanted = asked()
    truth = [one(View(MetricSamples(population(400_000, sharpness, 10_000_019)))) for one in wanted]
    if sharpness == 1.0:
        truth = [0.0 if one.calibration else value for one, value in zip(wanted, truth, strict=True)]
    held, rejected = np.zeros(len(wanted)), 0
    for seed in range(draws):
        rows = measurements(
            MetricSamples(population(n, sharpness, seed)), wanted, ModelStage("m", "raw", None), seed, resamples
        )
        held += [row.low <= value <= row.high for row, value in zip(rows, truth, strict=True)]
        p_value = rows[-1].p_value
        rejected += p_value is not None and p_value < 0.05
    return [float(share) for share in held / draws], rejected / draws


FORMS: dict[str, Callable[[float, Any, Any], Any]] = {
    "plain percentiles": lambda value, draws, null: np.quantile(draws, (0.025, 0.975)),
    "null mean subtracted": lambda value, draws, null: np.maximum(0, np.quantile(draws, (0.025, 0.975)) - null.mean),
    "subtracted in squares": lambda value, draws, null: calibration_interval(value, draws, null),
}


def compare_forms(n: int, sharpness: float, draws: int, resamples: int) -> dict[str, tuple[float, float]]:
    """For ECE in equal-width bins: share of intervals that hold the truth, and their mean length, by form."""
    method, options = parse_metric("ece")

    def statistic(view: View) -> float:
        return float(method.spec.value(view, **options))

    truth = 0.0 if sharpness == 1.0 else statistic(View(MetricSamples(population(400_000, sharpness, 10_000_019))))
    held, length = dict.fromkeys(FORMS, 0.0), dict.fromkeys(FORMS, 0.0)
    for seed in range(draws):
        base = MetricSamples(population(n, sharpness, seed))
        drawn, _ = bootstrap(base, [statistic], resamples=resamples, seed=seed)
        null = nulls(base, [(method, options)], resamples=resamples, seed=seed)[0]
        for name, form in FORMS.items():
            low, high = form(statistic(View(base)), drawn[0], null)
            held[name] += (low <= truth <= high) / draws
            length[name] += (high - low) / draws
    return {name: (held[name], length[name]) for name in FORMS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--resamples", type=int, default=300)
    parser.add_argument("--forms", action="store_true", help="compare ways to make the interval of ECE")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.forms:
        print(f"| n | sharpness | {' | '.join(f'{name} | length' for name in FORMS)} |\n" + "|---" * 8 + "|")
        for sharpness in (1.0, 1.2, 2.0):
            for n in (200, 1000, 5000):
                found = compare_forms(n, sharpness, args.draws, args.resamples).values()
                cells = " | ".join(f"{share:.3f} | {length:.4f}" for share, length in found)
                print(f"| {n:,} | {sharpness:g} | {cells} |", flush=True)
        return
    print(f"| n | sharpness | {' | '.join(WORDS)} | calibration test rejects |")
    print("|" + "---|" * (len(WORDS) + 3))
    for sharpness in (1.0, 1.2, 2.0):
        for n in (200, 1000, 5000):
            shares, rejected = coverage(n, sharpness, args.draws, args.resamples)
            cells = " | ".join(f"{share:.3f}" for share in shares)
            print(f"| {n:,} | {sharpness:g} | {cells} | {rejected:.3f} |", flush=True)


if __name__ == "__main__":
    main()
