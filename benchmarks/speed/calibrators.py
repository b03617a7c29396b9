"""Calibrators against their peers: passes of the temperature search, seconds of every fit, memory, held-out quality.

    OMP_NUM_THREADS=1 python benchmarks/speed/calibrators.py passes fits peers memory
    OMP_NUM_THREADS=1 python benchmarks/speed/calibrators.py quality --data FOLDER_OF_NPZ

One thread, CPU time, every case interleaved with its reference in one process, medians of ratios. Peers that are not
installed are named and left out; install them beside confide: scikit-learn netcal probmetrics numba.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from confide import Predictions, calibrators
from confide.calibrators.threads import one_thread

SIZES = ((5_000, 10), (10_000, 100), (25_000, 1_000))
PASS_LIMITS = {(5_000, 10): 10, (10_000, 100): 10, (25_000, 1_000): 4}
SECONDS = {"dirichlet": 5.0, "spline": 5.0}


def made(n: int, num_classes: int, temperature: float = 2.5, seed: int = 0) -> Predictions:
    """Overconfident logits: labels are drawn from softmax(logits / temperature)."""
    random = np.random.default_rng(seed)
    logits, labels = np.empty((n, num_classes), np.float32), np.empty(n, np.int64)
    for start in range(0, n, 1000):
        z = random.standard_normal((min(1000, n - start), num_classes))
        rows = np.arange(len(z))
        z[rows, random.integers(0, num_classes, len(z))] += np.log(num_classes) + 1.5
        probs = np.exp(z - z.max(axis=1, keepdims=True))
        probs /= probs.sum(axis=1, keepdims=True)
        labels[start : start + len(z)] = (probs.cumsum(axis=1) > random.random((len(z), 1))).argmax(axis=1)
        logits[start : start + len(z)] = temperature * z
    return Predictions(torch.from_numpy(logits), torch.from_numpy(labels), split="val")


def cpu_seconds(work: Callable[[], Any]) -> float:
    """CPU seconds of one call."""
    began = time.process_time()
    work()
    return time.process_time() - began


def one_pass(predictions: Predictions) -> Callable[[], Any]:
    """The unit: log_softmax into a ready buffer + gather."""
    logits, labels, buffer = predictions.logits, predictions.labels[:, None], torch.empty_like(predictions.logits)

    def work() -> Any:
        torch.log_softmax(logits, dim=1, out=buffer)
        return buffer.gather(1, labels).mean()

    return work


def nll(predictions: Predictions) -> float:
    """Mean negative log-likelihood."""
    return float(predictions.facts.need("nll").double().mean())


def passes() -> None:
    """Temperature in passes, and how far its T is from the float64 optimum."""
    print("| size | passes | limit | T | error of log T |\n|---|---|---|---|---|")
    for size in SIZES:
        predictions = made(*size)
        unit = one_pass(predictions)
        fit = lambda p=predictions: calibrators.fit("temperature", p)  # noqa: E731
        fit()
        ratios = [cpu_seconds(fit) / cpu_seconds(unit) for _ in range(15)]
        found = fit().temperature
        exact = calibrators.fit("temperature", Predictions(predictions.logits.double(), predictions.labels)).temperature
        print(
            f"| {size[0]:,} x {size[1]:,} | {np.median(ratios):.1f} | {PASS_LIMITS[size]} | {found:.7f} "
            f"| {abs(np.log(found / exact)):.1e} |"
        )


def fits() -> None:
    """CPU seconds of every calibrator at 10,000 x 100."""
    predictions = made(10_000, 100)
    print("| calibrator | CPU s at 10,000 x 100 | limit |\n|---|---|---|")
    for word in calibrators.names():
        seconds = np.median([cpu_seconds(lambda w=word: calibrators.fit(w, predictions)) for _ in range(3)])
        print(f"| {word} | {seconds:.3f} | {SECONDS.get(word, 2.0):g} |")


def memory() -> None:
    """Extra memory of a fit at 25,000 x 1000, each in a process of its own."""
    print("| calibrator | extra MB | limit MB | CPU s |\n|---|---|---|---|")
    for word in calibrators.names():
        done = subprocess.run([sys.executable, __file__, "one", word], capture_output=True, text=True, check=True)
        print(f"| {word} | {done.stdout.strip()} |", flush=True)


def one(word: str) -> None:
    """Peak memory above that of the logits, for the parent process."""
    predictions = made(25_000, 1_000)
    calibrators.fit(word, made(300, 4))
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_megabytes()
    seconds = cpu_seconds(lambda: calibrators.fit(word, predictions))
    print(f"{peak_megabytes() - before:.0f} | {3 * 25_000 * 1_000 * 4 / 1e6 + 64:.0f} | {seconds:.1f}")


def peak_megabytes() -> float:
    """Largest resident memory since the counter was cleared."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024 / 1e6


