"""Tensors in a core's buffer, and VECTOR commands between them.

A map (N, H, W, C) lies pixel after pixel, each pixel in whole words of ``rows`` channels, as
operands or as float32 numbers. A vector of C numbers is a map of one pixel.
"""

from dataclasses import dataclass, replace

import numpy as np

from golden.vector import constant
from golden.vector_command import Carry, Factor, Operation, Source, Term, VectorMachine, defaults

__all__ = ["Coefficient", "Plan", "View"]

_LOOPS = ("i0", "i1", "i2")


@dataclass(frozen=True, kw_only=True)
class Coefficient:
    """The number in a coefficient register."""

    index: int


@dataclass(frozen=True, kw_only=True)
class View:
    """Pixels of a map in the buffer.

    Members
    -------
    address : word of the first pixel
    shape : (N, H, W, C)
    strides : words from an image, a row, a column to the next
    wide : float32 numbers, not operands
    """

    address: int
    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int]
    wide: bool

    def __getitem__(self, index):
        """Rows and columns of the map, as slices with steps."""
        shape, strides, address = list(self.shape), list(self.strides), self.address
        for axis, part in enumerate(index, start=1):
            lines = range(shape[axis])[part]
            address += lines.start * strides[axis] if len(lines) else 0
            shape[axis], strides[axis] = len(lines), strides[axis] * lines.step
        return replace(self, address=address, shape=tuple(shape), strides=tuple(strides))


class Plan:
    """Allocates words and collects commands.

    Parameters
    ----------
    fmt : golden operand format
    rows : operands of a buffer word
    """

    def __init__(self, fmt, rows):
        self.fmt, self.rows = fmt, rows
        self.words = 0
        self.commands = []
        self._contents = []

    def map(self, shape, *, wide=False, contents=None) -> View:
        """Room for a map; ``contents`` are its codes or float32 bits (N, H, W, C)."""
        width = -(-shape[3] // self.rows) * (32 // self.fmt.width if wide else 1)
        strides = (shape[1] * shape[2] * width, shape[2] * width, width)
        view = View(address=self.words, shape=tuple(shape), strides=strides, wide=wide)
        self.words += shape[0] * strides[0]
        if contents is not None:
            self._contents.append((view, np.reshape(contents, shape)))
        return view

    def vector(self, channels, contents=None) -> View:
        """Room for float32 numbers, one per channel."""
        return self.map((1, 1, 1, channels), wide=True, contents=contents)

    def machine(self, **options) -> VectorMachine:
        """Golden's engine with the contents in its buffer."""
        dtype = np.uint8 if self.fmt.width == 8 else np.uint16
        memory = np.zeros((self.words, self.rows), dtype)
        for view, values in self._contents:
            blocks = -(-view.shape[3] // self.rows)
            padded = np.zeros((*view.shape[:3], blocks * self.rows), "<u4" if view.wide else dtype)
            padded[..., : view.shape[3]] = values
            words = padded.view(dtype).reshape(-1, self.rows)
            memory[view.address : view.address + len(words)] = words
        return VectorMachine(fmt=self.fmt, memory=memory, **options)

    def read(self, memory, view: View) -> np.ndarray:
        """Codes or float32 bits (N, H, W, C) of a whole map in ``memory``."""
        words = memory[view.address : view.address + view.shape[0] * view.strides[0]]
        values = np.ascontiguousarray(words).reshape(*view.shape[:3], -1)
        values = values.view("<u4") if view.wide else values
        return values[..., : view.shape[3]]

    def emit(self, o: View, x, y=None, z=None, *, immediate=None, over=None, **fields):
        """One command. Operands are views, numbers or coefficient registers; a vector goes with
        every pixel.

        There is one immediate, which ``immediate`` and all numbers have to share. Loops are those
        of the view ``over``: ``o``, or ``x`` for a reduction, unless it is given. Returns ``o``.
        """
        loops = over or (x if fields.get("reduce") else o)
        counts = loops.shape[2::-1]
        values = defaults() | {f"{n}_count": c for n, c in zip(_LOOPS, counts, strict=True)}
        values |= {"cb_count": -(-o.shape[3] // self.rows), "channels": o.shape[3]}
        numbers = [] if immediate is None else [immediate]
        registers = []
        for name, operand in (("x", x), ("y", y), ("z", z), ("o", o)):
            if isinstance(operand, View):
                # A vector goes along with every pixel, whatever the strides of its one pixel.
                steps = [s if n > 1 else 0 for s, n in zip(operand.strides, operand.shape[:3])]
                if name != "o":
                    kind = Source.WIDE if operand.wide else Source.NARROW
                    values[f"{name}_source"] = kind
                    sizes = zip(operand.shape[:3], loops.shape[:3], strict=True)
                    if any(size not in (1, count) for size, count in sizes):
                        raise ValueError(f"{operand.shape} does not fit {loops.shape}")
                values[f"{name}_address"] = operand.address
                for loop, stride in zip(_LOOPS, reversed(steps), strict=True):
                    values[f"{name}_{loop}_stride"] = stride
            elif isinstance(operand, Coefficient):
                values[f"{name}_source"] = Source.COEFFICIENT
                registers.append(operand)
            else:
                values[f"{name}_source"] = Source.IMMEDIATE
                numbers += [] if operand is None else [operand]
        if len(set(numbers)) > 1 or len({register.index for register in registers}) > 1:
            raise ValueError(f"One command cannot hold {numbers} and {registers}")
        values["immediate"] = int(constant(numbers[0])) if numbers else 0
        values["coefficient"] = registers[0].index if registers else 0
        values["wide"] = int(o.wide)
        values |= {name: int(value) for name, value in fields.items()}
        self.commands.append(values)
        return o

    # What most commands are.

    def scale(self, o, x, factor, **options):
        """``x * factor``."""
        return self.emit(o, x, factor, factor=Factor.Y, **options)

    def scale_add(self, o, x, factor, addend, **options):
        """``x * factor + addend``."""
        return self.emit(o, x, factor, addend, factor=Factor.Y, carry=Carry.Z, add=1, **options)

    def add(self, o, x, y, *, subtract=False):
        """``x + y`` or ``x - y``."""
        return self.emit(o, x, y, term=Term.SUBTRACT if subtract else Term.ADD)

    def fill(self, o, value):
        """A number everywhere."""
        return self.emit(o, value)

    def divide(self, o, x, y):
        """``x / y``."""
        return self.emit(o, x, y, operation=Operation.DIVIDE)

    def root(self, o, x):
        """The square root of ``x``."""
        return self.emit(o, x, operation=Operation.ROOT)
