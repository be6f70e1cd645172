"""A task and a model that the examples share: small enough to learn something in seconds.

The text is made by a Markov chain over 64 symbols in which each symbol is followed by one of four.
Knowing nothing costs ln 64 = 4.16 nats per symbol; knowing the chain costs ln 4 = 1.39.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

VOCABULARY = 64
_generator = torch.Generator().manual_seed(1)
_FOLLOWERS = torch.stack(
    [torch.randperm(VOCABULARY, generator=_generator)[:4] for _ in range(VOCABULARY)]
)


def batches(seed: int = 0, size: int = 16, length: int = 32) -> Iterator[Tensor]:
    """Batches of symbols, without end: [size, length + 1]."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        columns = [torch.randint(VOCABULARY, (size,), generator=generator)]
        for _ in range(length):
            choice = torch.randint(4, (size,), generator=generator)
            columns.append(_FOLLOWERS[columns[-1], choice])
        yield torch.stack(columns, dim=1)


class Block(nn.Module):
    """Causal attention with fused Q, K, V, then a feed-forward layer."""

    def __init__(self, width: int, heads: int, feed_forward: nn.Module | None = None) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.mlp = feed_forward or nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).transpose(1, 3)
        q, k, v = qkv.unbind(2)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class LanguageModel(nn.Module):
    """A small transformer; `forward` returns the loss of predicting every next symbol."""

    def __init__(self, width: int = 64, layers: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, symbols: Tensor) -> Tensor:
        x = self.embed(symbols[:, :-1])
        for block in self.blocks:
            x = block(x)
        logits = self.lm_head(self.norm(x))
        return nn.functional.cross_entropy(logits.flatten(0, 1), symbols[:, 1:].flatten())