# Peers: (predictions) -> a function that fits and gives probabilities of the same samples.


def sklearn_temperature(predictions: Predictions) -> Callable[[], Any]:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator

    class Given(ClassifierMixin, BaseEstimator):
        def fit(self, X: Any, y: Any) -> Given:
            self.classes_ = np.arange(X.shape[1])
            return self

        def decision_function(self, X: Any) -> Any:
            return X

        def predict(self, X: Any) -> Any:
            return X.argmax(axis=1)

    logits, labels = predictions.logits.numpy(), predictions.labels.numpy()
    given = FrozenEstimator(Given().fit(logits, labels))
    return lambda: CalibratedClassifierCV(given, method="temperature").fit(logits, labels).predict_proba(logits)


def netcal_temperature(predictions: Predictions) -> Callable[[], Any]:
    from netcal.scaling import TemperatureScaling

    # float64: with float32 input it returns T = 1.
    probs, labels = torch.softmax(predictions.logits.double(), dim=1).numpy(), predictions.labels.numpy()

    def work() -> Any:
        scaler = TemperatureScaling()
        scaler.fit(probs, labels)
        return scaler.transform(probs)

    return work


def probmetrics_method(name: str, **options: Any) -> Callable[[Predictions], Callable[[], Any]]:
    def prepare(predictions: Predictions) -> Callable[[], Any]:
        import warnings

        from probmetrics.calibrators import get_calibrator
        from probmetrics.distributions import CategoricalLogits

        warnings.simplefilter("ignore")
        logits, labels = CategoricalLogits(predictions.logits.double()), predictions.labels

        def work() -> Any:
            fitted = get_calibrator(name, **options).fit_torch(logits, labels)
            return fitted.predict_proba_torch(logits).get_probs().numpy()

        return work

    return prepare


def scipy_ensemble(predictions: Predictions) -> Callable[[], Any]:
    """The released algorithm: T by L-BFGS-B on the squared error of dense one-hots, then SLSQP for the weights."""
    logits = predictions.logits.double().numpy()
    onehot = np.eye(logits.shape[1])[predictions.labels.numpy()]

    def softmax(scale: float) -> Any:
        return torch.softmax(torch.from_numpy(logits * scale), dim=1).numpy()

    def work() -> Any:
        found = minimize(lambda t: ((softmax(1 / t[0]) - onehot) ** 2).mean(), [1.0], bounds=[(0.05, 5.0)], tol=1e-12)
        parts = [softmax(1 / found.x[0]), softmax(1.0), np.full_like(logits, 1 / logits.shape[1])]
        weights = minimize(
            lambda w: ((sum(a * p for a, p in zip(w, parts, strict=True)) - onehot) ** 2).mean(),
            [1.0, 0.0, 0.0],
            method="SLSQP",
            bounds=[(0, 1)] * 3,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
            tol=1e-12,
        ).x
        return sum(a * p for a, p in zip(weights, parts, strict=True))

    return work


def torch_vector(predictions: Predictions) -> Callable[[], Any]:
    """The common recipe: torch.optim.LBFGS with a line search over autograd."""
    logits, labels = predictions.logits, predictions.labels

    def work() -> Any:
        weight = torch.ones(logits.shape[1], requires_grad=True)
        bias = torch.zeros(logits.shape[1], requires_grad=True)
        optimiser = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe")

        def closure() -> Any:
            optimiser.zero_grad()
            loss = torch.nn.functional.cross_entropy(logits * weight + bias, labels)
            loss.backward()
            return loss

        optimiser.step(closure)
        return torch.softmax((logits * weight + bias).detach(), dim=1).numpy()

    return work


