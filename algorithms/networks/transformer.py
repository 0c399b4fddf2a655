"""The Transformer of Vaswani et al. 2017, as the ADA-GP paper trains it: 3 + 3 layers.

Written of layers that the compiler knows: linear layers, ``scaled_dot_product_attention``, layer
normalisation behind every addition, embeddings. All sentences of a batch have one length. Positions
of padding are left out of the loss (``ignore_index``), and their embedding is 0; as keys they are
not masked.
"""

from math import gcd, log, sqrt

import torch
from torch import nn
from torch.nn import functional

from .blocks import scaled

__all__ = ["Transformer", "transformer"]


def transformer(lengths, tokens: int, *, width: float = 1.0):
    """The network of the paper: 512 numbers of a vector and in hidden layers, 8 heads, a tenth of
    the numbers dropped.

    Parameters
    ----------
    lengths : of the two sentences, ((S,), (T,))
    tokens : of each of the two languages
    width : multiplies the 512, rounded to a multiple of 4; heads are fewer where 8 do not divide it
    """
    numbers = scaled(512, width)
    return Transformer(
        tokens, tokens, length=max(length for (length,) in lengths), width=numbers,
        heads=gcd(8, numbers), hidden=numbers, dropout=0.1,
    )  # fmt: skip


class Transformer(nn.Module):
    """Logits (N, T, tokens) of the next token, of two sentences (N, S) and (N, T) of tokens.

    Parameters
    ----------
    source_tokens, target_tokens : how many tokens the two languages have; token 0 is padding
    length : the most tokens of a sentence
    width : numbers of a vector
    heads : of every attention; must divide ``width``
    layers : of the encoder, and of the decoder
    hidden : width of the hidden layer of a feed-forward network
    dropout : probability, in front of every addition

    Raises
    ------
    ValueError
        if ``width`` is odd, or ``heads`` does not divide it.
    """

    def __init__(
        self, source_tokens: int, target_tokens: int, *, length: int, width: int = 512,
        heads: int = 8, layers: int = 3, hidden: int = 512, dropout: float = 0.0,
    ):  # fmt: skip
        super().__init__()
        if width % heads or width % 2:
            raise ValueError(f"width must be even and a multiple of heads, {heads}, not {width}")
        self.scale = sqrt(width)
        self.source = nn.Embedding(source_tokens, width, padding_idx=0)
        self.target = nn.Embedding(target_tokens, width, padding_idx=0)
        for embedding in (self.source, self.target):
            nn.init.normal_(embedding.weight, std=width**-0.5)
            nn.init.zeros_(embedding.weight[0].detach())
        self.register_buffer("positions", _positions(length, width))
        sizes = width, heads, hidden, dropout
        self.encoder = nn.ModuleList(_EncoderLayer(*sizes) for _ in range(layers))
        self.decoder = nn.ModuleList(_DecoderLayer(*sizes) for _ in range(layers))
        self.head = nn.Linear(width, target_tokens)

    def forward(self, source, target):
        memory = self.source(source) * self.scale + self.positions[: source.size(1)]
        for layer in self.encoder:
            memory = layer(memory)
        x = self.target(target) * self.scale + self.positions[: target.size(1)]
        for layer in self.decoder:
            x = layer(x, memory)
        return self.head(x)


class _Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, memory, causal=False):
        query, key, value = (
            part.view(part.size(0), part.size(1), self.heads, -1).transpose(1, 2)
            for part in (self.query(x), self.key(memory), self.value(memory))
        )
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=causal)
        return self.out(y.transpose(1, 2).flatten(2))


class _FeedForward(nn.Sequential):
    def __init__(self, width, hidden):
        super().__init__(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))


class _EncoderLayer(nn.Module):
    def __init__(self, width, heads, hidden, dropout):
        super().__init__()
        self.attention, self.forward_network = _Attention(width, heads), _FeedForward(width, hidden)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = self.norm1(x + self.dropout(self.attention(x, x)))
        return self.norm2(x + self.dropout(self.forward_network(x)))


class _DecoderLayer(nn.Module):
    def __init__(self, width, heads, hidden, dropout):
        super().__init__()
        self.own, self.other = _Attention(width, heads), _Attention(width, heads)
        self.forward_network = _FeedForward(width, hidden)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, memory):
        x = self.norm1(x + self.dropout(self.own(x, x, causal=True)))
        x = self.norm2(x + self.dropout(self.other(x, memory)))
        return self.norm3(x + self.dropout(self.forward_network(x)))


def _positions(length, width):
    """(length, width): sines and cosines of wavelengths from 2π to 10,000 · 2π."""
    # Numbers even where the network has shapes alone, on the meta device.
    place = torch.arange(length, device="cpu")[:, None]
    rates = torch.exp(torch.arange(0, width, 2, device="cpu") * (-log(10000.0) / width))
    return torch.stack([torch.sin(place * rates), torch.cos(place * rates)], -1).flatten(1)
