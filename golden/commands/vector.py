"""One command of the vector engine on the words of a buffer, bit for bit.

A buffer is an array (words, rows) of operand codes: a word holds one operand for each of ``rows``
channels. As float32, the same channels take ``32 // width`` consecutive words, number after number
from the least significant bits on. The numerics are those of
:class:`golden.arithmetic.float32_unit.VectorUnit`.
"""

import enum
from dataclasses import dataclass, field

import numpy as np

from golden.arithmetic.dot_product import decode, encode
from golden.arithmetic.float32 import relu
from golden.arithmetic.float32_unit import VectorUnit, constant, negate, power_of_two, widen
from golden.arithmetic.formats import FLOAT32, FloatFormat
from golden.arithmetic.sampling import sample

__all__ = [
    "Carry",
    "Condition",
    "Factor",
    "Operation",
    "Source",
    "Term",
    "VectorMachine",
    "Watch",
]

Operation = enum.IntEnum("Operation", "CHAIN DIVIDE ROOT EXPONENTIAL", start=0)
Source = enum.IntEnum("Source", "NARROW WIDE IMMEDIATE COEFFICIENT", start=0)
Term = enum.IntEnum("Term", "X ADD SUBTRACT IMMEDIATE", start=0)
Factor = enum.IntEnum("Factor", "ONE Y Z U", start=0)
Carry = enum.IntEnum("Carry", "Y Z", start=0)
Condition = enum.IntEnum("Condition", "ALWAYS GREATER POSITIVE EQUAL", start=0)
Watch = enum.IntEnum("Watch", "NONE FIRST MORE", start=0)

_ONE = constant(1.0)
_MINUS_ZERO = np.uint32(FLOAT32.sign_bit)


