"""A network with its images, compiled, and everything the accelerator must store."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

import compiler
from compiler.inference.graph import compile_graph
from golden.inference.graph import GraphNetwork
from golden.inference.network import Network, StageResult, forward_stage
from hw.config import AdaGPConfig

__all__ = ["FILL", "Workload", "prepare", "prepare_graph", "small_workload"]

FILL = 0xA5
"""Every byte of the memory window that is not loaded; a byte that is not written stays so."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Workload:
    """A compiled network and its expected results.

    Members
    -------
    name : for reports
    program : :class:`compiler.CompiledProgram`
    network : :class:`golden.inference.network.Network`, or
        :class:`golden.inference.graph.GraphNetwork`
    image : bytes of the memory window before the run
    expected : stored output of every stage, codes (N, H, W, C)
    flags : union of :class:`golden.arithmetic.dot_product.Flags`
    """

    name: str
    config: AdaGPConfig
    program: compiler.CompiledProgram
    network: Network | GraphNetwork
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


def prepare(
    name: str,
    model: nn.Sequential,
    config: AdaGPConfig,
    images: np.ndarray,
    *,
    placement=None,
    calibration: np.ndarray | None = None,
    input_bits: np.ndarray | None = None,
    bits: list | None = None,
) -> Workload:
    """Compile ``model`` for ``config`` and compute what it must store.

    Parameters
    ----------
    images : float (N, H, W, C), or (N, F) for a network that begins with a linear layer
    placement : see :func:`compiler.compile`
    calibration : images that integer scales are chosen from; by default ``images``
    input_bits : operand codes (N, H, W, C) to use instead of ``images``
    bits : per stage None or (weights_bits, bias_bits) that replace the model's numbers
    """
    images = np.asarray(images, np.float32)
    shape = images.shape if images.ndim == 2 else tuple(images.shape[i] for i in (0, 3, 1, 2))
    images = images.reshape(len(images), 1, 1, -1) if images.ndim == 2 else images
    network = Network.from_torch(
        model,
        input_shape=shape[1:],
        rows=config.rows,
        operand_format=config.operand_format,
        calibration=images if calibration is None else calibration,
    )
    parameters = list(network.parameters)
    for index, replacement in enumerate(bits or ()):
        if replacement is not None:
            parameters[index] = _replace(parameters[index], *replacement)
    # With a float format the compiler rounds the weights itself, so that this is tested as well.
    given = parameters if bits is not None or not network.operand_format.is_float else None
    program = compiler.compile(model, config, shape, placement=placement, parameters=given)
    x = network.encode_input(images) if input_bits is None else input_bits
    codes = x.astype(program.input.dtype)
    expected, flags = [], 0
    for stage, numbers, info in zip(network.stages, parameters, program.stages, strict=True):
        results = [
            forward_stage(network.operand_format, stage, numbers, x[first:last], rows=rows)
            for first, last, rows in info.rows
        ]
        x = np.concatenate([result.output for result in results])
        flags |= _union(results)
        expected.append(x)
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
        flags=flags,
    )


def prepare_graph(name: str, model: nn.Module, config: AdaGPConfig, images: np.ndarray) -> Workload:
    """Compile ``model`` as a graph for float ``images`` (N, H, W, C), and compute what it must
    store: every map has a place of its own. All steps must write one map of a layer."""
    images = np.asarray(images, np.float32)
    shape = tuple(images.shape[i] for i in (0, 3, 1, 2))
    network = GraphNetwork(
        model,
        input_shape=shape[1:],
        rows=config.rows,
        columns=config.columns,
        operand_format=config.operand_format,
    )
    program = compile_graph(model, config, shape, reuse=False)
    codes = network.encode_input(images)
    done = network.forward(codes, training=False)
    flags = int(np.bitwise_or.reduce(list(done.flags.values())))
    return Workload(
        name=name,
        config=config,
        program=program,
        network=network,
        image=bytes(program.memory(codes.astype(program.input.dtype), fill=FILL)),
        expected=[
            done.outputs[stage.output].astype(program.tensors[stage.output].dtype)
            for stage in program.stages
        ],
        flags=flags,
    )


def _replace(parameters, weights_bits, bias_bits):
    return replace(
        parameters,
        weights_bits=np.asarray(weights_bits).reshape(parameters.weights_bits.shape),
        bias_bits=bias_bits,
    )


def _union(results: list[StageResult]) -> int:
    flags = 0
    for result in results:
        flags |= result.flags
    return flags


def small_workload(config: AdaGPConfig, seed: int) -> Workload:
    """Two convolutions and a pooling on two images, which keep both cores of `max` at work."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 5, 3, padding=1)
    )
    images = np.random.default_rng(seed).standard_normal((2, 6, 6, 3))
    return prepare("small", model, config, images)
