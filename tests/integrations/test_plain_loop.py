"""A loss in a plain PyTorch loop, with AdaFocal's update after every epoch: the example of docs/losses.md."""

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
