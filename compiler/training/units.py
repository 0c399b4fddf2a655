"""Which steps may run beside each other."""

from collections.abc import Callable

from compiler.kernels.convolution.conv_forward import forward
from compiler.kernels.convolution.conv_input_gradient import input_gradient
from compiler.kernels.convolution.conv_weight_gradient import weight_gradient
from compiler.kernels.normalization.batch_norm import batch_norm
from compiler.kernels.normalization.batch_norm_backward import batch_norm_backward
from compiler.kernels.updates.update import update

from .step import ARRAY, VECTOR

__all__ = ["UNITS", "byte_cycles", "unit_of"]

#: Those of the predictor's steps, by direction.
UNITS = {
    "reorganize": VECTOR, "predict": ARRAY, "gradient sums": VECTOR, "error": VECTOR,
    "predicted update": VECTOR,
}  # fmt: skip
#: Modules whose functions write LOAD, VECTOR and STORE alone.
_VECTOR = (
    "compiler.kernels.maps.",
    "compiler.kernels.normalization.batch_norm",
    "compiler.kernels.updates.update",
)
#: Cycles for every byte that a step reads or writes, estimated for VGG13; batch normalisation
#: backward goes through a map several times.
_BYTE_CYCLES, _PASS_BYTE_CYCLES, _NORM_BYTE_CYCLES = 0.15, 0.1, 0.29


def unit_of(function: Callable[..., object]) -> str:
    """:attr:`~compiler.training.step.Step.unit` of a step that a function writes."""
    if function in (forward, input_gradient, weight_gradient):
        return ARRAY
    return VECTOR if getattr(function, "__module__", "").startswith(_VECTOR) else ""


def byte_cycles(function: Callable[..., object]) -> float:
    """Cycles for every byte that a step reads or writes, roughly."""
    if function is batch_norm_backward:
        return _NORM_BYTE_CYCLES
    return _PASS_BYTE_CYCLES if function in (batch_norm, update) else _BYTE_CYCLES
