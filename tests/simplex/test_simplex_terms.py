"""The rows that the GPU's backward kernel is given hold the whole gradient, whichever statistics it is of."""

from __future__ import annotations

import dataclasses
from itertools import combinations

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from confide.simplex.gradient import GradientLayout, RowTerms, packed, row_terms
from confide.simplex.reference import Request, plain_statistics

SMOOTH = ("log_p_true", "p_true", "p_max", "p_second", "p_other", "entropy", "sum_squares", "mean_log_p", "norm")


def as_the_kernel(
    logits: Tensor, rows: Tensor, at: Tensor | None, layout: GradientLayout, peak: Tensor | None
) -> Tensor:
    """What `backward_kernel` makes of its arguments, one line for each of its terms."""

    def row(name: str) -> Tensor:
        return rows[getattr(layout, name), :, None]

    shifted = logits - rows[0, :, None]
    p = (shifted - rows[1, :, None]).exp()
    out = torch.zeros_like(logits)
    out += p * row("scale") if layout.scale else 0
    out += p * shifted * row("slope") if layout.slope else 0
    out += p * p * row("square") if layout.square else 0
    out += row("constant") / logits.shape[1] if layout.constant else 0
    out += logits.sign() * row("absolute") if layout.absolute else 0
    out += logits * row("linear") if layout.linear else 0
    if layout.label:
        assert peak is not None
        out.scatter_(1, peak[:, None], row("label"))
    for k in range(layout.points):
        assert at is not None
        out.scatter_add_(1, at[k, :, None], rows[layout.first_point + k, :, None])
    return out


def places_of(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    order = logits.argsort(dim=1, descending=True)
    other = torch.where(order[:, 0] == labels, order[:, 1], order[:, 0])
    return {"p_max": order[:, :1], "p_second": order[:, 1:2], "p_other": other[:, None]}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_rows_hold_the_gradient_of_any_statistics_together(count: int) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 5, (16,), generator=generator)
    for names in combinations(SMOOTH, count):
        logits = torch.randn((16, 5), generator=generator, dtype=torch.float64).requires_grad_()
        request = Request(names, 2.0, 0.0)
        values = plain_statistics(logits, labels, request)
        grads = tuple(torch.randn(16, generator=generator, dtype=torch.float64) for _ in names)
        (asked,) = torch.autograd.grad(values, logits, grads)
        z = logits.detach()
        top = z.max(dim=1).values
        rows = torch.stack([top, (z - top[:, None]).exp().sum(dim=1).log()])
        found = {name: value.detach() for name, value in zip(names, values, strict=True)}
        terms = row_terms(request, found, grads, places_of(z, labels), labels)
        if terms.scale is not None and terms.slope is not None:
            terms.scale = terms.scale - terms.slope * rows[1, :, None]
        buffer, at, layout, peak = packed(terms, rows)
        assert_close(as_the_kernel(z, buffer, at, layout, peak), asked, rtol=1e-9, atol=1e-9, msg=f"{names}: %s")


def test_every_term_has_its_row() -> None:
    one = torch.ones(4, 1)
    place = torch.zeros(4, 1, dtype=torch.int64)
    names = {item.name for item in dataclasses.fields(RowTerms)} - {"shift", "points", "peak"}
    terms = RowTerms(**dict.fromkeys(names, one), points=[(place, one), (place, one)], peak=(place, one))
    buffer, at, layout, peak = packed(terms, torch.zeros(2, 4))
    assert 0 not in layout
    assert sorted([*layout[:8], layout.first_point, layout.first_point + 1]) == list(range(2, len(buffer)))
    assert at is not None
    assert at.shape == (2, 4)
    assert peak is not None
    assert peak.shape == (4,)
    assert packed(RowTerms(scale=one), torch.zeros(2, 4))[1:] == (None, GradientLayout(scale=2, first_point=3), None)
