"""The gradient of the statistics of `simplex`: a few numbers per row, then one pass, on a CPU by row blocks.

dz_k = p_k (scale + slope (z_k - max) + square p_k) + constant / c + [k = j_1] v_1 + ... + norm and excess terms
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from confide import block_sizes
from confide.simplex.reference import Request, plain_statistics

NEAR = 32.0
"""Largest logits up to here need no shift before they are multiplied: float32 then still keeps 2e-6."""


def second_order(
    logits: Tensor, labels: Tensor | None, request: Request, grads: tuple[Tensor | None, ...]
) -> Tensor | None:
    """The gradient as a differentiable function of the logits, for create_graph=True."""
    outputs = plain_statistics(logits, labels, request)
    pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if g is not None and o.requires_grad]
    if not pairs:
        return None
    values, weights = zip(*pairs, strict=True)
    return torch.autograd.grad(values, logits, weights, create_graph=True)[0]


@dataclass
class RowTerms:
    """The few numbers per row that the gradient needs (n x 1 each); None where a term is absent.

    `points` are added at their places, `peak` is all that the softmax's terms give at its place.
    """

    scale: Tensor | None = None
    slope: Tensor | None = None
    square: Tensor | None = None
    constant: Tensor | None = None
    absolute: Tensor | None = None
    linear: Tensor | None = None
    excess: Tensor | None = None
    shift: Tensor | None = None
    points: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    peak: tuple[Tensor, Tensor] | None = None

    def add(self, name: str, value: Tensor) -> None:
        old = getattr(self, name)
        setattr(self, name, value if old is None else old + value)


def row_terms(
    request: Request,
    values: dict[str, Tensor],
    grads: tuple[Tensor | None, ...],
    index: dict[str, Tensor],
    labels: Tensor | None,
) -> RowTerms:
    """Fold the gradients of all statistics into the terms of one pass."""
    terms, peaks = RowTerms(), []
    for name, grad in zip(request.names, grads, strict=True):
        if grad is None or name == "prediction":
            continue
        weight, value = grad[:, None], values[name][:, None]
        if name in ("log_p_true", "p_true"):
            assert labels is not None
            weight = weight if name == "log_p_true" else weight * value
            terms.add("scale", -weight)
            terms.points.append((labels[:, None], weight))
        elif name in ("p_max", "p_second", "p_other", "p_below"):
            peaks.append((name, weight, value))
        elif name == "entropy":
            # p (log p + H) = p (z - max) + p (H - log scale): the second part joins `scale` in the pass.
            terms.add("slope", -weight)
            terms.add("scale", -weight * value)
        elif name == "sum_squares":
            terms.add("square", 2 * weight)
            terms.add("scale", -2 * weight * value)
        elif name == "mean_log_p":
            terms.add("scale", -weight)
            terms.add("constant", weight)
        elif name == "log_sum_exp":
            terms.add("scale", weight)
        elif name == "norm" and request.order == 1.0:
            terms.add("absolute", weight)
        elif name == "norm":
            terms.add("linear", weight / value.clamp_min(torch.finfo(value.dtype).tiny))
        else:
            terms.add("excess", weight.clone())
    if terms.excess is not None:
        terms.points.append((index["p_max"], terms.excess))
    _add_peaks(terms, peaks, index)
    return terms


def _add_peaks(terms: RowTerms, peaks: list[tuple[str, Tensor, Tensor]], index: dict[str, Tensor]) -> None:
    """Terms w p_j (1[k = j] - p_k) of the largest probability under a condition."""
    others = (terms.slope, terms.square, terms.constant, terms.absolute, terms.linear, terms.excess)
    plain = all(term is None for term in others)
    for name, weight, value in peaks:
        if len(peaks) == 1 and plain and name != "p_below" and terms.scale is not None:
            # w p_j - w p_j p_j would cancel where p_j is near 1 and w is large: w p_j (1 - p_j) does not.
            terms.peak = (index[name], value * (terms.scale + weight * (1 - value)))
        else:
            terms.points.append((index[name], weight * value))
        terms.add("scale", -weight * value)


class GradientLayout(NamedTuple):
    """Which row of the buffer holds which term of the gradient; 0 where a term is absent."""

    scale: int = 0
    label: int = 0
    slope: int = 0
    square: int = 0
    constant: int = 0
    absolute: int = 0
    linear: int = 0
    excess: int = 0
    points: int = 0
    first_point: int = 0


def packed(terms: RowTerms, rows: Tensor) -> tuple[Tensor, Tensor | None, GradientLayout, Tensor | None]:
    """The terms as a kernel reads them: one buffer behind `rows`, places of points, layout, places of the peak."""
    buffers, numbers = [rows], {}
    factors = {name: getattr(terms, name) for name in GradientLayout._fields[:8] if name != "label"}
    for name, value in (*factors.items(), ("label", None if terms.peak is None else terms.peak[1])):
        if value is not None:
            numbers[name] = len(rows) - 1 + len(buffers)
            buffers.append(value.reshape(1, -1).to(rows.dtype))
    layout = GradientLayout(points=len(terms.points), first_point=len(rows) - 1 + len(buffers), **numbers)
    buffers += [value.reshape(1, -1).to(rows.dtype) for _, value in terms.points]
    places = torch.cat([position.reshape(1, -1) for position, _ in terms.points]) if terms.points else None
    return torch.cat(buffers), places, layout, None if terms.peak is None else terms.peak[0].reshape(-1)


def gradient(logits: Tensor, probs: Tensor, top: Tensor, log_scale: Tensor, terms: RowTerms, margin: float) -> Tensor:
    """One pass that turns the probabilities into the gradient, in place."""
    n, num_classes = probs.shape
    size = block_sizes.rows_in(block_sizes.CACHED, num_classes)
    buffer = torch.empty((min(size, n), num_classes), dtype=probs.dtype)
    if terms.scale is not None and terms.slope is not None:
        near = probs.dtype == torch.float32 and n > 0 and bool(top.abs().max() <= NEAR)
        terms.shift = None if near else top
        terms.scale = terms.scale - terms.slope * (log_scale + top if near else log_scale)
    for start in range(0, n, size):
        part = slice(start, min(start + size, n))
        _softmax_part(probs[part], logits[part], terms, part, buffer[: part.stop - start])
        if terms.peak is not None:
            probs[part].scatter_(1, terms.peak[0][part], terms.peak[1][part])
        _logit_part(probs[part], logits[part], top[part], terms, part, buffer[: part.stop - start], margin)
        for position, value in terms.points:
            probs[part].scatter_add_(1, position[part], value[part])
    return probs.to(logits.dtype)


def _softmax_part(out: Tensor, logits: Tensor, terms: RowTerms, part: slice, buffer: Tensor) -> None:
    """p (scale + slope (z - max) + square p) + constant / c."""
    if terms.scale is None:
        out.zero_()
        return
    if terms.slope is None and terms.square is None:
        out.mul_(terms.scale[part])
    else:
        if terms.slope is not None:
            shifted = logits if terms.shift is None else torch.sub(logits, terms.shift[part], out=buffer)
            # addcmul with a broadcast first argument takes twice the time of these two.
            torch.mul(shifted, terms.slope[part], out=buffer).add_(terms.scale[part])
            if terms.square is not None:
                buffer.addcmul_(out, terms.square[part])
        else:
            assert terms.square is not None
            torch.mul(out, terms.square[part], out=buffer).add_(terms.scale[part])
        out.mul_(buffer)
    if terms.constant is not None:
        out.add_(terms.constant[part] / out.shape[1])


def _logit_part(
    out: Tensor, logits: Tensor, top: Tensor, terms: RowTerms, part: slice, buffer: Tensor, margin: float
) -> None:
    """Terms that need the logits: norms, and the share of each class in `excess`."""
    if terms.absolute is not None:
        out.addcmul_(torch.sign(logits.to(buffer.dtype), out=buffer), terms.absolute[part])
    if terms.linear is not None:
        out.addcmul_(logits.to(buffer.dtype), terms.linear[part])
    if terms.excess is not None:
        torch.lt(logits, top - margin, out=buffer)
        share = terms.excess[part] / out.shape[1]
        terms.excess[part] = share * buffer.sum(dim=1, keepdim=True)
        out.addcmul_(buffer, -share)
