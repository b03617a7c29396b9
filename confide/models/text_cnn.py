"""A convolutional network for texts, with global pooling."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from confide.models.family import MODELS, Classifier


class Words(nn.Module):
    """Word vectors, three convolutions with pooling between them, the largest response anywhere, a dense layer."""

    def __init__(self, vocabulary: int, width: int, filters: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(vocabulary, width, padding_idx=0)
        widths = (width, filters, filters, filters)
        self.layers = nn.ModuleList(nn.Conv1d(a, b, 5, padding=2) for a, b in pairwise(widths))
        self.dense = nn.Linear(filters, filters)

    def forward(self, inputs: Tensor) -> Tensor:
        signal = self.vectors(inputs).transpose(1, 2)
        for number, layer in enumerate(self.layers):
            signal = torch.relu(layer(signal))
            if number < len(self.layers) - 1 and signal.shape[2] >= 10:
                signal = torch.max_pool1d(signal, 2)
        return torch.relu(self.dense(signal.amax(dim=2)))


@MODELS.add("text_cnn", paper="Lin et al., 2014, arXiv:1312.4400", takes="text", corners=({"filters": 8},))
def text_cnn(
    shape: tuple[int, ...],
    num_classes: int,
    *,
    vocabulary: int = 20_000,
    width: int = 100,
    filters: int = 128,
    dropout: float = 0.2,
) -> Classifier:
    """Global-pooling text CNN: three convolutions over five words each, 128 filters.

    Args:
        vocabulary: numbers of words, of which 0 pads and 1 is unknown; training sets it from its data.
        width: of the word vectors.
        filters: of each convolution and units of the dense layer.
        dropout: share of features dropped before the head.
    """
    return Classifier(Words(vocabulary, width, filters), nn.Linear(filters, num_classes), dropout)
