"""Your own PyTorch loop, with AdaFocal.

A loss is one line in a loop; one that learns from validation predictions gets one more line an epoch.
"""

# %% Data and a small network.
import torch
from torch import nn

import confide

torch.manual_seed(0)
labels = torch.arange(3000) % 3
inputs = torch.randn(3000, 10) + 1.2 * torch.eye(3, 10)[labels]
train, val, test = slice(0, 1500), slice(1500, 2000), slice(2000, 3000)


def trained(word: str) -> nn.Module:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(10, 128), nn.ReLU(), nn.Linear(128, 3))
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    loss = confide.losses.create(word)
    for _ in range(15):
        for rows in torch.randperm(1500).split(100):
            optimiser.zero_grad()
            loss(network(inputs[rows]), labels[rows]).backward()
            optimiser.step()
        if loss.update is not None:  # AdaFocal: gamma of every bin follows the calibration on val
            with torch.no_grad():
                loss.update(network(inputs[val]), labels[val])
    return network


# %% Cross-entropy learns its training samples by heart; AdaFocal stays nearer to the truth.
for word in ("cross_entropy", "adafocal"):
    network = trained(word)
    predictions = confide.Predictions(network(inputs[test]).detach(), labels[test])
    ece, accuracy = (float(getattr(confide.metrics, name)(predictions)) for name in ("ece", "accuracy"))
    print(f"{word:14} accuracy {100 * accuracy:.1f} %, ECE {100 * ece:.1f} %")
