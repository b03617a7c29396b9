"""Held-out quality of the calibrators beside their peers, on saved outputs of networks.

    OMP_NUM_THREADS=1 python -m benchmarks.quality.calibrators FOLDER_OF_NPZ --seeds 3

Each file is split 50/50 by seed: fitted on one half, judged on the other. Peers that are not installed are named and
left out; install them beside confide: netcal probmetrics numba.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.lib import titles
from confide import Predictions, calibrators, metrics

Summary = tuple[float, float, float]
OF_LOGITS = tuple(method.word for method in calibrators.CALIBRATORS if method.spec.wants == "nothing")
"""Calibrators that look at logits alone."""


def quality(folder: Path, only: list[str], chosen: list[str], skip: list[str], seeds: int) -> None:
    """ECE (15 equal-width bins), NLL and accuracy after each method: mean over the halvings, and their spread."""
    print(f"| network | method | accuracy | {titles.heading('nll')} | ± | {titles.heading('ece')} | ± |")
    print("|---|---|---|---|---|---|---|")
    for path in sorted(folder.glob("*.npz")):
        if "train" in path.name or (only and path.stem not in only):
            continue
        rows: dict[str, list[Summary]] = {}
        for seed in range(seeds):
            val, test = halves(path, seed)
            for name, calibrated in methods(val, test).items():
                if name not in skip and (not chosen or name in chosen):
                    rows.setdefault(name, []).append(summary(calibrated()))
        for name, measured in rows.items():
            accuracy, loss, error = np.mean(measured, axis=0)
            _, loss_spread, error_spread = np.std(measured, axis=0, ddof=1 if seeds > 1 else 0)
            print(
                f"| {path.stem} | {name} | {accuracy:.4f} | {loss:.4f} | {loss_spread:.4f} "
                f"| {100 * error:.2f} | {100 * error_spread:.2f} |",
                flush=True,
            )


def halves(path: Path, seed: int) -> tuple[Predictions, Predictions]:
    """The outputs split 50/50 by seed."""
    with np.load(path, allow_pickle=False) as archive:
        columns = {name: archive[name] for name in archive.files}
    labels = columns["ground_truth" if "ground_truth" in columns else "targets"]
    order = np.random.default_rng(seed).permutation(len(labels))
    half = len(order) // 2
    if "logits" in columns:
        whole = Predictions(columns["logits"], labels)
    else:
        probs = columns["predictions"].astype(np.float64)
        whole = Predictions.from_probs(probs / probs.sum(axis=1, keepdims=True), labels)
    return whole.take(order[:half]), whole.take(order[half:])


def methods(val: Predictions, test: Predictions) -> dict[str, Callable[[], Predictions]]:
    """No calibration, every method of confide and every peer that is installed, as functions that fit and apply."""
    own = {f"confide {word}": lambda word=word: calibrators.fit(word, val)(test) for word in OF_LOGITS}
    return {
        "none": lambda: test,
        **own,
        "confide isotonic, one map": lambda: calibrators.fit("isotonic", val, form="one_map")(test),
        "confide, chosen by cross-validation": lambda: chosen(val, test),
        **quality_peers(val, test),
    }


def chosen(val: Predictions, test: Predictions) -> Predictions:
    """What `confide calibrate` would apply."""
    calibrator = calibrators.choose(val).calibrator
    return test if calibrator is None else calibrator(test)


def quality_peers(val: Predictions, test: Predictions) -> dict[str, Callable[[], Predictions]]:
    """Peers as functions that give calibrated test predictions; empty without their packages."""
    peers: dict[str, Callable[[], Predictions]] = {}
    try:
        from netcal.binning import HistogramBinning, IsotonicRegression
        from netcal.scaling import BetaCalibration, TemperatureScaling

        for name, make in {
            "netcal temperature": TemperatureScaling,
            "netcal beta": BetaCalibration,
            "netcal isotonic": IsotonicRegression,
            "netcal histogram": lambda: HistogramBinning(bins=15),
        }.items():
            peers[name] = partial(_netcal, make, val, test)
    except ImportError as error:
        print(f"left out: {error.name}", file=sys.stderr)
    try:
        from probmetrics.calibrators import get_calibrator

        for name in ("ts-mix", "svs", "sms", "isotonic"):
            peers[f"probmetrics {name}"] = partial(_probmetrics, get_calibrator, name, val, test)
    except ImportError as error:
        print(f"left out: {error.name}", file=sys.stderr)
    return peers


def _netcal(make: Callable[[], Any], val: Predictions, test: Predictions) -> Predictions:
    probs = [torch.softmax(p.logits.double(), dim=1).numpy() for p in (val, test)]
    calibrator = make()
    calibrator.fit(probs[0], val.labels.numpy())
    return _record(calibrator.transform(probs[1]), test)


def _probmetrics(make: Callable[[str], Any], name: str, val: Predictions, test: Predictions) -> Predictions:
    from probmetrics.distributions import CategoricalLogits

    fitted = make(name).fit_torch(CategoricalLogits(val.logits.double()), val.labels)
    return _record(fitted.predict_proba_torch(CategoricalLogits(test.logits.double())).get_probs().numpy(), test)


def _record(probs: Any, test: Predictions) -> Predictions:
    probs = np.atleast_2d(np.nan_to_num(np.asarray(probs, dtype=np.float64)))
    probs = np.clip(probs, 1e-12, None)
    return Predictions.from_probs(probs / probs.sum(axis=1, keepdims=True), test.labels)


def summary(predictions: Predictions) -> Summary:
    """Accuracy, NLL and ECE in 15 equal-width bins."""
    facts = predictions.facts
    return float(facts.correct.double().mean()), nll(predictions), float(metrics.ece(predictions))


def nll(predictions: Predictions) -> float:
    """Mean negative log-likelihood."""
    return float(predictions.facts.need("nll").double().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "folder", type=Path, help="of npz files with predictions and ground_truth, or logits and targets"
    )
    parser.add_argument("--only", nargs="+", default=[], help="names of files, without .npz (default: all)")
    parser.add_argument("--methods", nargs="+", default=[], help="only these, by their names in the table")
    parser.add_argument("--skip", nargs="+", default=[], help="methods to leave out, by their names in the table")
    parser.add_argument("--seeds", type=int, default=3, help="halvings to average over (default: 3)")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    quality(args.folder, args.only, args.methods, args.skip, args.seeds)


if __name__ == "__main__":
    main()
