"""Sizes of the networks and what their predictor costs, from shapes alone: no weight is made."""

from dataclasses import asdict, dataclass

import torch
from torch import nn

from algorithms.adagp.layers import find_layers
from golden.prediction.config import PredictorConfig

from .registry import MODELS

__all__ = ["LayerFacts", "ModelFacts", "examine", "read_shape", "table"]

#: The predictor memory of the paper: 16-bit words in a row; those of a block RAM without parity.
PAPER_ROW, BLOCK_WORDS = 480, 2048


@dataclass(frozen=True, kw_only=True)
class LayerFacts:
    """A convolution or linear layer.

    Members
    -------
    name : torch's path
    outputs : O, output channels
    size : n, weights of an output channel
    pixels : of an output map, 1 of a linear layer
    """

    name: str
    outputs: int
    size: int
    pixels: int

    @property
    def macs(self) -> int:
        """Multiplications with weights, forward, one image."""
        return self.outputs * self.size * self.pixels

    def predictor_macs(self, config: PredictorConfig) -> int:
        """Of the predictor's forward pass, one batch of any size."""
        convolution = 9 * config.channels * config.map_size**2
        return self.outputs * (convolution + config.features * self.size)


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """A network for one shape of images.

    Members
    -------
    name : in MODELS
    input_shape : (C, H, W)
    classes : of the logits
    parameters : numbers that are trained
    layers : those that are predicted
    head : the last linear layer, whose gradient is exact
    """

    name: str
    input_shape: tuple[int, int, int]
    classes: int
    parameters: int
    layers: tuple[LayerFacts, ...]
    head: LayerFacts

    @property
    def largest(self) -> int:
        """The largest n of the predicted layers: rows of the predictor's linear layer."""
        return max(layer.size for layer in self.layers)

    @property
    def paper_rows(self) -> int:
        """The same in paper mode, where the head is predicted too."""
        return max(self.largest, self.head.size)

    @property
    def paper_blocks(self) -> int:
        """RAMB36 that hold ``paper_rows`` rows of the paper's predictor."""
        return -(-self.paper_rows * PAPER_ROW // BLOCK_WORDS)

    @property
    def macs(self) -> int:
        """Forward, one image, the head among them."""
        return sum(layer.macs for layer in (*self.layers, self.head))

    def predictor_share(self, config: PredictorConfig, batch: int) -> tuple[float, float]:
        """MACs of the predictor by those of the predicted layers, forward, one batch.

        Of all layers together, and of the layer where it is most.
        """
        pairs = [(layer.predictor_macs(config), batch * layer.macs) for layer in self.layers]
        predictor, layers = (sum(values) for values in zip(*pairs))
        return predictor / layers, max(mine / its for mine, its in pairs)

    def to_dict(self, config: PredictorConfig, batch: int) -> dict:
        """Everything, for JSON."""
        share, most = self.predictor_share(config, batch)
        return asdict(self) | {
            "largest": self.largest,
            "paper_rows": self.paper_rows,
            "paper_blocks": self.paper_blocks,
            "macs": self.macs,
            "predictor": {"features": config.features, "batch": batch, "share": share,
                          "largest_share": most},
        }  # fmt: skip


def read_shape(text: str) -> tuple[int, int, int]:
    """Channels, height and width from text such as ``3x32x32``; raises ValueError."""
    sizes = text.split("x")
    if len(sizes) != 3 or not all(size.isdecimal() and int(size) for size in sizes):
        raise ValueError(f"input must be channels, height and width as in 3x32x32, not {text!r}")
    channels, height, width = map(int, sizes)
    return channels, height, width


def examine(name: str, input_shape, classes: int) -> ModelFacts:
    """Facts of a network, from a forward pass on the meta device.

    Raises
    ------
    ValueError
        if the network does not take such images.
    """
    pixels = {}

    def watch(module, inputs, outputs):
        pixels[module] = outputs[0, 0].numel()

    with torch.device("meta"), torch.no_grad():
        model = MODELS[name](tuple(input_shape), classes).eval()
        for module in model.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                module.register_forward_hook(watch)
        model(torch.empty(1, *input_shape))

    def facts(name, module):
        return LayerFacts(
            name=name,
            outputs=len(module.weight),
            size=module.weight[0].numel(),
            pixels=pixels[module],
        )

    layers, head = find_layers(model, names=None, running=0.0, separate_head=True)
    return ModelFacts(
        name=name,
        input_shape=tuple(input_shape),
        classes=classes,
        parameters=sum(value.numel() for value in model.parameters()),
        layers=tuple(facts(layer.name, layer.module) for layer in layers),
        head=facts(*head),
    )


def table(networks, config: PredictorConfig, batch: int) -> str:
    """Markdown: a line for each of ``networks`` (:class:`ModelFacts`)."""
    lines = [
        "| network | input | parameters | layers | largest n | paper's rows | RAMB36 | MMACs | "
        "predictor | of a layer |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for facts in networks:
        share, most = facts.predictor_share(config, batch)
        lines.append(
            f"| {facts.name} | {'×'.join(map(str, facts.input_shape))} | {facts.parameters:,} | "
            f"{len(facts.layers)} | {facts.largest:,} | {facts.paper_rows:,} | "
            f"{facts.paper_blocks:,} | {facts.macs / 1e6:,.1f} | {share:.2%} | {most:.2%} |"
        )
    return "\n".join(lines)
