"""Adversaries: within the bound, seeded, and stronger than noise of the same size."""

import numpy as np
import pytest
import torch

from confide import shift
from confide.checks import InputError
from confide.shift.attacks import ATTACKS, names

WORDS = names()


@pytest.fixture(scope="module")
def target():
    """A small network that tells which half of the image is brighter and which channel leads, and its images."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(160, 3, 16, 16, generator=generator) * 0.6 + 0.2
    labels = torch.arange(160) % 3
    images[torch.arange(160), labels] += 0.08
    images = images.clamp(0, 1)
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(128, 3),
    )
    optimiser = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(60):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(network(images), labels).backward()
        optimiser.step()
    return network.eval(), images, labels


def accuracy(network, images, labels):
    with torch.no_grad():
        return float((network(images).argmax(1) == labels).float().mean())


@pytest.mark.parametrize("word", WORDS)
def test_an_attack_stays_within_its_bound_and_fools_the_model(target, word):
    network, images, labels = target
    made = shift.attack(network, images, labels, word, ids=np.arange(160), epsilon=0.05)
    assert float((made - images).abs().max()) <= 0.05 + 1e-6
    assert float(made.min()) >= 0
    assert float(made.max()) <= 1
    noise = (images + 0.05 * torch.sign(torch.randn(images.shape, generator=torch.Generator().manual_seed(1)))).clamp(
        0, 1
    )
    assert accuracy(network, images, labels) > 0.9
    assert accuracy(network, made, labels) < accuracy(network, noise, labels) - 0.3


@pytest.mark.parametrize("word", WORDS)
def test_an_attack_is_the_same_in_any_batch_and_leaves_no_gradient(target, word):
    network, images, labels = target
    ids = np.arange(160)
    whole = shift.attack(network, images, labels, word, ids=ids, seed=3)
    part = shift.attack(network, images[40:50], labels[40:50], word, ids=ids[40:50], seed=3, batch_size=4)
    # The sign of a gradient near 0 may turn with the order of a sum.
    assert float(((part - whole[40:50]).abs() > 1e-5).float().mean()) < 0.01
    assert not whole.requires_grad
    assert all(p.grad is None or not p.grad.abs().sum().isnan() for p in network.parameters())


@pytest.mark.parametrize("word", WORDS)
def test_8_bit_images_come_back_within_the_bound(target, word):
    network, images, labels = target
    coarse = (images * 255).round().to(torch.uint8)
    made = shift.attack(network, coarse, labels, word, epsilon=4 / 255)
    assert made.dtype == torch.uint8
    assert int((made.int() - coarse.int()).abs().max()) <= 4
    assert bool((made != coarse).any())


@pytest.mark.parametrize(("word", "corner"), [(m.word, c) for m in ATTACKS for c in m.corners])
def test_corners(target, word, corner):
    network, images, labels = target
    made = shift.attack(network, images[:8], labels[:8], word, **corner)
    assert torch.isfinite(made).all()
    if corner.get("epsilon") == 0:
        assert torch.equal(made, images[:8])


def test_more_steps_fool_more_than_one(target):
    network, images, labels = target
    one = shift.attack(network, images, labels, "fgsm", epsilon=0.03)
    many = shift.attack(network, images, labels, "pgd", epsilon=0.03, steps=20)

    def loss(values):
        with torch.no_grad():
            return float(torch.nn.functional.cross_entropy(network(values), labels))

    assert loss(many) > loss(images)
    assert loss(many) > 0.95 * loss(one)


def test_recolouring_moves_equal_colours_alike(target):
    network, _, _ = target
    flat = torch.full((2, 3, 16, 16), 0.4)
    flat[:, :, :8] = 0.7
    made = shift.attack(network, flat, torch.tensor([0, 1]), "recolour")
    for half in (made[:, :, :8], made[:, :, 8:]):
        assert float(half.std(dim=(2, 3)).max()) < 1e-6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"word": "pdg"}, "no attack named 'pdg'; did you mean 'pgd'"),
        ({"epsilon": 2.0}, "epsilon must lie in"),
        ({"steps": 0}, "steps must be at least 1"),
        ({"labels": torch.zeros(3)}, "labels must be 4 class indices"),
        ({"images": torch.full((4, 3, 16, 16), 7.0)}, "floating images must lie in"),
        ({"images": torch.rand(4, 1, 16, 16), "word": "recolour"}, "changes colours"),
    ],
)
def test_bad_input_gets_one_line(target, options, message):
    given = {"word": "pgd", "images": torch.rand(4, 3, 16, 16), "labels": torch.zeros(4, dtype=torch.int64), **options}
    with pytest.raises(InputError, match=message):
        shift.attack(target[0], given.pop("images"), given.pop("labels"), given.pop("word"), **given)


def test_where_the_loss_does_not_change_a_pixel_stays_where_it_started():
    images, labels = torch.full((3, 3, 4, 4), 0.5), torch.tensor([0, 1, 0])

    def first_channel(values):
        return torch.stack([values[:, 0].sum(dim=(1, 2)), -values[:, 0].sum(dim=(1, 2))], dim=1)

    one, many = (shift.attack(first_channel, images, labels, "pgd", steps=steps) for steps in (1, 5))
    torch.testing.assert_close(many[:, 1:], one[:, 1:])
    assert not torch.equal(many[:, 0], one[:, 0])
