"""Facts of several records or shards as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import torch
from torch import Tensor

from confide.core.facts import Facts


class FactsInParts:
    """Facts of shards that become one, in vectors that grow: many small parts would leave holes in memory."""

    def __init__(self) -> None:
        self.vectors: dict[str, Tensor] = {}
        self.unknown: set[str] = set()
        self.size = 0

    def add(self, facts: Facts) -> None:
        """Keep the facts of one more shard."""
        end = self.size + len(facts.confidence)
        for field in fields(Facts):
            part: Tensor | None = getattr(facts, field.name)
            if part is None:
                self.unknown.add(field.name)
                continue
            kept = self.vectors.get(field.name, part[:0])
            kind = torch.promote_types(kept.dtype, part.dtype)
            if end > len(kept) or kind != kept.dtype:
                room = max(len(kept), end + end // 2 if self.size else end)
                kept, old = part.new_empty(room, dtype=kind), kept[: self.size]
                kept[: len(old)] = old
            kept[self.size : end] = part
            self.vectors[field.name] = kept
        self.size = end

    def join(self) -> Facts:
        """The facts of all shards; what one shard does not know is unknown."""
        known = {k: v[: self.size] for k, v in self.vectors.items() if k not in self.unknown}
        return Facts(**known)


def join_facts(parts: Sequence[Facts]) -> Facts:
    """The facts of several records as one."""
    together = FactsInParts()
    for part in parts:
        together.add(part)
    return together.join()
