"""Layers of a network as products: convolutions and linear layers, forward and backward."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from algorithms.networks.registry import MODELS

__all__ = ["Layer", "Product", "layers_of", "model_layers"]


@dataclass(frozen=True, kw_only=True)
class Product:
    """A convolution as a matrix product, and as rows for the row-stationary flow.

    Members
    -------
    rows, depth, columns : (M, K, N) of the product M × K by K × N
    times : as many of them
    pairs : of a map and a filter, that the row-stationary flow convolves with each other
    filter_rows, output_rows : of such a pair
    row_cycles : multiplications of a row of a filter with a row of a map
    """

    rows: int
    depth: int
    columns: int
    times: int
    pairs: int
    filter_rows: int
    output_rows: int
    row_cycles: int

    @property
    def macs(self) -> int:
        """Multiplications of the matrix product."""
        return self.rows * self.depth * self.columns * self.times


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A convolution or linear layer, which has maps of 1 × 1.

    Members
    -------
    name : torch's path
    inputs, outputs, groups : channels
    kernel, in_size, out_size : height and width
    head : it is the last linear layer
    """

    name: str
    inputs: int
    outputs: int
    groups: int
    kernel: tuple[int, int]
    in_size: tuple[int, int]
    out_size: tuple[int, int]
    head: bool = False

    @property
    def size(self) -> int:
        """Weights of an output channel."""
        return self.inputs // self.groups * self.kernel[0] * self.kernel[1]

    def forward(self, images: int) -> Product:
        """Y = X W."""
        (height, width), (kernel_rows, kernel_width) = self.out_size, self.kernel
        return Product(
            rows=images * height * width, depth=self.size, columns=self.outputs // self.groups,
            times=self.groups, pairs=images * self.outputs * self.inputs // self.groups,
            filter_rows=kernel_rows, output_rows=height, row_cycles=width * kernel_width,
        )  # fmt: skip

    def input_gradient(self, images: int) -> Product:
        """dX = dY Wᵀ, at every pixel of X."""
        (height, width), (kernel_rows, kernel_width) = self.in_size, self.kernel
        return Product(
            rows=images * height * width,
            depth=self.outputs // self.groups * kernel_rows * kernel_width,
            columns=self.inputs // self.groups, times=self.groups,
            pairs=images * self.outputs * self.inputs // self.groups,
            filter_rows=kernel_rows, output_rows=height, row_cycles=width * kernel_width,
        )  # fmt: skip

    def weight_gradient(self, images: int) -> Product:
        """dW = Xᵀ dY: dY is the filter, and the kernel the output."""
        (height, width), (kernel_rows, kernel_width) = self.out_size, self.kernel
        return Product(
            rows=self.size, depth=images * height * width, columns=self.outputs // self.groups,
            times=self.groups, pairs=images * self.outputs * self.inputs // self.groups,
            filter_rows=height, output_rows=kernel_rows, row_cycles=kernel_width * width,
        )  # fmt: skip


def layers_of(network: str, shape: tuple[int, int, int], classes: int) -> list[Layer]:
    """Layers of a network in MODELS in the order of execution, from shapes alone.

    Raises
    ------
    ValueError
        if the network does not take such images.
    """
    make: Any = MODELS[network]
    with torch.device("meta"):
        model = make(tuple(shape), classes)
    return model_layers(model, shape)


def model_layers(model: nn.Module, shape: Sequence[int]) -> list[Layer]:
    """Layers of a module on the meta device, as :func:`layers_of`."""
    found: list[Layer] = []

    def watch(name):
        def hook(module, inputs, output):
            linear = isinstance(module, nn.Linear)
            found.append(
                Layer(
                    name=name,
                    inputs=module.in_features if linear else module.in_channels,
                    outputs=module.out_features if linear else module.out_channels,
                    groups=1 if linear else module.groups,
                    kernel=(1, 1) if linear else _pair(module.kernel_size),
                    in_size=(1, 1) if linear else _pair(inputs[0].shape[2:]),
                    out_size=(1, 1) if linear else _pair(output.shape[2:]),
                )
            )

        return hook

    with torch.device("meta"), torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                module.register_forward_hook(watch(name))
        model.eval()(torch.empty(1, *shape))
    return [*found[:-1], replace(found[-1], head=True)]


def _pair(sizes: Sequence[int]) -> tuple[int, int]:
    height, width = sizes
    return height, width
