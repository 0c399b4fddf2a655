"""Programs of one convolution's products, forward and backward, to check and to measure them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from compiler.codegen.attempts import write_program
from compiler.codegen.binary.command_bytes import encode_commands
from compiler.codegen.core_builder import CoreProgram
from compiler.kernels.convolution.conv_forward import forward
from compiler.kernels.convolution.conv_geometry import Convolution
from compiler.kernels.convolution.conv_input_gradient import input_gradient
from compiler.kernels.convolution.conv_weight_gradient import weight_gradient
from compiler.kernels.convolution.part_statistics import statistics_shape
from compiler.tensors.column_tiles import ColumnTiles
from compiler.tensors.intervals import round_up
from compiler.tensors.tensor import Tensor
from golden.layers.conv_general import output_map
from hw.config import AdaGPConfig

__all__ = ["ConvolutionProgram"]

#: Written by the program, by part.
_RESULTS = {
    "y": ("y",), "cells": ("cells",), "statistics": ("statistics",), "dx": ("dx",),
    "dw": ("dw", "db"),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ConvolutionProgram:
    """A convolution's output, input gradient, weight and bias gradient on core 0.

    Members
    -------
    shape : (N, H, W, CI) of the input
    outputs : CO
    kernel, stride, padding, dilation : (vertical, horizontal)
    groups : of channels; weights and their gradient are dense
    parts : which products, of "y", "dx" and "dw" (which brings "db"); with "y" also "cells", if
        its map is reorganized on the way, and "statistics", if those of its parts are taken
    map_size : S, of the cells
    loops : jobs that come again are written once
    """

    config: AdaGPConfig
    shape: tuple
    outputs: int
    kernel: tuple
    stride: tuple = (1, 1)
    padding: tuple = (0, 0)
    dilation: tuple = (1, 1)
    groups: int = 1
    parts: tuple = ("y", "dx", "dw")
    map_size: int = 4
    loops: bool = False

    @property
    def core(self):
        return self.config.cores[0]

    @cached_property
    def map(self):
        """(HO, WO)."""
        return output_map(
            self.shape[1:3],
            kernel=self.kernel,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
        )

    @property
    def tiles(self):
        """Of the output channels, each with a row of biases."""
        return ColumnTiles.of(self.outputs, self.core, self.groups)

    @cached_property
    def tensors(self):
        """name -> Tensor, behind the program's room."""
        images, inputs, core = self.shape[0], self.shape[3], self.core
        output = (images, *self.map, self.outputs)
        weights = (*self.kernel, inputs, self.outputs)
        bias = (1, 1, self.tiles.count, core.columns)
        cells = (1, self.map_size, self.map_size, self.outputs)
        granule = max(1, self.config.granule_bytes * 8 // core.operand_width)
        operands, wide = self.config.operand_format, "float32"
        result, offset = {}, self.program_bytes
        for name, shape, kind, unit in (
            ("x", self.shape, operands, granule),
            ("y", output, operands, granule),
            ("dx", self.shape, operands, granule),
            ("dy", output, operands, granule),
            ("weights", weights, operands, core.rows),
            ("bias", bias, wide, core.rows),
            ("dw", weights, wide, core.rows),
            ("db", bias, wide, core.rows),
            ("cells", cells, wide, core.rows),
            ("statistics", statistics_shape(output), wide, core.rows),
        ):
            pitch = round_up(shape[3], unit)
            result[name] = Tensor.dense(name, shape, kind=kind, pitch=pitch, offset=offset)
            offset = round_up(offset + result[name].size, 64)
        return result

    @property
    def program_bytes(self):
        """Room for the program."""
        return 1 << 17

    @cached_property
    def layer(self):
        """What the compiler knows of the convolution."""
        return Convolution(
            name="convolution",
            **{name: self.tensors[name] for name in ("x", "y", "weights", "bias")},
            **{name: getattr(self, name) for name in ("stride", "padding", "dilation", "groups")},
        )

    @cached_property
    def commands(self):
        """The linked commands."""
        return write_program(self.config, self._write, loops=bool(self.loops))

    def _write(self, recorder):
        program = CoreProgram(self.config, self.core, recorder)
        tensors = self.tensors
        if "y" in self.parts:
            more = {name: tensors[name] for name in ("cells", "statistics") if name in self.parts}
            forward(program, self.layer, **more)
        if "dx" in self.parts:
            input_gradient(program, self.layer, tensors["dy"], tensors["dx"])
        if "dw" in self.parts:
            weight_gradient(program, self.layer, tensors["dy"], tensors["dw"], tensors["db"])
        return recorder.link()

    @cached_property
    def program(self):
        """The encoded commands."""
        result = encode_commands(self.commands)
        if len(result) > self.program_bytes:
            raise ValueError(f"the program has {len(result)} bytes")
        return result

    def image(self, x, dy, weights, bias):
        """The memory window: the program, operand codes x (N, H, W, CI), dy (N, HO, WO, CO) and
        weights (CO, CI, KH, KW) as torch shapes them, and float32 bits bias (CO,)."""
        last = list(self.tensors.values())[-1]
        memory = bytearray(b"\xa5" * round_up(last.offset + last.size, 64))
        memory[: len(self.program)] = self.program
        full = np.zeros(self.tensors["bias"].shape, np.uint32)
        for tile in range(self.tiles.count):
            begin, end = self.tiles.range(tile)
            full[0, 0, tile, : end - begin] = bias[begin:end]
        values = {"x": x, "dy": dy, "weights": weights.transpose(2, 3, 1, 0), "bias": full}
        for name, codes in values.items():
            tensor = self.tensors[name]
            data = tensor.pack(codes.astype(tensor.dtype))
            memory[tensor.offset : tensor.offset + len(data)] = data
        return bytes(memory)

    @property
    def unwritten(self):
        """(offset, size) of what the program writes."""
        names = [name for part in self.parts for name in _RESULTS[part]]
        return [(self.tensors[name].offset, self.tensors[name].size) for name in names]

    def results(self, memory):
        """name -> codes, shaped as golden's."""
        names = [name for part in self.parts for name in _RESULTS[part]]
        result = {name: self.tensors[name].unpack(memory) for name in names}
        if "dw" in result:
            result["dw"] = result["dw"].transpose(3, 2, 0, 1)
            rows = result["db"][0, 0, :, : self.tiles.width]
            result["db"] = rows.reshape(-1)[: self.outputs]
        return result
