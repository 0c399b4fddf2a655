"""Networks that run forward on an accelerator."""

import copy
from typing import Any

import numpy as np
import torch

import compiler
from compiler.codegen.program import CompiledProgram, LayerInfo
from compiler.tensors.tensor import Tensor

from .connection import Connection, Window
from .data import as_images, input_shape

__all__ = ["Inference"]


class Inference:
    """A network with the weights that it has now, to be called with images.

    For every number of images there is a program of its own, compiled when it is first needed. It
    is a context manager: at the end the accelerator's memory is given back.

    Parameters
    ----------
    accelerator : Connection
    model : see docs/compiler.md for the layers; batch normalisation uses running statistics
    """

    def __init__(self, accelerator: Connection, model: torch.nn.Module) -> None:
        self.accelerator = accelerator
        self._model = copy.deepcopy(model).eval()
        self._programs: dict[int, tuple[CompiledProgram, Window]] = {}
        self._shape: tuple[int, ...] | None = None
        #: Cycles of all batches so far; None where the device counts none.
        self.cycles: int | None = 0 if accelerator.device.counts_cycles else None

    def __enter__(self) -> "Inference":
        return self

    def __exit__(self, *_: object) -> None:
        for _program, window in self._programs.values():
            self.accelerator.free(window)
        self._programs = {}

    def __call__(self, images: Any) -> np.ndarray:
        """The output of a network that has one, see :meth:`outputs`; a ValueError for another."""
        found = self.outputs(images)
        if len(found) != 1:
            raise ValueError(f"the network has {len(found)} outputs; outputs(images) has them all")
        return found[0]

    def outputs(self, images: Any) -> list[np.ndarray]:
        """Each output as torch returns it, vectors (N, features), sequences (N, T, C) or maps
        (N, C, H, W), of images (N, C, H, W) or vectors (N, features); float32.

        Raises
        ------
        CompileError
            naming the layer that cannot be compiled
        ValueError
            for images of another shape, or numbers that are not finite
        AcceleratorError
        """
        values = as_images(images, self._shape)
        self._shape = input_shape(values)
        program, window = self._program(len(values))
        tensor = program.input
        shaped = values.reshape(tensor.shape)
        if not np.isfinite(shaped).all():
            place = tuple(int(index) for index in np.argwhere(~np.isfinite(values))[0])
            raise ValueError(f"images{list(place)} is {values[place]}, which is not finite")
        accelerator = self.accelerator
        accelerator.put(window, tensor.offset, tensor.pack(shaped))
        interrupt = accelerator.run(window, program=0, program_size=len(program.commands))
        if self.cycles is not None:
            self.cycles += interrupt.counters["CYCLES"]
        return [self._read(window, program.tensors[own.name], own) for own in program.results]

    def _read(self, window: Window, tensor: Tensor, layer: LayerInfo) -> np.ndarray:
        """An output as torch returns it, float32 or what the last layer stores."""
        output = tensor.values(self.accelerator.read(window, tensor)).astype(np.float32)
        if layer.sequence:
            return output[:, :, 0]
        output = np.moveaxis(output, 3, 1)
        return output.reshape(len(output), -1) if layer.flat else output

    def _program(self, images: int) -> tuple[CompiledProgram, Window]:
        if images not in self._programs:
            accelerator, shape = self.accelerator, self._shape
            assert shape is not None
            program = compiler.compile(self._model, accelerator.config, (images, *shape))
            window = accelerator.window(program.memory_size)
            accelerator.put(window, 0, program.image())
            self._programs[images] = program, window
        return self._programs[images]
