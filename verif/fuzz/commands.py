"""Random and mutated commands, from the one description of the encoding.

Commands are numbers of 512 bits here, as mutating them must not care what is legal.
"""

from dataclasses import dataclass

from hw.config import BUFFER_ADDRESS_WIDTH, AdaGPConfig
from hw.isa.encoding import (
    COMMAND_BYTES,
    COMMAND_WIDTH,
    COMMANDS,
    HEADER,
    Opcode,
    control_opcodes,
    queue_opcodes,
)
from hw.isa.field import field_places
from hw.isa.loops import LOOP_STRIDES

__all__ = ["CommandFuzzer", "Place", "opcode_of", "places"]

_MASK_FIELDS = ("wait", "signal")
#: In bytes, which must be multiples of the granule.
_SIZES = ("run_bytes", "row_bytes", "run_stride")
_LOOP_STRIDES = tuple(field.name for field in LOOP_STRIDES)


@dataclass(frozen=True)
class Place:
    """Where a field is in a command, and which values are legal.

    Members
    -------
    shift, width : bits
    minimum : least legal value; named : number of values with a name, 0 if all are legal
    """

    name: str
    shift: int
    width: int
    minimum: int
    named: int
    default: int | None

    def put(self, command: int, value: int) -> int:
        """``command`` with the field set to ``value``, modulo its width."""
        mask = (1 << self.width) - 1
        return command & ~(mask << self.shift) | (value & mask) << self.shift

    def get(self, command: int) -> int:
        """The field of ``command``, without its sign."""
        return command >> self.shift & (1 << self.width) - 1


def places(opcode: Opcode) -> tuple[Place, ...]:
    """All fields of an opcode's commands, those of the header first."""
    result, fields = [], (*HEADER, *COMMANDS[opcode])
    shifts = field_places(fields)
    for field in fields:
        named = len(field.enum) if field.enum and field.name != "opcode" else 0
        result.append(
            Place(
                field.name, shifts[field.name].position, field.width, field.minimum or 0, named,
                field.default,
            )
        )  # fmt: skip
    return tuple(result)


_PLACES = {opcode: places(opcode) for opcode in Opcode}
#: Opcodes without core and semaphores, and where their own fields begin.
_ALONE, _HEADER_FIELDS = (Opcode.BATCH, Opcode.REPEAT, Opcode.ROWS), len(HEADER)
#: REPEAT's target, as name and largest value: others of the name are flags.
_TARGET = ("first", (1 << 32) - 1)


def opcode_of(command: int) -> Opcode | None:
    """The opcode of a command, None if there is no such."""
    code = command & 0xFF
    return Opcode(code) if code in _PLACES else None


