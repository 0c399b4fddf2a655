"""Networks of sequences, to be trained for a few batches."""

from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from algorithms.networks.transformer import Transformer
from golden.layers.optimizer import SGD
from golden.prediction.config import PredictorConfig
from golden.prediction.schedule import Phase

from .adagp_blocks import experienced
from .adagp_run import AdaGPRun
from .train_blocks import random_model
from .training_result import Batch, in_phases
from .training_run import TrainingRun

__all__ = ["LENGTH", "NETWORKS", "TOKENS", "WIDTH", "sequence_run"]

#: Vectors of a sequence, numbers of a vector, classes.
LENGTH, WIDTH, CLASSES = 7, 8, 5
#: Different tokens.
TOKENS = 11


class TokenMLP(nn.Module):
    """Every vector by itself, and a class for each."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 9), nn.Linear(9, WIDTH, bias=False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        return self.head(x + self.second(torch.relu(self.first(x))))


class MeanOfTokens(nn.Module):
    """A class for a sequence."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(WIDTH, 9), nn.Linear(9, CLASSES)

    def forward(self, x):
        return self.head(torch.relu(self.first(x)).mean(1))


class SharesOfTokens(nn.Module):
    """Softmax over the numbers of each vector."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 9), nn.Linear(9, CLASSES)
        self.shares = nn.Softmax(-1)

    def forward(self, x):
        x = self.first(x)
        return self.second(3 * x * self.shares(x))


class NormalizedMLP(nn.Module):
    """Normalisation over the numbers of each vector, of 8 and of 11 of them; one has no bias, one
    neither weight nor bias."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(11, eps=1e-3, bias=False)
        self.last = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.first, self.second = nn.Linear(WIDTH, 11), nn.Linear(11, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)
        with torch.no_grad():
            for norm in (self.norm1, self.norm2):
                norm.weight.uniform_(0.5, 1.5)
            self.norm1.bias.uniform_(-0.5, 0.5)

    def forward(self, x):
        x = self.norm1(x)
        x = x + self.second(torch.relu(self.norm2(self.first(x))))
        return self.head(self.last(x))


class CausalAttention(nn.Module):
    """Two heads, of which no query sees a later key; then one head that looks at what is near,
    written as products. Both drop some of their shares."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, 16), nn.Linear(WIDTH, 16, bias=False)
        self.value, self.out = nn.Linear(WIDTH, 16), nn.Linear(16, WIDTH)
        self.again = nn.Linear(WIDTH, 5)
        self.head, self.drop = nn.Linear(5, CLASSES), nn.Dropout(0.25)
        away = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
        nearby = -0.3 * away.abs().masked_fill(away > 3, 1000)
        self.register_buffer("nearby", nearby.masked_fill(away > 4, float("-inf")))

    def forward(self, x):
        images, length, _ = x.shape
        q, k, v = (
            layer(x).view(images, length, 2, 8).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        p = 0.3 if self.training else 0.0
        y = functional.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(images, length, 16))
        y = self.again(x)
        scores = 0.5 * (y @ y.transpose(1, 2)) + self.nearby
        return self.head(self.drop(torch.softmax(scores, dim=-1)) @ y)


class JointProjections(nn.Module):
    """Queries, keys and values of both heads are slices of one layer's output."""

    def __init__(self):
        super().__init__()
        self.joint, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        q, k, v = (
            part.view(x.size(0), x.size(1), 2, WIDTH // 2).transpose(1, 2)
            for part in self.thirds(self.joint(x))
        )
        y = functional.scaled_dot_product_attention(q, k, v)
        return self.head(x + self.out(y.transpose(1, 2).flatten(2)))

    @staticmethod
    def thirds(x):
        """The three of them."""
        q, k, v = x.split(WIDTH, dim=-1)
        return q, k, v


class TwoSentences(nn.Module):
    """Tokens of two sentences, which attend to each other, with a constant for each position."""

    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(TOKENS, 8, padding_idx=0), nn.Embedding(TOKENS, 8)
        self.register_buffer("positions", torch.linspace(-1, 1, 10 * 8).view(10, 8))
        self.head = nn.Linear(8, CLASSES)

    def forward(self, source, target):
        memory = self.source(source) + self.positions[: source.size(1)]
        query = self.positions[: target.size(1)] + self.target(target)
        seen = functional.scaled_dot_product_attention(query, memory, memory)
        return self.head(query + seen)


def _transformer(layers):
    """The paper's Transformer, narrow."""
    return Transformer(TOKENS, CLASSES, length=LENGTH, width=8, heads=2, hidden=12, layers=layers)


NETWORKS = {
    "token mlp": TokenMLP,
    "mean of tokens": MeanOfTokens,
    "shares of tokens": SharesOfTokens,
    "normalized mlp": NormalizedMLP,
    "attention": CausalAttention,
    "joint projections": JointProjections,
    "two sentences": TwoSentences,
    "transformer": partial(_transformer, 1),
    "paper's transformer": partial(_transformer, 3),
}
#: Inputs that are tokens: their shapes.
_SENTENCES = {
    name: [(LENGTH,), (LENGTH - 2,)]
    for name in ("two sentences", "transformer", "paper's transformer")
}


def sequence_run(
    network, config, rng, *, batches=2, images=3, phases=None, **options
) -> TrainingRun:
    """Training of a network, by name or what makes it, on random sequences and labels, for each
    vector where the network has a sequence as its output.

    ``rng`` is a NumPy generator; ``options`` go to
    :class:`~verif.networks.training_run.TrainingRun`. With ``phases``, a letter for each batch,
    gradients are predicted by a predictor that has learned something.
    """
    model = random_model(NETWORKS.get(network, network), rng)
    shapes = _SENTENCES.get(network)

    def inputs():
        if shapes is None:
            return rng.standard_normal((images, LENGTH, WIDTH)).astype(np.float32)
        return [rng.integers(0, CLASSES, (images, *shape)) for shape in shapes]

    first = inputs()
    given = first if isinstance(first, list) else [first]
    outputs = model(*(torch.from_numpy(part) for part in given)).shape[:-1]
    stream = [
        Batch(
            images=inputs(),
            targets=rng.integers(0, CLASSES, outputs),
            optimizer=SGD(learning_rate=0.1 / (number + 1), momentum=0.9, weight_decay=1e-3),
        )
        for number in range(batches if phases is None else len(phases))
    ]
    if phases is not None:
        stream = in_phases(stream, map(Phase, phases))
        return AdaGPRun(
            model, config, shapes or (LENGTH, WIDTH), stream,
            predictor=PredictorConfig(channels=4, map_size=4), prepare=experienced(rng), **options,
        )  # fmt: skip
    return TrainingRun(model, config, shapes or (LENGTH, WIDTH), stream, **options)
