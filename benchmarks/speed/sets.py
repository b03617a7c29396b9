"""Speed and memory of prediction sets, beside MAPIE on the same probabilities and draws; of decisions and promises.

    python -m benchmarks.speed.sets                 # fit on 10,000, apply to 50,000, 1000 classes
    python -m benchmarks.speed.sets --peers         # beside MAPIE (importable from anywhere); are the sets the same?
    python -m benchmarks.speed.sets --rows 1000000 --classes 100 --fit 100000

CPU seconds of one thread, medians; memory is the peak above the logits, in multiples of them. MAPIE and ours run in
turn, each word for so many rounds that they fill its share of time, three at least.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import confide
from confide.sets import base

WORDS: dict[str, dict[str, Any]] = {
    "lac": {},
    "top_k": {},
    "aps": {},
    "raps": {"penalty": 0.01, "k_reg": 2},
    "saps": {"weight": 0.1},
}
PEER_SEED = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--fit", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--seconds", type=float, default=15, help="of each word beside MAPIE (default: 15)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    val, test = drawn(args.fit, args.classes, 0), drawn(args.rows, args.classes, 1)
    if args.peers:
        against_mapie(val, test, args.seconds)
        return
    size = test.logits.numel() * test.logits.element_size()
    whole = median(lambda: confide.evaluate(drawn_again(test), intervals=False), args.repeats)
    print(
        f"fit on {args.fit:,} x {args.classes}, apply to {args.rows:,} x {args.classes}; one evaluation {whole:.2f} s"
    )
    for word, options in WORDS.items():
        for by in (None, "class"):
            seconds = median(lambda w=word, o=options, b=by: work(w, val, test, b, o), args.repeats)  # type: ignore[misc]
            memory = above(lambda w=word, o=options, b=by: work(w, val, test, b, o)) / size  # type: ignore[misc]
            print(
                f"{word:6} by {by or 'nothing':8} {seconds:6.2f} s = {seconds / whole:5.2f} evaluations, "
                f"+{memory:.2f} x the logits",
                flush=True,
            )
    costs = 1 - torch.eye(args.classes)
    several = {"error": 0.05, "precision[1]": 0.8, "recall[2]": 0.05, "fpr": 0.01}
    batch = confide.Predictions(test.logits, ids=[f"field {k}" for k in range(args.rows)])
    with TemporaryDirectory() as folder:
        watch = confide.monitor.Monitor(val, risk=0.5, file=Path(folder) / "watch.jsonl")
        works: dict[str, Callable[[], Any]] = {
            "decide, c x c costs": lambda: confide.decisions.decide(drawn_again(test), costs, abstain=0.3),
            "operating point": lambda: confide.operating_point(drawn_again(test), 0.05),
            "promises of four kinds": lambda: confide.operating_point(drawn_again(test), several),
            "promise on average": lambda: confide.operating_point(
                drawn_again(test), {"accepted_error": 0.05}, promise="expectation"
            ),
            "watch: a batch": lambda: watch.update(batch),
        }
        for name, case in works.items():
            repeats = 1 if name.startswith("watch") else args.repeats  # a batch that comes again is not added
            seconds = median(case, repeats)
            print(f"{name:23}{seconds:6.2f} s = {seconds / whole:5.2f} evaluations", flush=True)


def work(word: str, val: confide.Predictions, test: confide.Predictions, by: str | None, options: Any) -> torch.Tensor:
    return confide.sets.fit(word, val, by=by, allow_empty=True, **options)(test)


def drawn(n: int, classes: int, seed: int) -> confide.Predictions:
    """Labels drawn from the softmax of the logits, so that the model is calibrated; unsure, as with many classes."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, classes, generator=generator)
    uniform = torch.rand(n, classes, generator=generator).clamp_min_(1e-12)
    return confide.Predictions(logits, (logits - (-uniform.log()).log()).argmax(dim=1))


def drawn_again(predictions: confide.Predictions) -> confide.Predictions:
    """The same without the facts that an evaluation keeps with the record."""
    return confide.Predictions(predictions.logits, predictions.labels)


