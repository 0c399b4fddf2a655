"""The numbers of fused products: weights and biases as codes, and the scale."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from compiler.errors import CompileError
from compiler.frontend.layer import Layer
from compiler.tensors.encoding import codes_of, storage
from hw.config import AdaGPConfig
from hw.formats import FLOAT32

from .fused_product import FusedProduct
from .fusion import FUSED

__all__ = ["Numbers", "with_numbers"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Numbers:
    """Weights (KH, KW, CI, CO) as operand codes, biases (CO,) as 32-bit numbers, or None."""

    weights: np.ndarray
    bias: np.ndarray | None


def with_numbers(
    layers: Sequence[Layer], config: AdaGPConfig, given: Sequence[Any] | None
) -> tuple[list[Layer], dict[str, Numbers]]:
    """``layers`` with the scales, and the numbers of the fused products by the layer's name.

    Parameters
    ----------
    layers : of :func:`compiler.inference.fusion.fuse`
    given : ``parameters`` of :func:`compiler.compile`

    Raises
    ------
    CompileError
        for parameters that are missing or do not fit.
    """
    fused = [layer for layer in layers if layer.kind == FUSED]
    names = [" + ".join(layer.options["product"].layers) for layer in fused]
    if given is None and not config.format.is_float:
        raise CompileError(
            f"format {config.operand_format} needs parameters, one entry for each product: "
            f"{'; '.join(names)}"
        )
    if given is not None and len(given) != len(fused):
        raise CompileError(
            f"parameters must have one entry for each of the {len(fused)} products "
            f"({'; '.join(names)}), not {len(given)}"
        )
    found: dict[str, Numbers] = {}
    scales: dict[str, int] = {}
    for number, layer in enumerate(fused):
        product: FusedProduct = layer.options["product"]
        if given is None:
            found[layer.name] = _of_module(layer, product, config)
            scales[layer.name] = product.scale
        else:
            numbers, scale = _given(product, given[number], config, names[number])
            found[layer.name], scales[layer.name] = numbers, scale
    changed = [
        replace(layer, options={"product": _changed(layer, found, scales)})
        if layer.kind == FUSED
        else layer
        for layer in layers
    ]
    return changed, found


def _changed(layer: Layer, found: dict[str, Numbers], scales: dict[str, int]) -> FusedProduct:
    product: FusedProduct = layer.options["product"]
    bias = found[layer.name].bias is not None
    return replace(product, scale=scales[layer.name], bias=bias)


def _dense(weights: np.ndarray, product: FusedProduct) -> np.ndarray:
    """Weights (KH, KW, CI, CO) of those in torch's order, of any shape."""
    shaped = weights.reshape(product.outputs, product.inputs, *product.kernel)
    return np.ascontiguousarray(shaped.transpose(2, 3, 1, 0))


def _of_module(layer: Layer, product: FusedProduct, config: AdaGPConfig) -> Numbers:
    """Those of the torch module: weights rounded to operands, the bias in float32."""
    if layer.module is None:
        weights, bias = np.eye(product.outputs), None
    else:
        module: Any = layer.module
        weights = module.weight.detach().double().numpy()
        bias = None if module.bias is None else module.bias.detach().double().numpy()
    codes = _dense(codes_of(config.format, weights), product)
    return Numbers(weights=codes, bias=None if bias is None else codes_of(FLOAT32, bias))


def _given(
    product: FusedProduct, entry: Any, config: AdaGPConfig, label: str
) -> tuple[Numbers, int]:
    """Numbers and scale of an entry of ``parameters``."""
    get = entry.get if isinstance(entry, dict) else lambda name: getattr(entry, name, None)
    weights, bias, scale = (get(name) for name in ("weights_bits", "bias_bits", "scale_field"))
    if weights is None or scale is None:
        raise CompileError(f"layer {label}: weights_bits or scale_field is missing")
    shape = (product.outputs, product.inputs, *product.kernel)
    for good, text in (
        (np.size(weights) == np.prod(shape), f"weights_bits must have shape {shape}"),
        (bias is None or np.shape(bias) == shape[:1], f"bias_bits must have shape {shape[:1]}"),
        (0 <= int(scale) < 1 << 32, "scale_field must have 32 bits"),
    ):
        if not good:
            raise CompileError(f"layer {label}: {text}")
    codes = np.asarray(weights).reshape(shape).astype(storage(config.format.width))
    bits = None if bias is None else np.asarray(bias).astype(np.uint32)
    return Numbers(weights=_dense(codes, product), bias=bits), int(scale)
