"""Heads of an oracle."""

from pathlib import Path

import numpy as np
import torch

from confide.trust.oracles import apply_head, signed_distance_head

VECTOR = np.load(Path(__file__).parents[1] / "golden" / "hyperplane_head.npz")


def test_golden_vector_of_the_signed_distance():
    rows, weight, bias = (torch.from_numpy(VECTOR[k]) for k in ("x", "weight", "bias"))
    values = signed_distance_head(rows, weight[0], bias[0])
    torch.testing.assert_close(values, torch.from_numpy(VECTOR["z"])[:, 0], rtol=1e-9, atol=1e-12)


def test_the_length_of_the_weight_does_not_matter_but_for_the_linear_head():
    rows, weight, bias = torch.randn(7, 3).double(), torch.randn(3).double(), torch.tensor(0.5).double()
    far, near = (apply_head("signed_distance", rows, s * weight, s * bias) for s in (10.0, 1.0))
    torch.testing.assert_close(far, near, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(apply_head("linear", rows, 10 * weight, 10 * bias), 10 * (rows @ weight + bias))


def test_members_do_not_mix():
    rows, weight, bias = torch.randn(2, 7, 3), torch.randn(2, 3), torch.randn(2)
    both = signed_distance_head(rows, weight, bias)
    torch.testing.assert_close(both[1], signed_distance_head(rows[1], weight[1], bias[1]))
