"""The scikit-learn transformer: the same numbers as the calibrator, in scikit-learn's tools."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from confide import Predictions, calibrators
from confide.checks import InputError
from confide.integrations.sklearn import CalibratorTransformer, as_transformer


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(500, 3, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(torch.softmax(logits, dim=1), 1, generator=generator).squeeze(1)
    return (3 * logits).numpy(), labels.numpy()


@pytest.mark.parametrize("word", ["temperature", "dirichlet", "isotonic"])
def test_it_gives_the_probabilities_of_the_calibrator(data, word):
    logits, labels = data
    record = Predictions(logits, labels)
    calibrator = calibrators.fit(word, record)
    expected = calibrator(record).logits.softmax(dim=1).numpy()
    np.testing.assert_allclose(CalibratorTransformer(word, "logits").fit(logits, labels).transform(logits), expected)
    np.testing.assert_allclose(as_transformer(calibrator, "logits").transform(logits), expected)


def test_it_works_in_a_pipeline_and_can_be_cloned(data):
    logits, labels = data
    pipeline = make_pipeline(FunctionTransformer(lambda z: z / 2), CalibratorTransformer("temperature", "logits"))
    probs = clone(pipeline).fit(logits, labels).transform(logits)
    np.testing.assert_allclose(probs.sum(axis=1), 1.0)
    np.testing.assert_allclose(
        probs, CalibratorTransformer(inputs="logits").fit(logits, labels).transform(logits), atol=1e-7
    )


def test_probabilities_and_named_classes(data):
    logits, labels = data
    probs = torch.softmax(torch.from_numpy(logits), dim=1).numpy()
    names = np.array(["cat", "dog", "fox"])
    fitted = CalibratorTransformer("beta", inputs="probs", options={"form": "am"}).fit(probs, names[labels])
    assert set(fitted.predict(probs)) <= set(names)
    assert fitted.predict_proba(probs).shape == (500, 3)


def test_bad_requests(data):
    logits, labels = data
    with pytest.raises(NotFittedError):
        CalibratorTransformer().transform(logits)
    with pytest.raises(InputError, match=r"are these logits\?; if so, CalibratorTransformer\(inputs=.logits.\)"):
        CalibratorTransformer().fit(logits, labels)
    with pytest.raises(InputError, match="got 2 values"):
        CalibratorTransformer().fit(logits[labels < 2], np.array(["a", "b"])[labels[labels < 2]])
