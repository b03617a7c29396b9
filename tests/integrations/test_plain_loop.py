"""A loss in a plain PyTorch loop, with AdaFocal's update after every epoch: the example of docs/losses.md."""

import warnings

import pytest
import torch

import confide


def test_adafocal_in_a_plain_loop():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn((256, 6), generator=generator)
    labels = features[:, :3].argmax(dim=1)
    train, val = slice(0, 192), slice(192, 256)
    model = torch.nn.Linear(6, 3)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    loss = confide.losses.create("adafocal")
    for _ in range(30):
        for rows in torch.arange(256)[train].split(32):
            optimiser.zero_grad()
            loss(model(features[rows]), labels[rows]).backward()
            optimiser.step()
        with torch.no_grad():
            loss.update(model(features[val]), labels[val])
        loss.end_epoch()
        confide.check()
    assert float((model(features[val]).argmax(dim=1) == labels[val]).float().mean()) > 0.9
    assert bool((loss.gammas != 1).any())


@pytest.mark.parametrize("word", ["adafocal", "calfocal"])
@pytest.mark.parametrize("sign", ["an epoch", "a validation pass"])
def test_a_loss_that_learns_from_validation_says_once_that_it_was_given_none(word, sign):
    loss = confide.losses.create(word)
    logits, labels = torch.randn((8, 3), requires_grad=True), torch.arange(8) % 3

    def epoch():
        loss(logits, labels)
        if sign == "an epoch":
            loss.end_epoch()
        else:
            loss(logits.detach(), labels)
            loss(logits, labels)

    with pytest.warns(UserWarning, match=f"loss '{word}' learns from validation predictions, but {sign} went by"):
        epoch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        epoch()
        updated = confide.losses.create(word)
        for _ in range(2):
            updated(logits, labels)
            updated(logits.detach(), labels)
            updated.update(logits.detach(), labels)
            updated.end_epoch()
        plain = confide.losses.create("focal")
        plain(logits, labels)
        plain.end_epoch()