@dataclass(kw_only=True, eq=False)
class VectorMachine:
    """Executes commands.

    Members
    -------
    fmt : operand format
    memory : (words, rows) operand codes, changed by :meth:`run`
    coefficients : (8,) float32 bits
    sample_seed : of the random numbers of commands that sample
    guard : whether guarded commands heed what was noted
    noted : an infinity or NaN was found by a command that watches
    rejected : how often that happened, with the guard on
    flags : union of :class:`golden.arithmetic.dot_product.Flags` of everything executed
    """

    fmt: FloatFormat
    memory: np.ndarray
    coefficients: np.ndarray = field(default_factory=lambda: np.zeros(8, np.uint32))
    sample_seed: int = 0
    guard: bool = False
    noted: bool = False
    rejected: int = 0
    flags: int = 0

    @property
    def rows(self) -> int:
        return self.memory.shape[1]

    @property
    def chunks(self) -> int:
        """Words that the float32 numbers of one word's channels take."""
        return 32 // self.fmt.width

    def run(self, command: dict[str, int]) -> None:
        """Execute one command: all its fields by name, as docs/vector.md lists them.

        A command must not read a word that another of its steps writes.

        Raises
        ------
        ValueError
            for a zero count, an undefined code, a reduction with something behind the product, a
            division, root or exponential that watches, or a command that samples and is no chain,
            sums up, or has streams Y or Z.
        """
        _check(command)
        if command["guarded"] and self.guard and self.noted:
            return
        blocks = command["cb_count"]
        lanes = np.arange(blocks)[:, np.newaxis] * self.rows + np.arange(self.rows)
        active = (lanes < command["channels"])[:, np.newaxis]
        x, y, z = (self._operand(command, name) for name in "xyz")
        if command["watch"]:
            self._note(command["watch"], (decode(FLOAT32, y), active))

        unit = VectorUnit()
        if command["operation"] == Operation.CHAIN:
            result = self._chain(unit, command, x, y, z, active)
        elif command["operation"] == Operation.DIVIDE:
            result = _where(active, unit.divide, x, y)
        elif command["operation"] == Operation.ROOT:
            result = _where(active, unit.square_root, x)
        else:
            result = _where(active, unit.exponential, x)
        result = np.where(active, result, 0).astype(np.uint32)
        addresses = self._addresses(command, "o", self.chunks if command["wide"] else 1)
        if command["reduce"]:
            total = unit.sum(np.moveaxis(result, 1, 0))
            result, addresses = total[:, np.newaxis], addresses[:, -1:]
        fmt = FLOAT32 if command["wide"] else self.fmt
        result = result if command["wide"] else unit.round(fmt, result)
        if command["relu"]:
            result = relu(result, fmt)
        if command["wide"]:
            words = np.ascontiguousarray(result, "<u4").view(self.memory.dtype.newbyteorder("<"))
            words = words.reshape(*result.shape[:2], self.chunks, self.rows)
        else:
            words = result[:, :, np.newaxis]
        for part in range(words.shape[2]):
            self.memory[addresses + part] = words[:, :, part]
        self.flags |= unit.flags

    def _chain(self, unit, command, x, y, z, active):
        """(cb, steps, rows) float32 bits; operations that do not count raise no flags."""
        immediate = _canonical(np.uint32(command["immediate"]))
        taken = active & np.ones(x.shape, bool)
        match command["condition"]:
            case Condition.GREATER:
                first, second = decode(FLOAT32, x), decode(FLOAT32, y)
                with np.errstate(invalid="ignore"):
                    taken &= (first > second) | np.isnan(first)
            case Condition.POSITIVE:
                taken &= (z < _MINUS_ZERO) & (z >> np.uint32(FLOAT32.mantissa_bits) != 0)
            case Condition.EQUAL:
                taken &= z == immediate
        if command["sample"]:
            taken &= self._sampled(command)
        start = immediate if command["term"] == Term.IMMEDIATE else x
        u = np.broadcast_to(start, x.shape)
        if command["term"] == Term.ADD:
            u = _where(taken, unit.add, x, y)
        elif command["term"] == Term.SUBTRACT:
            u = _where(taken, unit.subtract, x, y)
        v = u
        if command["factor"] != Factor.ONE:
            factor = (_ONE, y, z, u)[command["factor"]]
            if command["power"] and command["factor"] != Factor.U:
                factor = power_of_two(factor)
            v = _where(taken, unit.multiply, u, factor)
        if command["negate_product"]:
            v = negate(v)
        carry = (y, z)[command["carry"]]
        w = v
        if command["add"]:
            w = _where(taken, unit.add, v, negate(carry) if command["negate_carry"] else carry)
        return np.where(taken, w, carry if command["keep"] else 0)

    def _operand(self, command, name):
        """(cb, steps, rows) float32 bits of a stream."""
        source = command[f"{name}_source"]
        blocks = command["cb_count"]
        steps = command["i0_count"] * command["i1_count"] * command["i2_count"]
        if source == Source.IMMEDIATE or source == Source.COEFFICIENT:
            bits = command["immediate"]
            if source == Source.COEFFICIENT:
                bits = self.coefficients[command["coefficient"]]
            return np.full((blocks, steps, self.rows), _canonical(np.uint32(bits)))
        if source == Source.NARROW:
            return widen(self.fmt, self.memory[self._addresses(command, name, 1)])
        addresses = self._addresses(command, name, self.chunks)
        words = self.memory[addresses[..., np.newaxis] + np.arange(self.chunks)]
        words = np.ascontiguousarray(words, words.dtype.newbyteorder("<"))
        return _canonical(words.reshape(blocks, steps, -1).view("<u4").astype(np.uint32))

    def _sampled(self, command):
        """(cb, steps, rows) whether the random number of an element is below the threshold."""
        pixels = self._addresses(command, "z", 0)[..., np.newaxis]
        channels = np.arange(command["cb_count"] * self.rows).reshape(-1, 1, self.rows)
        numbers = sample(self.sample_seed, command["y_i0_stride"], pixels, channels)
        return numbers < command["y_address"]

    def _addresses(self, command, name, block):
        """(cb, steps) word addresses; ``block`` words from one channel block to the next."""
        steps = np.zeros(1, np.int64)
        for loop in ("i2", "i1", "i0"):
            walk = np.arange(command[f"{loop}_count"]) * command[f"{name}_{loop}_stride"]
            steps = (steps[:, np.newaxis] + walk).ravel()
        blocks = np.arange(command["cb_count"]) * block
        return command[f"{name}_address"] + blocks[:, np.newaxis] + steps

    def _note(self, watch, numbers):
        values, active = numbers
        before = self.noted and watch == Watch.MORE
        self.noted = before or bool((~np.isfinite(values) & active).any())
        self.rejected += int(self.guard and self.noted and not before)


def _check(command):
    counts = [name for name in command if name.endswith("_count") and command[name] < 1]
    if counts:
        raise ValueError(f"{counts[0]} must be at least 1, not {command[counts[0]]}")
    kinds = {"operation": Operation, "watch": Watch}
    for name, kind in kinds.items():
        if command[name] not in set(kind):
            raise ValueError(f"{name} must be one of {[int(k) for k in kind]}, not {command[name]}")
    if command["operation"] and command["watch"]:
        raise ValueError("Divisions, roots and exponentials do not watch")
    numbers = (Source.IMMEDIATE, Source.COEFFICIENT)
    streams = any(command[f"{name}_source"] not in numbers for name in "yz")
    if command["sample"] and (command["operation"] or command["reduce"] or streams):
        raise ValueError("Only a chain without sums samples, and its Y and Z must be numbers")
    behind = command["add"] or command["condition"] or command["operation"]
    if command["reduce"] and behind:
        raise ValueError(
            "A reduction sums products; it has no addition, condition or other operation"
        )


def _canonical(bits):
    """Float32 bits as every operation reads them: no subnormals and one NaN."""
    return encode(FLOAT32, decode(FLOAT32, bits))


def _where(mask, operation, *operands):
    """``operation`` where ``mask`` is set (elsewhere it must raise no flags); 0 elsewhere."""
    arrays = np.broadcast_arrays(mask, *operands)
    mask, operands = arrays[0], arrays[1:]
    result = np.zeros(mask.shape, np.uint32)
    if mask.any():
        result[mask] = operation(*(operand[mask] for operand in operands))
    return result
