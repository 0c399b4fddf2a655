"""Tensors by name, for steps that are written before anything has its place."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from compiler.kernels.convolution.conv_geometry import Convolution
from compiler.tensors.intervals import Pair
from compiler.tensors.tensor import Tensor

__all__ = ["NamedConvolution", "TensorReference", "resolve"]


@dataclass(frozen=True, kw_only=True)
class NamedConvolution:
    """A :class:`~compiler.kernels.convolution.conv_geometry.Convolution` with the names of its
    tensors."""

    name: str
    x: str
    y: str
    weights: str
    bias: str | None
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    groups: int = 1

    def of(self, tensors: Mapping[str, Tensor]) -> Convolution:
        """The convolution between ``tensors`` (by name)."""
        return Convolution(
            name=self.name,
            x=tensors[self.x],
            y=tensors[self.y],
            weights=tensors[self.weights],
            bias=None if self.bias is None else tensors[self.bias],
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
        )


#: A tensor's name, a product's names, what makes an argument of the tensors by name, or nothing.
TensorReference = str | NamedConvolution | Callable[[Mapping[str, Tensor]], object] | None


def resolve(reference: TensorReference, tensors: Mapping[str, Tensor]) -> object:
    """What a step's function is given for a reference, with ``tensors`` by name."""
    if reference is None:
        return None
    if isinstance(reference, str):
        return tensors[reference]
    if isinstance(reference, NamedConvolution):
        return reference.of(tensors)
    return reference(tensors)
