"""Random VECTOR commands and the operands that they read."""

import numpy as np

from golden.arithmetic.dot_product import encode
from golden.arithmetic.formats import FLOAT32
from hw.isa.encoding import Opcode, with_defaults
from hw.isa.vector import VECTOR, VECTOR_LOOPS, Condition, Operation, Source, Watch

__all__ = ["NUMBERS", "OPERANDS", "PORTS", "RESULTS", "WORDS", "fill", "random_command", "walk"]


#: Words of operands, of float32 numbers, and for results.
OPERANDS, NUMBERS, RESULTS = 512, 512, 1024


WORDS = OPERANDS + NUMBERS + RESULTS


PORTS = ("x", "y", "z")


def fill(rng, fmt, rows):
    """Contents of a buffer: operands, then float32 numbers, with special values among them."""
    dtype = np.uint8 if fmt.width == 8 else np.uint16
    memory = np.zeros((WORDS, rows), dtype)

    def numbers(fmt, count, kind):
        exponents = rng.integers(-4, 8, count)
        wild = rng.random(count) < 0.15
        exponents[wild] = rng.integers(-70, 70, count)[wild]
        scale = 2.0**exponents
        values = encode(fmt, rng.standard_normal(count) * scale).astype(kind)
        small = rng.random(count) < 0.3
        values[small] = encode(fmt, rng.integers(-2, 4, count)).astype(kind)[small]
        nan, subnormal, sign = fmt.nan | 1, 1, fmt.sign_bit
        special = [0, sign, fmt.infinity, fmt.infinity | sign, fmt.nan, nan | sign, subnormal,
                   subnormal | sign, fmt.infinity - 1, 1 << fmt.mantissa_bits]  # fmt: skip
        chosen = rng.random(count) < 0.02
        values[chosen] = rng.choice(np.array(special, np.uint64), count).astype(kind)[chosen]
        return values

    memory[:OPERANDS] = numbers(fmt, OPERANDS * rows, dtype).reshape(-1, rows)
    count = NUMBERS * rows * fmt.width // 32
    wide = numbers(FLOAT32, count, np.dtype("<u4"))
    memory[OPERANDS : OPERANDS + NUMBERS] = wide.view(dtype).reshape(-1, rows)
    return memory


def random_command(rng, machine, *, limit=50):
    """Fields of a legal command of at most ``limit`` steps."""
    # Flags are those of a whole command: some have a channel or two only.
    tiny = rng.random() < 0.3
    while True:
        choices = (1, 1, 2, 3, machine.rows)
        counts = [rng.choice((*choices, rng.randint(1, 20))) for _ in range(4)]
        counts = [1, 1, 1, 1] if tiny else counts
        if np.prod(counts) <= limit:
            break
    values = {f"{n}_count": c for n, c in zip(VECTOR_LOOPS, counts, strict=True)}
    values = with_defaults(Opcode.VECTOR, values)
    operation = rng.choices(list(Operation), (12, 1, 1, 1))[0]
    if operation != Operation.CHAIN:
        counts = [rng.randint(1, 2), 1, 1, rng.randint(1, 2)]
        values |= {f"{n}_count": c for n, c in zip(VECTOR_LOOPS, counts, strict=True)}
    values |= {item.name: rng.randrange(1 << item.width) for item in VECTOR[: _index("channels")]}
    values["operation"] = operation
    values["condition"] = rng.choice((0, 0, *Condition))
    values["watch"] = rng.choice((0, *Watch)) if operation == Operation.CHAIN else 0
    values["guarded"] = int(rng.random() < 0.1)
    values["relu"] = int(rng.random() < 0.3)
    values["reduce"] = int(operation == Operation.CHAIN and rng.random() < 0.3)
    if values["reduce"]:
        values["condition"] = values["add"] = 0
    chain = operation == Operation.CHAIN and not values["reduce"]
    values["sample"] = int(chain and rng.random() < 0.15)
    if values["sample"]:
        for name in "yz":
            values[f"{name}_source"] = rng.choice((Source.IMMEDIATE, Source.COEFFICIENT))
    channels = counts[3] * machine.rows
    values["channels"] = rng.choice((channels, rng.randint(1, channels), channels + 5))
    if tiny:
        values["channels"] = rng.randint(0, 2)

    blocks = {Source.NARROW: (0, OPERANDS, 1), Source.WIDE: (OPERANDS, NUMBERS, machine.chunks)}
    for name in PORTS:
        if values[f"{name}_source"] in blocks:
            walk(rng, values, name, counts, *blocks[values[f"{name}_source"]])
    block = machine.chunks if values["wide"] else 1
    if values["reduce"]:
        values["o_address"] = OPERANDS + NUMBERS + rng.randrange(RESULTS - counts[3] * block)
        for loop in range(3):
            values[f"o_i{loop}_stride"] = 0
    else:
        # Loops in any order of nesting, in both directions, with gaps.
        size, lowest = counts[3] * block, 0
        for loop in rng.sample(range(3), 3):
            stride = rng.choice((-1, 1)) * (size + rng.choice((0, 0, 1)))
            values[f"o_i{loop}_stride"] = stride
            lowest += min(0, stride * (counts[loop] - 1))
            size += abs(stride) * (counts[loop] - 1)
        values["o_address"] = OPERANDS + NUMBERS + rng.randrange(RESULTS - size) - lowest
        stream = "x" if values["sample"] else rng.choice(PORTS)
        source = Source.WIDE if values["wide"] else Source.NARROW
        if rng.random() < 0.3 and size < 400:
            # In place.
            values[f"{stream}_source"] = source
            first, room, _ = blocks[source]
            values["o_address"] = first + rng.randrange(room - size) - lowest
            for part in ("address", *(f"i{loop}_stride" for loop in range(3))):
                values[f"{stream}_{part}"] = values[f"o_{part}"]
            for other in set(PORTS) - {stream}:
                if values[f"{other}_source"] == source:
                    values[f"{other}_source"] = Source.IMMEDIATE
    if values["sample"]:
        # Threshold, stream and pixels are where the words of Y and Z would be.
        values["y_address"] = rng.choice((0, 1 << 22, 1 << 23, (1 << 24) - 1))
        values["y_i0_stride"] = rng.randint(-(1 << 15), (1 << 15) - 1)
        values["z_address"] = rng.choice((rng.randrange(1 << 10), rng.randrange(1 << 24)))
        for loop in range(3):
            values[f"z_i{loop}_stride"] = rng.choice((0, 1, rng.randint(-300, 300)))
    number = int(
        encode(FLOAT32, rng.choice((0.0, 1.0, -1.0, 2.0, 3.0, 0.1, 1e-38, 1e-30, 1e30, 3e38)))
    )
    values["immediate"] = rng.choice((number, 0x7FC00001, 0x80000000, 0x00000001, 0xFF800000))
    return values


def walk(rng, values, name, counts, first, room, block):
    """Strides and address of an operand that stays within ``room`` words."""
    while True:
        strides = [rng.choice((0, 0, 1, -1, block, rng.randint(-9, 9))) for _ in range(3)]
        if rng.random() < 0.2:
            strides = [0, 0, 0]
        steps = [s * (n - 1) for s, n in zip(strides, counts[:3], strict=True)]
        lowest = sum(min(0, step) for step in steps)
        size = sum(map(abs, steps)) + counts[3] * block
        if size <= room:
            break
    values[f"{name}_address"] = first + rng.randint(0, room - size) - lowest
    for loop in range(3):
        values[f"{name}_i{loop}_stride"] = strides[loop]


def _index(name):
    return next(number for number, item in enumerate(VECTOR) if item.name == name)