def sklearn_dirichlet(predictions: Predictions) -> Callable[[], Any]:
    """Multinomial logistic regression on log p with the same pull on the weights."""
    from sklearn.linear_model import LogisticRegression

    log_probs, labels = torch.log_softmax(predictions.logits, dim=1).numpy(), predictions.labels.numpy()
    n = len(labels)
    return lambda: (
        LogisticRegression(C=1 / (2 * PULL * n), max_iter=1000, tol=1e-6)
        .fit(log_probs, labels)
        .predict_proba(log_probs)
    )


PULL = 1e-3
ZERO = {"svs_lambda_intercept": 0.0, "svs_lambda_diagonal": 0.0, "svs_print_init_info": False}
PEERS: dict[str, tuple[dict[str, Any], dict[str, Callable[[Predictions], Callable[[], Any]]]]] = {
    "temperature": (
        {},
        {
            "scikit-learn": sklearn_temperature,
            "netcal (float64)": netcal_temperature,
            "probmetrics ts-mix": probmetrics_method("ts-mix"),
        },
    ),
    "ensemble_temperature": ({}, {"released algorithm, scipy": scipy_ensemble}),
    "vector": ({}, {"probmetrics svs, no pull": probmetrics_method("svs", **ZERO), "torch LBFGS": torch_vector}),
    "dirichlet": (
        {"reg_lambda": PULL, "reference_row": False},
        {"scikit-learn multinomial": sklearn_dirichlet},
    ),
}


def peers(sizes: tuple[tuple[int, int], ...] = SIZES[1:]) -> None:
    """CPU seconds of confide and of each peer in one run, and the likelihood both reach on the fitted set."""
    print("| method | size | confide s | NLL | peer | s | NLL | ratio |\n|---|---|---|---|---|---|---|---|")
    for word, (options, found) in PEERS.items():
        for size in sizes if word != "dirichlet" else sizes[:1]:
            predictions = made(*size)
            for name, prepare in found.items():
                print(_peer_row(word, options, size, predictions, name, prepare), flush=True)


def _peer_row(word: str, options: Any, size: Any, predictions: Predictions, name: str, prepare: Any) -> str:
    try:
        peer = prepare(predictions)
    except ImportError as error:
        return f"| {word} | {size[0]:,} x {size[1]:,} | | | {name} | not installed: {error.name} | | |"
    rounds = 3 if size[1] < 1000 else 1
    own = lambda: calibrators.fit(word, predictions, **options)  # noqa: E731
    own()
    times = [(cpu_seconds(own), cpu_seconds(peer)) for _ in range(rounds)]
    probs = np.clip(np.asarray(peer()), 1e-12, 1)
    reached = -float(np.log(probs[np.arange(len(probs)), predictions.labels.numpy()]).mean())
    mine, theirs = (float(np.median(part)) for part in zip(*times, strict=True))
    return (
        f"| {word} | {size[0]:,} x {size[1]:,} | {mine:.3f} | {nll(own()(predictions)):.5f} | {name} | {theirs:.2f} "
        f"| {reached:.5f} | {np.median([b / a for a, b in times]):.1f} |"
    )


# Quality on held-out halves.


def quality(folder: Path, seeds: int) -> None:
    """ECE (15 equal-width bins), NLL and accuracy after each method, fitted on one half and judged on the other."""
    print("| network | method | accuracy | NLL | ECE % |\n|---|---|---|---|---|")
    for path in sorted(folder.glob("*.npz")):
        if "train" in path.name:
            continue
        rows: dict[str, list[tuple[float, float, float]]] = {}
        for seed in range(seeds):
            val, test = halves(path, seed)
            for name, after in outcomes(val, test):
                rows.setdefault(name, []).append(after)
        for name, found in rows.items():
            accuracy, loss, error = np.mean(found, axis=0)
            print(f"| {path.stem} | {name} | {accuracy:.4f} | {loss:.4f} | {100 * error:.2f} |", flush=True)


def halves(path: Path, seed: int) -> tuple[Predictions, Predictions]:
    """The outputs split 50/50 by seed."""
    with np.load(path, allow_pickle=False) as archive:
        columns = {name: archive[name] for name in archive.files}
    labels = columns.get("ground_truth", columns.get("targets"))
    order = np.random.default_rng(seed).permutation(len(labels))
    half = len(order) // 2
    if "logits" in columns:
        whole = Predictions(columns["logits"], labels)
    else:
        probs = columns["predictions"].astype(np.float64)
        whole = Predictions.from_probs(probs / probs.sum(axis=1, keepdims=True), labels)
    return whole.take(order[:half]), whole.take(order[half:])


