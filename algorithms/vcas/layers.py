"""Convolutions and linear layers whose backward pass works on a sample."""

from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from .sampling import keep_probabilities, sample, weights_variance

__all__ = ["SampledLayer", "sampled_layers", "sampling"]


@dataclass(eq=False)
class SampledLayer:
    """A layer, how much of its backward pass is done, and what the last one did.

    Members
    -------
    name, module : of the model
    ratio : expected share of images whose gradient is kept (ρ)
    weights_ratio : share of the rows left by these images that the weight gradient is expected to
        be made of (ν); a row is a pixel of an image, a token of a sequence, or a vector
    sample_weights : whether rows are left out; if not, only ``variance`` is computed
    norms : ‖∇‖ of the images, before sampling
    images, rows : shares that the last backward pass has kept; of rows, of all there are
    variance : that sampling rows has added to the weight gradient, as it is expected to be
    input_gradient : whether the last backward pass computed one
    """

    name: str
    module: nn.Module
    ratio: float = 1.0
    weights_ratio: float = 1.0
    sample_weights: bool = True
    norms: torch.Tensor | None = None
    images: float = 1.0
    rows: float = 1.0
    variance: float = 0.0
    input_gradient: bool = False

    def keep_images(self, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient of the layer's output, zero for images that are left out."""
        self.norms = gradient.flatten(1).norm(dim=1)
        if self.ratio >= 1:
            self.images = float((self.norms > 0).float().mean())
            return gradient
        probabilities = keep_probabilities(self.norms, self.ratio * len(gradient))
        gradient, mask = sample(gradient, probabilities)
        self.images = float(mask.float().mean())
        return gradient

    def keep_rows(self, gradient: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """Of the gradient that :meth:`keep_images` has left, rows for the weight gradient."""
        axis = 1 if isinstance(self.module, nn.Conv2d) else -1
        own = gradient.norm(dim=axis)  # (N, H, W) or (N, ...)
        self.variance, self.rows = 0.0, float((own > 0).float().mean())
        if self.weights_ratio >= 1:
            return gradient
        products = own * self._input_norms(inputs)
        count = float((products > 0).sum())
        probabilities = keep_probabilities(products.flatten(), self.weights_ratio * count)
        self.variance = weights_variance(products.flatten(), probabilities)
        if not self.sample_weights:
            return gradient
        gradient, mask = sample(gradient.movedim(axis, -1), probabilities.reshape(own.shape))
        self.rows = float(mask.float().mean())
        return gradient.movedim(-1, axis)

    def _input_norms(self, inputs):
        """‖x‖ of the inputs of every row: what a pixel's window covers, or a vector."""
        module = self.module
        if isinstance(module, nn.Linear):
            return inputs.norm(dim=-1)
        squares = inputs.square().sum(1, keepdim=True)
        window = torch.ones(1, 1, *module.kernel_size, dtype=inputs.dtype, device=inputs.device)
        sums = functional.conv2d(squares, window, None, module.stride, module.padding,
                                 module.dilation)  # fmt: skip
        return sums[:, 0].clamp(min=0).sqrt()


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, weight, bias, layer):
        module = layer.module
        ctx.layer = layer
        ctx.save_for_backward(inputs, weight)
        return functional.conv2d(inputs, weight, bias, module.stride, module.padding,
                                 module.dilation, module.groups)  # fmt: skip

    @staticmethod
    def backward(ctx, gradient):
        inputs, weight = ctx.saved_tensors
        layer, module = ctx.layer, ctx.layer.module
        gradient = layer.keep_images(gradient)
        rows = layer.keep_rows(gradient, inputs)
        settings = (module.stride, module.padding, module.dilation)
        layer.input_gradient = ctx.needs_input_grad[0]
        down = None
        if layer.input_gradient:
            down = nn.grad.conv2d_input(inputs.shape, weight, gradient, *settings, module.groups)
        up = nn.grad.conv2d_weight(inputs, weight.shape, rows, *settings, module.groups)
        bias = gradient.sum((0, 2, 3)) if module.bias is not None else None
        return down, up, bias, None


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, weight, bias, layer):
        ctx.layer = layer
        ctx.save_for_backward(inputs, weight)
        return functional.linear(inputs, weight, bias)

    @staticmethod
    def backward(ctx, gradient):
        inputs, weight = ctx.saved_tensors
        layer = ctx.layer
        gradient = layer.keep_images(gradient)
        rows = layer.keep_rows(gradient, inputs)
        layer.input_gradient = ctx.needs_input_grad[0]
        down = gradient @ weight if layer.input_gradient else None
        up = rows.flatten(0, -2).T @ inputs.flatten(0, -2)
        bias = gradient.flatten(0, -2).sum(0) if layer.module.bias is not None else None
        return down, up, bias, None


def sampled_layers(model: nn.Module) -> list[SampledLayer]:
    """Layers of a model that can be sampled, in the order of ``model.modules()``.

    Raises
    ------
    ValueError
        naming a convolution that pads with anything but zeros, and if there is no layer.
    """
    layers = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            if module.padding_mode != "zeros" or isinstance(module.padding, str):
                raise ValueError(f"layer {name}: padding must be zeros, given as numbers")
            layers.append(SampledLayer(name, module))
        elif isinstance(module, nn.Linear):
            layers.append(SampledLayer(name, module))
    if not layers:
        raise ValueError("the model has no convolution and no linear layer to sample")
    return layers


@contextmanager
def sampling(layers: list[SampledLayer]):
    """Within it, the layers' modules compute as ever and go back through :class:`SampledLayer`.

    Gives a list of the layers in the order in which they were executed.
    """
    executed = []

    def patched(layer, function):
        def forward(inputs):
            executed.append(layer)
            return function.apply(inputs, layer.module.weight, layer.module.bias, layer)

        return forward

    for layer in layers:
        convolution = isinstance(layer.module, nn.Conv2d)
        layer.module.forward = patched(layer, _Convolution if convolution else _Linear)
    try:
        yield executed
    finally:
        for layer in layers:
            del layer.module.forward
