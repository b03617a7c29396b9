"""Vision transformer (Dosovitskiy et al., 2021), small."""

from __future__ import annotations

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from confide.core.door import InputError
from confide.models.family import MODELS, Classifier


class Block(nn.Module):
    """Attention and a two-layer network, each on normed inputs and added to them."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        n, length, width = tokens.shape
        mixed = self.mix(self.norm1(tokens)).view(n, length, 3, self.heads, width // self.heads)
        query, key, value = mixed.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value)
        tokens = tokens + self.dropout(self.out(seen.transpose(1, 2).reshape(n, length, width)))
        result: Tensor = tokens + self.dropout(self.network(self.norm2(tokens)))
        return result


class Patches(nn.Module):
    """Image patches as tokens with positions, through the blocks; the class token comes out."""

    def __init__(self, shape: tuple[int, ...], patch: int, width: int, blocks: list[nn.Module]) -> None:
        super().__init__()
        self.cut = nn.Conv2d(shape[0], width, patch, patch)
        length = (shape[1] // patch) * (shape[2] // patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.empty(1, length + 1, width))
        self.blocks, self.norm = nn.Sequential(*blocks), nn.LayerNorm(width, eps=1e-6)
        nn.init.trunc_normal_(self.places, std=0.02)
        nn.init.normal_(self.token, std=1e-6)

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = self.cut(inputs).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(tokens), -1, -1), tokens], dim=1) + self.places
        result: Tensor = self.norm(self.blocks(tokens))[:, 0]
        return result


@MODELS.add("vit_small", paper="Dosovitskiy et al., 2021, arXiv:2010.11929", corners=({"depth": 2}, {"dropout": 0.1}))
def vit_small(
    shape: tuple[int, ...], num_classes: int, *, patch: int = 0, depth: int = 12, dropout: float = 0.0
) -> Classifier:
    """ViT-Small: 384 wide, 12 blocks of 6 heads, the class token's features.

    Args:
        patch: side of a patch; 0 takes 16 from 128 pixels on and 4 below.
        depth: number of blocks.
        dropout: share dropped after attention and in the two-layer networks.
    """
    patch = patch or (16 if min(shape[1:]) >= 128 else 4)
    if shape[1] % patch or shape[2] % patch:
        raise InputError(f"patch must divide the image's sides, {shape[1]} x {shape[2]}, got {patch}; choose another")
    body = Patches(shape, patch, 384, [Block(384, 6, dropout) for _ in range(depth)])
    for module in body.modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
            nn.init.zeros_(module.bias)
    return Classifier(body, nn.Linear(384, num_classes))
