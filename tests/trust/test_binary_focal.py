"""The focal oracle."""

import torch

from confide.trust import fit


def test_gamma_zero_is_cross_entropy(hidden_errors):
    val, features = hidden_errors(300)
    focal = fit("binary_focal", val, features, epochs=3, gamma=0.0)
    plain = fit("binary_cross_entropy", val, features, epochs=3)
    torch.testing.assert_close(focal(val, features), plain(val, features), rtol=1e-3, atol=1e-4)
