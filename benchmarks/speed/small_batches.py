"""Losses at the sizes people train CIFAR at: every per-sample loss against the plain torch formula of the same loss.

    python -m benchmarks.speed.small_batches                  the CPU, one thread
    python -m benchmarks.speed.small_batches --device cuda    eager on a GPU
    python -m benchmarks.speed.small_batches --out FILE.md    also write the table

The plain formulas below are what one writes in a training script: no checks, one class of labels, a mean at the end.
Forward + backward; the two take turns in one process, and the ratio is the median over rounds.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.speed.losses import PER_SAMPLE, Step, cases, heading
from benchmarks.speed.losses_gpu import precompile
from confide.penalties import BANDWIDTHS

SIZES = ((64, 10), (256, 10), (256, 100))
WARM_UP = 10
"""Rounds that are run and not counted."""

Formula = Callable[[Tensor, Tensor, Tensor], Tensor]


def _log_p(logits: Tensor, labels: Tensor) -> Tensor:
    return torch.log_softmax(logits, dim=1).gather(1, labels[:, None]).squeeze(1)


def _entropy_and_log_p(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    log_p = torch.log_softmax(logits, dim=1)
    return -(log_p.exp() * log_p).sum(dim=1), log_p.gather(1, labels[:, None]).squeeze(1)


def cross_entropy(logits: Tensor, labels: Tensor, extra: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels)


def label_smoothing(logits: Tensor, labels: Tensor, extra: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels, label_smoothing=0.05)


def focal(logits: Tensor, labels: Tensor, extra: Tensor) -> Tensor:
    log_p = _log_p(logits, labels)
    return (-((1 - log_p.exp()) ** 3.0) * log_p).mean()


def flsd53(logits: Tensor, labels: Tensor, extra: Tensor) -> Tensor:
    log_p = _log_p(logits, labels)
    p = log_p.exp()
    gamma = torch.where(p.detach() < 0.2, 5.0, 3.0)
    return (-((1 - p) ** gamma) * log_p).mean()


def inverse_focal(logits: Tensor, labels: Tensor, extra: Tensor) -> Tensor:
    log_p = _log_p(logits, labels)
    return (-((1 + log_p.exp()) ** 2.0) * log_p).mean()


def dual_focal(logits: Tensor, labels: Tensor, extra: Tensor) -> Tensor:
    log_probs = torch.log_softmax(logits, dim=1)
    log_p = log_probs.gather(1, labels[:, None]).squeeze(1)
    rival = log_probs.scatter(1, labels[:, None], -torch.inf).max(dim=1).values.exp()
    return (-((1 - log_p.exp() + rival) ** 5.0) * log_p).mean()


def calfocal(logits: Tensor, labels: Tensor, extra: Tensor) -> Tensor:
    log_p = _log_p(logits, labels)
    p = log_p.exp()
    edges = torch.linspace(0, 1, 16, device=logits.device)
    accuracy = extra[:15][torch.bucketize(p.detach(), edges[1:-1], right=True)]
    gamma = torch.exp(p.detach() - accuracy)
    return (-((1 - p) ** gamma) * log_p).mean()


def adafocal(logits: Tensor, labels: Tensor, extra: Tensor) -> Tensor:
    log_p = _log_p(logits, labels)
    p = log_p.exp()
    edges = torch.linspace(0, 1, 16, device=logits.device)
    gamma = extra[:15][torch.bucketize(p.detach(), edges[1:-1], right=True)]
    base = torch.where(gamma >= 0, 1 - p, 1 + p)
    return (-(base ** gamma.abs()) * log_p).mean()


def aurc(logits: Tensor, labels: Tensor, extra: Tensor) -> Tensor:
    log_probs = torch.log_softmax(logits, dim=1)
    log_p, n = log_probs.gather(1, labels[:, None]).squeeze(1), len(logits)
    rank = log_probs.detach().max(dim=1).values.argsort().argsort()
    by_rank = torch.arange(n, 0, -1, device=logits.device).reciprocal().cumsum(0)
    return (-by_rank[rank] * log_p).mean()


def selective_au(logits: Tensor, labels: Tensor, extra: Tensor) -> Tensor:
    log_probs = torch.log_softmax(logits, dim=1)
    log_p, scores, n = log_probs.gather(1, labels[:, None]).squeeze(1), log_probs.max(dim=1).values.exp(), len(logits)
    place = (scores.detach() * 64).long().clamp_max(63)
    share = torch.zeros(64, device=logits.device).index_add(0, place, torch.ones_like(scores).detach()) / n
    threshold = torch.quantile(scores.detach(), 0.5)
    capped = torch.where(scores < threshold, scores, threshold)
    centres = (torch.arange(64, device=logits.device) + 0.5) / 64
    distribution = (torch.sigmoid((capped[:, None] - centres) / 0.05) * share).sum(dim=1)
    return (torch.log1p(-distribution.clamp(1 / (n + 1), n / (n + 1))) * log_p).mean()


def entropy_regularization(logits: Tensor, labels: Tensor, extra: Tensor) -> Tensor:
    entropy, log_p = _entropy_and_log_p(logits, labels)
    return (-log_p - 0.1 * entropy).mean()


def difficulty_entropy(logits: Tensor, labels: Tensor, extra: Tensor) -> Tensor:
    entropy, log_p = _entropy_and_log_p(logits, labels)
    return (-log_p - 0.3 * extra * entropy).mean()


def logit_norm(logits: Tensor, labels: Tensor, extra: Tensor) -> Tensor:
    return functional.cross_entropy(logits, labels) + 0.05 * logits.abs().sum(dim=1).mean()


def poly1(logits: Tensor, labels: Tensor, extra: Tensor) -> Tensor:
    log_p = _log_p(logits, labels)
    return (-log_p + (1 - log_p.exp())).mean()


def brier(logits: Tensor, labels: Tensor, extra: Tensor) -> Tensor:
    target = functional.one_hot(labels, logits.shape[1])
    return (torch.softmax(logits, dim=1) - target).square().sum(dim=1).mean()


def class_balanced(logits: Tensor, labels: Tensor, extra: Tensor) -> Tensor:
    return (functional.cross_entropy(logits, labels, reduction="none") * extra[: logits.shape[1]][labels]).mean()


def mbls(logits: Tensor, labels: Tensor, extra: Tensor) -> Tensor:
    distance = logits.max(dim=1, keepdim=True).values - logits
    return functional.cross_entropy(logits, labels) + 0.1 * functional.relu(distance - 10.0).mean()


PLAIN: dict[str, Formula] = {
    function.__name__: function
    for function in (
        *(cross_entropy, label_smoothing, focal, flsd53, inverse_focal, dual_focal, calfocal, adafocal, aurc),
        *(selective_au, entropy_regularization, difficulty_entropy, logit_norm, poly1, brier, class_balanced, mbls),
    )
}


def microseconds(steps: tuple[Step, Step], leaf: Tensor, rounds: int, calls: int) -> tuple[float, float, float]:
    """Ours, the other and the median ratio, each over `calls`; on a GPU until the device is done.

    Who goes first changes from round to round: it finds caches and clock as something else left them.
    """
    times: tuple[list[float], list[float]] = ([], [])
    clock = time.perf_counter if leaf.is_cuda else time.process_time
    for turn in range(rounds + WARM_UP):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            if leaf.is_cuda:
                torch.cuda.synchronize()
            start = clock()
            for _ in range(calls):
                leaf.grad = None
                steps[which]().backward()
            if leaf.is_cuda:
                torch.cuda.synchronize()
            times[which].append((clock() - start) / calls * 1e6)
    ours, others = (record[WARM_UP:] for record in times)
    ratio = statistics.median(a / b for a, b in zip(ours, others, strict=True))
    return statistics.median(ours), statistics.median(others), ratio


def table(device: str, rounds: int) -> list[str]:
    lines = []
    for n, num_classes in SIZES:
        leaf, ours = cases(n, num_classes, torch.float32, device, PER_SAMPLE)
        labels = leaf.detach().argmax(dim=1)
        extra = torch.rand(max(n, num_classes), device=device)
        lines += [f"\n### {n} x {num_classes}, float32\n", "| loss | us | plain formula, us | ratio |"]
        lines += ["|---|---|---|---|"]
        for word in PER_SAMPLE:
            plain = functools.partial(PLAIN[word], leaf, labels, extra)
            numbers = microseconds((ours[word], plain), leaf, rounds, 40)
            lines.append("| {} | {:.0f} | {:.0f} | {:.2f} |".format(word, *numbers))
            print(n, num_classes, lines[-1], flush=True)
    return lines


def kde_lines(rounds: int) -> list[str]:
    """KDE-XE with its choice of bandwidth, against what that choice cannot do without."""
    lines = [
        "\n### KDE-XE, bandwidth chosen for each batch\n",
        "| size | ms | floor, ms | ratio |",
        "|---|---|---|---|",
    ]
    for n, num_classes in ((256, 10), (128, 21843)):
        leaf, steps = cases(n, num_classes, torch.float32, "cpu", ("kde_xe",))
        floor = functools.partial(kde_floor, leaf)
        ours, least, ratio = microseconds((steps["kde_xe"], floor), leaf, rounds, 1)
        lines.append(f"| {n} x {num_classes} | {ours / 1e3:.1f} | {least / 1e3:.1f} | {ratio:.2f} |")
        print(lines[-1], flush=True)
    return lines


def kde_floor(leaf: Tensor) -> Tensor:
    """One product n x n, and for each of the twenty candidates log gamma of n x c values and n sums of exponentials."""
    probs = leaf.detach().softmax(dim=1).clamp(1e-9, 1 - 1e-9)
    product = probs @ probs.log().T
    for bandwidth in BANDWIDTHS:
        torch.lgamma(probs / bandwidth + 1).sum(dim=1)
        (product / bandwidth).logsumexp(dim=0)
    return functional.cross_entropy(leaf, probs.argmax(dim=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    command = f"python -m benchmarks.speed.small_batches --device {options.device}"
    lines = heading(options.device, command, "Ratios are to the plain torch formula of the same loss, in the same run.")
    lines[0] = lines[0].replace("Losses", "Losses of small batches")
    if options.device == "cuda":
        precompile((n, num_classes, torch.float32) for n, num_classes in SIZES)
    lines += table(options.device, options.rounds)
    if options.device == "cpu":
        lines += kde_lines(max(3, options.rounds // 8))
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
