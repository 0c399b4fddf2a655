"""A compiled program: commands, DRAM layout and statistics; saved in one file."""

import dataclasses
import enum
import io
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from compiler.tensors.tensor import Tensor
from hw.config import AdaGPConfig
from hw.isa.encoding import COMMAND_BYTES, decode, encode

__all__ = [
    "CompiledProgram",
    "ProgramError",
    "Semaphore",
    "StageInfo",
    "decode_commands",
    "encode_commands",
]

_MAGIC = b"PK"
_FORMAT_VERSION = 2


class ProgramError(ValueError):
    """A file that holds no program; the text says what is wrong with it."""


@dataclass(frozen=True, kw_only=True)
class StageInfo:
    """What became of a stage.

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
    layers: list
    output: str
    macs: int
    vector_cycles: int
    efficiency: float
    runs: list

    @property
    def rows(self):
        """[(first image, last image + 1, rows of the array)], in order of images."""
        return sorted((*run["images"], run["rows"]) for run in self.runs)


@dataclass(frozen=True, kw_only=True)
class CompiledProgram:
    """Everything that a host needs to run a network.

    Members
    -------
    config : the configuration it is for
    commands : the command stream, which lies at offset 0 of the memory window
    tensors : name -> :class:`~compiler.tensors.tensor.Tensor`: "input", "stage<i>.output",
        "stage<i>.weights" (KH, KW, CI, CO) and, for every core that needs them,
        "stage<i>.bias.core<j>" (1, 1, column tiles, columns)
    contents : name -> bytes of the tensors that are loaded with the program
    memory_size : bytes of the memory window
    stages : one :class:`StageInfo` per stage
    estimated_cycles : from start to interrupt, according to :mod:`compiler.codegen.cost`
    """

    config: AdaGPConfig
    commands: bytes
    tensors: dict
    contents: dict
    memory_size: int
    stages: list
    estimated_cycles: int

    @property
    def input(self):
        """The input tensor."""
        return self.tensors["input"]

    @property
    def outputs(self):
        """The output tensors of all stages, in order."""
        return [self.tensors[stage.output] for stage in self.stages]

    @property
    def command_list(self):
        """Decoded commands, (opcode, fields) each."""
        return decode_commands(self.commands)

    def image(self):
        """Bytes to load at the start of the memory window: the program and the weights."""
        end = max((self.tensors[n].offset + len(d) for n, d in self.contents.items()), default=0)
        image = bytearray(max(end, len(self.commands)))
        image[: len(self.commands)] = self.commands
        for name, data in self.contents.items():
            offset = self.tensors[name].offset
            image[offset : offset + len(data)] = data
        return bytes(image)

    def memory(self, values, fill=0):
        """The whole window with ``values`` (see :meth:`Tensor.pack`) as input; ``bytearray``."""
        memory = bytearray([fill]) * self.memory_size
        image = self.image()
        memory[: len(image)] = image
        data = self.input.pack(values)
        memory[self.input.offset : self.input.offset + len(data)] = data
        return memory

    def save(self, path):
        """Write everything to one file."""
        meta = {
            "version": _FORMAT_VERSION,
            "config": self.config.as_dict(),
            "tensors": [dataclasses.asdict(tensor) for tensor in self.tensors.values()],
            "memory_size": self.memory_size,
            "stages": [dataclasses.asdict(stage) for stage in self.stages],
            "estimated_cycles": self.estimated_cycles,
        }
        arrays = {f"contents/{n}": np.frombuffer(d, np.uint8) for n, d in self.contents.items()}
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            meta=np.array(json.dumps(meta)),
            commands=np.frombuffer(self.commands, np.uint8),
            **arrays,
        )
        Path(path).write_bytes(buffer.getvalue())

    @classmethod
    def load(cls, path):
        """Read what :meth:`save` wrote. Raises :class:`ProgramError` or ``OSError``."""
        data = Path(path).read_bytes()
        if not is_container(data):
            raise ProgramError(f"{path} is not a saved program")
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            meta = json.loads(str(arrays["meta"]))
            if meta["version"] != _FORMAT_VERSION:
                raise ProgramError(
                    f"{path} has format version {meta['version']}, not {_FORMAT_VERSION}"
                )
            tensors = [
                Tensor(**{**entry, "shape": tuple(entry["shape"])}) for entry in meta["tensors"]
            ]
            return cls(
                config=AdaGPConfig(**meta["config"]),
                commands=arrays["commands"].tobytes(),
                tensors={tensor.name: tensor for tensor in tensors},
                contents={
                    name.removeprefix("contents/"): array.tobytes()
                    for name, array in arrays.items()
                    if name.startswith("contents/")
                },
                memory_size=meta["memory_size"],
                stages=[StageInfo(**entry) for entry in meta["stages"]],
                estimated_cycles=meta["estimated_cycles"],
            )
        except ProgramError:
            raise
        except Exception as error:
            raise ProgramError(f"{path} is damaged: {error}") from error


def is_container(data):
    """Whether ``data`` begins like a saved program rather than a raw command stream."""
    return data[: len(_MAGIC)] == _MAGIC


def decode_commands(data):
    """(opcode, fields) of every command in ``data``."""
    return [decode(data[i : i + COMMAND_BYTES]) for i in range(0, len(data), COMMAND_BYTES)]


def encode_commands(commands):
    """Bytes of a list of :class:`~compiler.codegen.cost.Command`."""
    return b"".join(
        encode(c.opcode, core=c.core, wait=c.wait, signal=c.signal, **c.fields) for c in commands
    )


class Semaphore(enum.IntEnum):
    """Semaphores of one core, counted from its first."""

    X_FULL = 0
    X_FREE = 1
    W_FULL = 2
    W_FREE = 3
    ACC_FULL = 4
    ACC_FREE = 5
    OUT_FULL = 6
    OUT_FREE = 7
    DONE = 8
    #: Counted at the core that waits: the other core has stored an input.
    INPUT = 9