def outcomes(val: Predictions, test: Predictions) -> Any:
    """(name, (accuracy, NLL, ECE)) of no calibration, every method of confide, and every peer that is installed."""
    yield "none", summary(test)
    for word in calibrators.names():
        yield f"confide {word}", summary(calibrators.fit(word, val)(test))
    yield "confide isotonic, one map", summary(calibrators.fit("isotonic", val, form="one_map")(test))
    yield "confide, chosen by cross-validation", summary(chosen(val, test))
    for name, fitted in quality_peers(val, test).items():
        yield name, summary(fitted())


def chosen(val: Predictions, test: Predictions) -> Predictions:
    """What `confide calibrate` would apply."""
    calibrator = calibrators.choose(val).calibrator
    return test if calibrator is None else calibrator(test)


def quality_peers(val: Predictions, test: Predictions) -> dict[str, Callable[[], Predictions]]:
    """Peers as functions that give calibrated test predictions; empty without their packages."""
    found: dict[str, Callable[[], Predictions]] = {}
    try:
        from netcal.binning import HistogramBinning, IsotonicRegression
        from netcal.scaling import BetaCalibration, TemperatureScaling

        for name, make in {
            "netcal temperature": TemperatureScaling,
            "netcal beta": BetaCalibration,
            "netcal isotonic": IsotonicRegression,
            "netcal histogram": lambda: HistogramBinning(bins=15),
        }.items():
            found[name] = lambda make=make: _netcal(make(), val, test)
    except ImportError as error:
        print(f"left out: {error.name}", file=sys.stderr)
    try:
        from probmetrics.calibrators import get_calibrator

        for name in ("ts-mix", "svs", "sms", "isotonic"):
            found[f"probmetrics {name}"] = lambda name=name: _probmetrics(get_calibrator(name), val, test)
    except ImportError as error:
        print(f"left out: {error.name}", file=sys.stderr)
    return found


def _netcal(calibrator: Any, val: Predictions, test: Predictions) -> Predictions:
    probs = [torch.softmax(p.logits.double(), dim=1).numpy() for p in (val, test)]
    calibrator.fit(probs[0], val.labels.numpy())
    return _record(calibrator.transform(probs[1]), test)


def _probmetrics(calibrator: Any, val: Predictions, test: Predictions) -> Predictions:
    from probmetrics.distributions import CategoricalLogits

    fitted = calibrator.fit_torch(CategoricalLogits(val.logits.double()), val.labels)
    return _record(fitted.predict_proba_torch(CategoricalLogits(test.logits.double())).get_probs().numpy(), test)


def _record(probs: Any, test: Predictions) -> Predictions:
    probs = np.atleast_2d(np.nan_to_num(np.asarray(probs, dtype=np.float64)))
    probs = np.clip(probs, 1e-12, None)
    return Predictions.from_probs(probs / probs.sum(axis=1, keepdims=True), test.labels)


def summary(predictions: Predictions) -> tuple[float, float, float]:
    """Accuracy, NLL and ECE in 15 equal-width bins."""
    from confide import metrics

    facts = predictions.facts
    return float(facts.correct.double().mean()), nll(predictions), float(metrics.ece(predictions))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", help="passes fits peers memory quality")
    parser.add_argument("--data", type=Path, help="folder of npz files with predictions and ground_truth, or logits")
    parser.add_argument("--seeds", type=int, default=1, help="halvings to average the quality over (default: 1)")
    parser.add_argument("--small", action="store_true", help="peers at 10,000 x 100 only")
    args = parser.parse_args()
    if args.parts[0] == "one":
        one(args.parts[1])
        return
    with one_thread():
        for part in args.parts:
            print(f"\n## {part}\n")
            if part == "quality":
                quality(args.data, args.seeds)
            elif part == "peers":
                peers(SIZES[1:2] if args.small else SIZES[1:])
            else:
                {"passes": passes, "fits": fits, "memory": memory}[part]()


if __name__ == "__main__":
    main()
