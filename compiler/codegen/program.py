"""A compiled program: commands, DRAM layout and statistics; saved in one file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from compiler.tensors.host_input import each_input, token_codes
from compiler.tensors.tensor import Tensor
from hw.config import AdaGPConfig
from hw.isa.encoding import Opcode
from hw.isa.execution import dispatched

from .binary import program_file
from .binary.command_bytes import Decoded
from .binary.program_file import ProgramError, SavedProgram
from .cost import Fields

if TYPE_CHECKING:
    from compiler.frontend.torch_graph import Layer

__all__ = [
    "CompiledProgram",
    "LayerInfo",
    "ProgramError",
    "SemaphoreNames",
    "StageInfo",
    "executed_commands",
]

#: What the file has in arrays of their own.
_ARRAYS = ("config", "commands", "contents")


@dataclass(frozen=True, kw_only=True)
class SemaphoreNames:
    """What semaphores mean in a stretch of a command stream.

    Members
    -------
    first : the command with which it begins; it ends where the next one begins
    names : number -> name, such as ``c0.load->matmul``
    """

    first: int
    names: dict[int, str]


@dataclass(frozen=True, kw_only=True)
class StageInfo:
    """What became of a stage: a fused product, or a step of another layer.

    Members
    -------
    index, name : position and name
    layers : the modules in it
    output : name of its output tensor
    macs : multiply-accumulates of the layer
    vector_cycles : vectors that pass through an array, i.e. cycles if nothing ever waits
    efficiency : ``macs`` over PEs times vector cycles: what is left when channels fill neither
        rows nor columns and tiles overlap
    runs : dictionaries: core, its rows and columns, images (begin, end), and how it was cut. A
        stage's result depends on ``rows``, in which K tiles are counted.
    """

    index: int
    name: str
    layers: list[str]
    output: str
    macs: int
    vector_cycles: int
    efficiency: float
    runs: list[dict[str, Any]]

    @property
    def rows(self) -> list[tuple[int, int, int]]:
        """[(first image, last image + 1, rows of the array)], in order of images."""
        return sorted((*run["images"], run["rows"]) for run in self.runs)


@dataclass(frozen=True, kw_only=True)
class LayerInfo:
    """What a program says of a layer.

    Members
    -------
    tokens, padding : of an input of tokens: how many there are, and which is none of them
    name, kind, inputs, shape, flat, sequence : as in :class:`compiler.frontend.torch_graph.Layer`
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    shape: tuple[int, int, int]
    flat: bool
    sequence: bool = False
    tokens: int | None = None
    padding: int | None = None

    @classmethod
    def of(cls, layer: "Layer") -> "LayerInfo":
        """That of a :class:`compiler.frontend.torch_graph.Layer`."""
        return cls(name=layer.name, kind=layer.kind, inputs=tuple(layer.inputs),
                   shape=layer.shape, flat=layer.flat, sequence=layer.sequence,
                   tokens=layer.options.get("tokens"),
                   padding=layer.options.get("padding_token"))  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CompiledProgram:
    """Everything that a host needs to run a network.

    Members
    -------
    config : the configuration it is for
    commands : the command stream, which lies at offset 0 of the memory window
    tensors : name -> :class:`~compiler.tensors.tensor.Tensor`: "input", maps by the names of their
        layers, "<layer>.weight" (KH, KW, CI, CO) of fused products and, for every core that needs
        them, "<layer>.bias.core<j>" (1, 1, column tiles, columns); other parameters
    contents : name -> bytes of the tensors that are loaded with the program
    memory_size : bytes of the memory window
    stages : one :class:`StageInfo` per stage
    estimated_cycles : from start to interrupt, according to :mod:`compiler.codegen.cost`
    semaphores : list of :class:`SemaphoreNames`
    inputs : :class:`LayerInfo` of each input, its name that of a tensor; a single one is "input"
    results : likewise of each output, in the order in which the network returns them
    """

    config: AdaGPConfig
    commands: bytes
    tensors: dict[str, Tensor]
    contents: dict[str, bytes]
    memory_size: int
    stages: list[StageInfo]
    estimated_cycles: int
    semaphores: list[SemaphoreNames]
    inputs: list[LayerInfo]
    results: list[LayerInfo]

    @property
    def input(self) -> Tensor:
        """The tensor of the first input."""
        return self.tensors[self.inputs[0].name]

    @property
    def outputs(self) -> list[Tensor]:
        """The output tensors of all stages, in order."""
        return [self.tensors[stage.output] for stage in self.stages]

    @property
    def command_list(self) -> Decoded:
        """Decoded commands, (opcode, fields) each; some thousand of them are in memory."""
        return Decoded(self.commands)

    def image(self) -> bytes:
        """Bytes to load at the start of the memory window: the program and the weights."""
        end = max((self.tensors[n].offset + len(d) for n, d in self.contents.items()), default=0)
        image = bytearray(max(end, len(self.commands)))
        image[: len(self.commands)] = self.commands
        for name, data in self.contents.items():
            offset = self.tensors[name].offset
            image[offset : offset + len(data)] = data
        return bytes(image)

    def memory(self, values: Any, fill: int = 0) -> bytearray:
        """The whole window with the network's input in it; ``bytearray``.

        Parameters
        ----------
        values : array
            see :meth:`Tensor.pack`; integers (N, T) where the network reads tokens; of a network
            with several inputs a list of these
        fill : what the rest of the window holds

        Raises
        ------
        ValueError
            for another number of inputs, or values that are not of their shapes
        """
        memory = bytearray([fill]) * self.memory_size
        image = self.image()
        memory[: len(image)] = image
        for layer, given in zip(self.inputs, each_input(values, self.inputs), strict=True):
            tensor, array = self.tensors[layer.name], np.asarray(given)
            if layer.tokens is not None and array.ndim != 4:
                array = token_codes(tensor, array, layer)
            data = tensor.pack(array)
            memory[tensor.offset : tensor.offset + len(data)] = data
        return memory

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to one file."""
        contents = {f"contents/{name}": data for name, data in self.contents.items()}
        program_file.write(
            path,
            SavedProgram(
                kind="inference",
                config=self.config,
                fields=program_file.plain(self, leave_out=_ARRAYS),
                arrays={"commands": self.commands, **contents},
            ),
        )

    @classmethod
    def load(
        cls, path: str | PathLike[str], config: AdaGPConfig | None = None
    ) -> "CompiledProgram":
        """Read what :meth:`save` wrote; see :func:`compiler.codegen.binary.program_file.read`."""
        saved = program_file.read(path, "inference", config)
        with program_file.reading(path):
            return cls(
                config=saved.config,
                commands=saved.arrays["commands"],
                contents={
                    name.removeprefix("contents/"): data
                    for name, data in saved.arrays.items()
                    if name.startswith("contents/")
                },
                **program_file.rebuild_fields(cls, saved.fields),
            )


def executed_commands(
    commands: Sequence[tuple[Opcode, Fields]], offset: int = 0
) -> Iterator[tuple[Opcode, Fields]]:
    """Decoded commands that lie at ``offset`` one by one, those in loops as often as they are
    executed, with the address that LOAD and STORE have then; without REPEAT."""
    for place, counters in dispatched(commands, offset):
        opcode, fields = commands[place]
        if opcode in (Opcode.LOAD, Opcode.STORE):
            yield opcode, fields | {"dram_address": counters.address(fields)}
        elif opcode not in (Opcode.REPEAT, Opcode.ROWS):
            yield opcode, fields
