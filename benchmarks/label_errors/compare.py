"""Label errors of CIFAR-10N: confide's verdicts beside cleanlab's own recipe on the same features.

    python -m benchmarks.label_errors.compare FEATURES cifar10n.npz [--noise aggre random1 worse] [-o results.json]
    python -m benchmarks.label_errors.compare --from OUT.npz cifar10n.npz [-o results.json]

FEATURES is a folder of shards of the 50,000 training images in their order (see extract.py); OUT.npz is what device.py
left of them on a machine without cleanlab. cleanlab's recipe is the one of its documentation: logistic regression on
the features, probabilities out of fold by 5-fold cross-validation, `get_label_quality_scores` (self-confidence) to rank
and `find_label_issues` to decide. Reported: AUROC of the ranking against the clean labels and precision at the noise
rate (among as many suspects as there are errors).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

NOISE = {"aggre": "aggre_label", "random1": "random_label1", "worse": "worse_label"}


def quality(suspicion: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    """AUROC and precision at the noise rate."""
    from sklearn.metrics import roc_auc_score

    top = np.argsort(-suspicion, kind="stable")[: int(wrong.sum())]
    return {"auroc": float(roc_auc_score(wrong, suspicion)), "precision": float(wrong[top].mean())}


def ours(rows: np.ndarray, labels: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    """Our verdicts, and RMD alone."""
    from confide import difficulty

    began = time.perf_counter()
    verdicts = difficulty.verdicts(rows, labels)
    seconds = time.perf_counter() - began
    plain = difficulty.score("rmd", rows, labels).values
    own = scored(verdicts.fit.suspicion, verdicts.verdict == "wrong label", wrong)
    return {**own, "seconds": seconds, "rmd_auroc": quality(plain, wrong)["auroc"]}


def out_of_fold(rows: np.ndarray, labels: np.ndarray, jobs: int, strength: float) -> np.ndarray:
    """Probabilities by logistic regression, 5 folds."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=400))
    return np.asarray(cross_val_predict(model, rows, labels, cv=5, method="predict_proba", n_jobs=jobs))


def theirs(probs: np.ndarray, labels: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    """cleanlab's ranking (self-confidence) and decision by these probabilities."""
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    probs = np.asarray(probs, dtype=np.float64)
    probs /= probs.sum(axis=1, keepdims=True)
    return scored(-get_label_quality_scores(labels, probs), find_label_issues(labels, probs, n_jobs=1), wrong)


def scored(suspicion: np.ndarray, decided: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    """Quality of a ranking and of a decision."""
    return {
        **quality(suspicion, wrong),
        "found": int(decided.sum()),
        "found_precision": float(wrong[decided].mean()),
        "found_recall": float(decided[wrong].mean()),
    }


def from_archive(archive: Any, name: str, labels: np.ndarray, wrong: np.ndarray) -> dict[str, Any]:
    """Results of one noise from what device.py kept."""
    own = scored(archive[f"{name}/suspicion"], archive[f"{name}/wrong"], wrong)
    own |= {"seconds": float(archive[f"{name}/seconds"]), "rmd_auroc": quality(archive[f"{name}/rmd"], wrong)["auroc"]}
    results: dict[str, Any] = {"confide": own}
    if f"{name}/with model/suspicion" in archive:
        suspicion, decided = (archive[f"{name}/with model/{key}"] for key in ("suspicion", "wrong"))
        results["confide, with the same model out of fold"] = scored(suspicion, decided, wrong)
    for key in archive.files:
        if key.startswith(f"{name}/probs "):
            results[f"cleanlab, C {key.split()[-1]}"] = theirs(archive[key], labels, wrong)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", type=Path, nargs="?")
    parser.add_argument("noisy", type=Path)
    parser.add_argument(
        "--from", dest="archive", type=Path, default=None, help="what device.py wrote, instead of features"
    )
    parser.add_argument("--noise", nargs="+", default=list(NOISE), choices=list(NOISE))
    parser.add_argument("--jobs", type=int, default=1, help="folds of logistic regression at a time")
    parser.add_argument("--strength", type=float, nargs="+", default=[1.0, 0.01], help="C of logistic regression")
    parser.add_argument("--ours-only", action="store_true")
    parser.add_argument("--packages", type=Path, default=None, help="folder with cleanlab, where it is not installed")
    parser.add_argument("-o", "--out", type=Path, default=None)
    args = parser.parse_args()
    if (args.features is None) == (args.archive is None):
        parser.error("give a folder of features, or --from OUT.npz")
    if args.packages:
        sys.path.insert(0, str(args.packages))
    from confide import Features

    archive = np.load(args.archive, allow_pickle=False) if args.archive else {}
    rows = np.zeros(0) if args.archive else np.asarray(Features.load(args.features).values[:], dtype=np.float32)
    n = int(archive["n"]) if args.archive else len(rows)
    results: dict[str, Any] = {}
    with np.load(args.noisy, allow_pickle=False) as labelled:
        clean = labelled["clean_label"][:n]
        noisy_labels = {name: labelled[NOISE[name]][:n].astype(np.int64) for name in args.noise}
    for name, labels in noisy_labels.items():
        wrong = labels != clean
        results[name] = {"n": len(labels), "noise": float(wrong.mean())}
        if args.archive:
            results[name] |= from_archive(archive, name, labels, wrong)
        else:
            results[name]["confide"] = ours(rows, labels, wrong)
            for strength in () if args.ours_only else args.strength:
                probs = out_of_fold(rows, labels, args.jobs, strength)
                results[name][f"cleanlab, C {strength:g}"] = theirs(probs, labels, wrong)
        print(json.dumps({name: results[name]}, indent=1), flush=True)
        if args.out:
            args.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