class CommandFuzzer:
    """Makes commands for a configuration.

    Parameters
    ----------
    templates : commands that are right, to start from
    """

    def __init__(self, config: AdaGPConfig, templates):
        self.config = config
        self.opcodes = [
            opcode
            for opcode in Opcode
            if opcode in control_opcodes(config)
            or any(opcode in queue_opcodes(core) for core in config.cores)
        ]
        self.busy = [opcode for opcode in self.opcodes if opcode is not Opcode.HALT]
        self.templates = {}
        for command in templates:
            self.templates.setdefault(opcode_of(command), []).append(command)
        self.ends = sorted(
            {core.memories[0] << BUFFER_ADDRESS_WIDTH - 1 for core in config.cores}
            | {
                (memory << BUFFER_ADDRESS_WIDTH - 1) + depth + offset
                for memory, depth in config.memory_depth.items()
                for offset in (-8, -1, 0)
            }
        )

    def random(self, rng, case) -> int:
        """A command of a random opcode, most of whose fields make sense."""
        opcode = rng.choice(self.busy)
        if opcode in _ALONE:
            command = int(opcode)
            for place in _PLACES[opcode][_HEADER_FIELDS:]:
                command = place.put(command, self._value(rng, place, case))
            return command
        known = self.templates.get(opcode)
        command = rng.choice(known) if known and rng.random() < 0.7 else self._fresh(rng, opcode)
        for _ in range(rng.choice((0, 1, 1, 2, 3, 6))):
            command = self.change_field(rng, command, case)
        return command

    def garbage(self, rng) -> int:
        """Random bits, mostly with an opcode that exists."""
        command = rng.getrandbits(COMMAND_WIDTH)
        if rng.random() < 0.8:
            command = command & ~0xFF | rng.choice(self.busy)
        return command

    def mutate(self, rng, command, case) -> int:
        """``command`` with something changed."""
        kind = rng.random()
        if kind < 0.8:
            return self.change_field(rng, command, case)
        if kind < 0.9:
            return command ^ 1 << rng.randrange(COMMAND_WIDTH)
        if kind < 0.95:
            return command & ~0xFF | rng.choice((*self.opcodes, rng.randrange(256)))
        return self.garbage(rng)

    def change_field(self, rng, command, case) -> int:
        """``command`` with a random field set to something that may be of interest."""
        opcode = opcode_of(command)
        if opcode is None:
            return command
        # These must leave the rest of the header alone.
        place = rng.choice(_PLACES[opcode][_HEADER_FIELDS if opcode in _ALONE else 1 :])
        value = self._value(rng, place, case)
        if rng.random() < 0.9:  # not refused at once
            value = max(value, place.minimum)
        return place.put(command, value)

    def _fresh(self, rng, opcode):
        """All fields at defaults or small numbers."""
        command = int(opcode)
        for place in _PLACES[opcode][1:]:
            value = place.default
            if value is None and place.name in _SIZES:
                value = 2 * self.config.granule_bytes
            elif value is None:
                value = rng.randrange(1, 5) if not place.named else rng.randrange(place.named)
            elif not value and place.name not in _MASK_FIELDS and rng.random() < 0.2:
                value = rng.randrange(4)
            command = place.put(command, value)
        return command

    def _value(self, rng, place, case):
        name, top = place.name, (1 << place.width) - 1
        kind = rng.random()
        if name in _MASK_FIELDS:
            if kind < 0.6:
                return 0
            if kind < 0.95:
                return 1 << rng.randrange(self.config.semaphore_count)
            return rng.getrandbits(self.config.semaphore_count + rng.randrange(2))
        if place.width == BUFFER_ADDRESS_WIDTH and name.endswith("address") and kind < 0.6:
            return rng.choice(self.ends) + rng.randrange(16)
        if name == "dram_address" or name[:3] in ("bp_", "gp_") or (name, top) == _TARGET:
            return self._offset(rng, name, case)
        if name in _LOOP_STRIDES and kind < 0.8:
            return self.config.granule_bytes * rng.choice((1, -1, 8, rng.randrange(-40, 40)))
        if name == "count" and kind < 0.8:
            return rng.choice((1, 2, 3, rng.randrange(1, 40)))
        if name == "core" and kind < 0.95:
            return rng.randrange(len(self.config.cores))
        if name in _SIZES and kind < 0.8:
            return self.config.granule_bytes * rng.choice((1, 2, 4, rng.randrange(1, 40)))
        if place.named and kind < 0.9:
            return rng.randrange(place.named)
        if kind < 0.6:
            return rng.randrange(place.minimum, min(top, 16) + 1)
        if kind < 0.75:
            return rng.choice((0, 1, top, top >> 1, (top >> 1) + 1, top - 1))
        if kind < 0.9:
            return 1 << rng.randrange(place.width)
        return rng.getrandbits(place.width)

    def _offset(self, rng, name, case):
        """An offset in the memory window: anywhere in it, at its end, or far away."""
        unit = COMMAND_BYTES if name != "dram_address" else self.config.granule_bytes
        kind = rng.random()
        if name != "dram_address" and kind < 0.9:
            return case["program"] + unit * rng.randrange(1 + len(case["commands"]))
        if kind < 0.5:
            return rng.randrange(max(1, min(case["size"], 1 << 14))) // unit * unit
        if kind < 0.75:
            return case["size"] // unit * unit + unit * rng.randrange(-40, 3)
        if kind < 0.85:
            return rng.getrandbits(32) // unit * unit
        return rng.getrandbits(32)
