"""A network with its images, compiled, and everything the accelerator must store."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

import compiler
from golden.inference.network import Network
from hw.config import AdaGPConfig

__all__ = ["FILL", "Workload", "golden_network", "prepare", "small_workload"]

FILL = 0xA5
"""Every byte of the memory window that is not loaded; a byte that is not written stays so."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """A compiled network and its expected results.

    Members
    -------
    name : for reports
    program : :class:`compiler.CompiledProgram`
    network : :class:`golden.inference.network.Network`
    image : bytes of the memory window before the run
    expected : stored output of every stage of the program, codes (N, H, W, C)
    flags : union of :class:`golden.arithmetic.dot_product.Flags`
    """

    name: str
    config: AdaGPConfig
    program: compiler.CompiledProgram
    network: Network
    image: bytes
    expected: list
    flags: int

    @property
    def macs(self) -> int:
        """Multiply-accumulates that the layers define."""
        return sum(stage.macs for stage in self.program.stages)

    def logits(self, bits) -> np.ndarray:
        """Real values of the last stage's codes, shaped as torch's result."""
        return self.network.decode_logits(bits)


def golden_network(model: nn.Module, config: AdaGPConfig, shape, calibration=None) -> Network:
    """Golden for ``model`` as it is compiled for ``config``; ``shape`` is that of an input."""
    return Network(
        model,
        input_shape=shape,
        rows=config.rows,
        columns=config.columns,
        granule=config.granule_operands,
        operand_format=config.operand_format,
        calibration=calibration,
        vector=config.training,
        window=min(core.accumulator_depth for core in config.cores),
    )


def prepare(
    name: str,
    model: nn.Module,
    config: AdaGPConfig,
    images: np.ndarray,
    *,
    placement=None,
    calibration: np.ndarray | None = None,
    input_bits: np.ndarray | None = None,
    bits: list | None = None,
) -> Workload:
    """Compile ``model`` for ``config`` and compute what it must store: every map has a place of its
    own. All steps must write one map of a layer.

    Parameters
    ----------
    images : float (N, H, W, C), or (N, F) for a network that begins with a linear layer
    placement : see :func:`compiler.compile`
    calibration : images that integer scales are chosen from; by default ``images``
    input_bits : operand codes (N, H, W, C) to use instead of ``images``
    bits : per fused product None or (weights_bits, bias_bits) that replace the model's numbers
    """
    images = np.asarray(images, np.float32)
    shape = images.shape if images.ndim == 2 else tuple(images.shape[i] for i in (0, 3, 1, 2))
    images = images.reshape(len(images), 1, 1, -1) if images.ndim == 2 else images
    network = golden_network(
        model, config, shape[1:], images if calibration is None else calibration
    )
    for product, replacement in zip(network.parameters, bits or (), strict=False):
        if replacement is not None:
            network.parameters[product] = _replace(network.parameters[product], *replacement)
    # With a float format the compiler rounds the weights itself, so that this is tested as well.
    given = None
    if bits is not None or not network.format.is_float:
        given = list(network.parameters.values())
    program = compiler.compile(
        model, config, shape, placement=placement, parameters=given, reuse=False
    )
    x = network.encode_input(images) if input_bits is None else input_bits
    codes = x.astype(program.input.dtype)
    rows = {stage.output: stage.rows for stage in program.stages}
    done = network.forward(codes, rows=rows)
    expected = [done.outputs[stage.output] for stage in program.stages]
    for tensor, value in zip(program.outputs, expected, strict=True):
        if tensor.shape != value.shape:
            raise ValueError(f"{tensor.name} has shape {tensor.shape}, golden {value.shape}")
    return Workload(
        name=name,
        config=config,
        program=program,
        network=network,
        image=bytes(program.memory(codes, fill=FILL)),
        expected=[v.astype(t.dtype) for t, v in zip(program.outputs, expected, strict=True)],
        flags=int(np.bitwise_or.reduce(list(done.flags.values()))),
    )


def _replace(parameters, weights_bits, bias_bits):
    return replace(
        parameters,
        weights_bits=np.asarray(weights_bits).reshape(parameters.weights_bits.shape),
        bias_bits=bias_bits,
    )


def small_workload(config: AdaGPConfig, seed: int) -> Workload:
    """Two convolutions and a pooling on two images, which keep both cores of `max` at work."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 5, 3, padding=1)
    )
    images = np.random.default_rng(seed).standard_normal((2, 6, 6, 3))
    return prepare("small", model, config, images)
