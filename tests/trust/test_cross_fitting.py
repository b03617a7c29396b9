"""Honest errors: out-of-fold, augmented, and the linear classifier they use."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import confide
from confide.checks import InputError
from confide.trust import augmented, linear_classifier, out_of_fold
from confide.trust.cross_fitting import stratified_folds


def blobs(n=300, d=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(3, (n,), generator=generator)
    centres = torch.randn(3, d, generator=torch.Generator().manual_seed(7))
    return 0.5 * centres[labels] + 2 * torch.randn(n, d, generator=generator), labels


def test_the_linear_classifier_is_logistic_regression():
    rows, labels = blobs()
    logits = linear_classifier(rows, labels, num_classes=3, penalty=0.01)(rows)
    standard = ((rows - rows.mean(dim=0)) / rows.std(dim=0, correction=0)).numpy()
    # scikit-learn minimises sum of losses + |W|^2 / (2 C): C = 1 / (n penalty).
    peer = LogisticRegression(C=1 / (300 * 0.01), max_iter=2000, tol=1e-8).fit(standard, labels.numpy())
    theirs = torch.from_numpy(peer.predict_proba(standard)).float()
    torch.testing.assert_close(torch.softmax(logits, dim=1), theirs, rtol=2e-3, atol=2e-3)


def test_out_of_fold_predictions_err_as_often_as_on_new_samples():
    rows, labels = blobs(d=80)
    fresh, truth = blobs(3000, d=80, seed=1)
    classify = linear_classifier(rows, labels, num_classes=3)
    own, new = (float((classify(x).argmax(dim=1) == y).float().mean()) for x, y in ((rows, labels), (fresh, truth)))
    honest = out_of_fold(rows.numpy(), labels)
    assert honest.split == "train"
    assert own > new + 0.15
    assert abs(float(honest.facts.correct.float().mean()) - new) < 0.1


def test_a_record_brings_its_labels_and_ids_and_any_training_will_do():
    rows, labels = blobs(60, d=5)
    ids = np.array([f"s{i}" for i in range(60)])
    record = confide.Features(rows.numpy(), labels.numpy(), ids, "made")
    seen = []

    def train(some, truth):
        seen.append(len(some))
        return lambda x: torch.nn.functional.one_hot(truth.mode().values, 3).expand(len(x), 3).float()

    found = out_of_fold(record, train=train, folds=4)
    assert (found.ids == ids).all()
    assert seen == [45, 45, 45, 45]
    with pytest.raises(InputError, match="must give logits of 3 classes"):
        out_of_fold(record, train=lambda some, truth: lambda x: torch.zeros(len(x), 2))


def test_augmented_copies_err_more_and_keep_their_labels():
    rows, labels = blobs(200, d=10)
    classify = linear_classifier(rows, labels, num_classes=3)

    def noisy(batch, generator):
        return batch + 3 * torch.randn(batch.shape, generator=generator)

    found, features = augmented(lambda batch: (classify(batch), batch), rows, labels, noisy, times=3, batch=64)
    assert len(found) == len(features) == 600
    assert torch.equal(found.labels, labels.repeat(3))
    plain = (classify(rows).argmax(dim=1) == labels).float().mean()
    assert float(found.facts.correct.float().mean()) < float(plain) - 0.05


def test_copies_of_a_sample_are_in_one_fold():
    """A copy that another copy's answer was learned from would not be scored honestly."""
    rows, labels = blobs(120, d=6)

    def classify(batch):
        return batch[:, :3], batch

    said, seen = augmented(classify, rows, labels, lambda b, g: b + torch.randn(b.shape, generator=g), times=3)
    assert seen.shape == (360, 6)
    folds = stratified_folds(said, 5)
    assert (folds.reshape(3, 120) == folds[:120]).all()
    wrong = np.bincount(folds[:120], (~said.facts.correct.numpy()).reshape(3, 120).any(axis=0))
    assert wrong.max() - wrong.min() <= 1
    assert np.ptp(np.bincount(folds)) <= 3