def median(work: Callable[[], Any], repeats: int) -> float:
    return statistics.median(timed(work)[0] for _ in range(repeats))


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds, and the result."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def above(work: Callable[[], Any]) -> float:
    """Bytes of resident memory at the peak of the work, above those before."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    before, most, done = resident(), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.002):
            most = max(most, resident())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        work()
    finally:
        done.set()
        thread.join()
    return max(0, most - before)


def against_mapie(val: confide.Predictions, test: confide.Predictions, share: float) -> None:
    """MAPIE's split conformal sets from the same probabilities; its draws are given to ours, so that sets compare."""
    import mapie
    from mapie.classification import SplitConformalClassifier
    from mapie.conformity_scores.sets.aps import APSConformityScore
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.model_selection import StratifiedShuffleSplit

    class FixedModel(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        """A fitted model whose inputs are its probabilities."""

        def __init__(self, number: int = 2) -> None:
            self.number = number

        def fit(self, X: Any, y: Any) -> Any:
            self.classes_ = np.arange(self.number)
            return self

        def predict_proba(self, X: Any) -> Any:
            return X

        def predict(self, X: Any) -> Any:
            return X.argmax(axis=1)

    probs = [p.probabilities().double().numpy() for p in (val, test)]
    labels = val.labels.numpy()
    ours_val = confide.Predictions.from_probs(probs[0], val.labels)
    ours_test = confide.Predictions.from_probs(probs[1], test.labels)
    model = FixedModel(val.num_classes).fit(None, None)
    draws: dict[int, Any] = {}

    def peer_draws(predictions: confide.Predictions, seed: int) -> Any:
        n = len(predictions)
        if n not in draws:
            # MAPIE subtracts u p from the sum up to the class, we add u p to the sum in front of it.
            draws[n] = 1 - np.random.RandomState(PEER_SEED).uniform(size=n)
        return draws[n]

    base.sample_draws = peer_draws
    print(f"MAPIE {mapie.__version__}, float64 probabilities for both")
    for word in ("lac", "top_k", "aps", "raps"):
        last = {"include_last_label": "randomized"} if word in ("aps", "raps") else {}

        def theirs(word: str = word, last: Any = last) -> Any:
            classifier = SplitConformalClassifier(
                model, confidence_level=0.9, conformity_score=word, prefit=True, random_state=PEER_SEED
            )
            classifier.conformalize(probs[0], labels)
            return classifier, classifier.predict_set(probs[1], conformity_score_params=last)[1][:, :, 0]

        def ours(word: str = word) -> Any:
            return confide.sets.fit(word, ours_val, 0.9, allow_empty=True)(ours_test)

        rounds: list[tuple[float, float]] = []
        while len(rounds) < 3 or sum(map(sum, rounds)) < share:
            peer_time, (classifier, peer) = timed(theirs)
            rounds.append((peer_time, timed(ours)[0]))
        peer_seconds, seconds = (statistics.median(column) for column in zip(*rounds, strict=True))
        ratios = sorted(each / own for each, own in rounds)
        fitted_on = np.arange(len(labels))
        options: dict[str, Any] = {}
        if word == "raps":
            # MAPIE chooses both options on a stratified part of its own: ours are given its choice and its other rows.
            # From the second class behind k_reg on it draws the last class with p less the penalty in front; the
            # authors' code draws it with p, as for APS, and so does it here.
            score = classifier._mapie_classifier.conformity_score_function_
            split = StratifiedShuffleSplit(n_splits=1, test_size=score.size_raps, random_state=PEER_SEED)
            fitted_on, _ = next(split.split(probs[0], labels))
            options = {"penalty": float(score.lambda_star), "k_reg": int(score.k_star[0])}
            score._compute_v_parameter = partial(APSConformityScore._compute_v_parameter, score)
            as_authors = classifier.predict_set(probs[1], conformity_score_params=last)[1][:, :, 0]
            print(
                f"raps   penalty {options['penalty']:g}, k_reg {options['k_reg']}: MAPIE draws the last class "
                f"otherwise than the authors' code and so has {(peer != as_authors).any(axis=1).sum():,} other sets"
            )
            peer = as_authors
        fitted = confide.sets.fit(word, ours_val.take(fitted_on), 0.9, allow_empty=True, **options)

        def moved(shift: float, fitted: Any = fitted) -> Any:
            (group,) = fitted.groups
            at = replace(group, threshold=(group.threshold or 0.0) + shift)
            return replace(fitted, groups=(at,))(ours_test).numpy()

        sets = moved(0.0)
        differ = sets != peer
        # MAPIE takes what lies within 1e-8 of its threshold, or of the last class's probability, for equal.
        rounding = (moved(-1e-7) <= peer) & (peer <= moved(1e-7))
        ordered = -np.sort(-probs[1], axis=1)
        ordered = np.concatenate([np.full_like(ordered[:, :1], np.inf), ordered, np.zeros_like(ordered[:, :1])], axis=1)
        for either in (sets, peer):
            around = np.take_along_axis(ordered, either.sum(axis=1, keepdims=True) + np.arange(2), axis=1)
            rounding |= (around[:, :1] - around[:, 1:]) <= 2e-8
        others = int((differ & ~rounding).any(axis=1).sum())
        print(
            f"{word:6} MAPIE {peer_seconds:6.3f} s, ours {seconds:.3f} s, medians of {len(rounds)} rounds: "
            f"{statistics.median(ratios):.1f} times ({ratios[0]:.1f} to {ratios[-1]:.1f}); sets that differ "
            f"{differ.any(axis=1).sum()} of {len(sets):,}, by more than rounding {others}",
            flush=True,
        )


if __name__ == "__main__":
    main()
