"""RMD of the predicted class, against a plain formula and its invariants."""

import numpy as np
import torch

import confide
from confide.trust import fit


def made(n=400, c=3, d=5):
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(c, (n,), generator=generator)
    features = 2 * torch.randn(c, d, generator=generator)[labels] + torch.randn(n, d, generator=generator)
    logits = torch.randn(n, c, generator=generator)
    return confide.Predictions(logits, labels, split="val"), features.double()


def test_matches_the_plain_formula():
    predictions, features = made()
    rows, labels = features.numpy(), predictions.labels.numpy()
    means = np.stack([rows[labels == k].mean(axis=0) for k in range(3)])
    within = np.linalg.inv((rows - means[labels]).T @ (rows - means[labels]) / len(rows))
    total = np.linalg.inv(np.cov(rows.T, bias=True))
    said = predictions.facts.prediction.numpy()
    own, overall = rows - means[said], rows - rows.mean(axis=0)
    expected = np.einsum("nd,de,ne->n", overall, total, overall) - np.einsum("nd,de,ne->n", own, within, own)
    values = fit("rmd", predictions, features)(predictions, features)
    np.testing.assert_allclose(values.numpy(), expected, rtol=1e-9, atol=1e-9)


def test_mean_is_zero_where_every_prediction_is_the_label():
    predictions, features = made()
    right = predictions.with_logits(torch.nn.functional.one_hot(predictions.labels, 3).double())
    assert abs(float(fit("rmd", right, features)(right, features).mean())) < 1e-9
