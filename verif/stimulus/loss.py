"""Random LOSS commands, and what they must do."""

from dataclasses import dataclass

import numpy as np

from golden.arithmetic.dot_product import encode
from golden.arithmetic.float32_unit import constant, widen
from golden.arithmetic.formats import FLOAT32
from golden.arithmetic.formats import FORMATS as GOLDEN_FORMATS
from golden.commands.loss import LossMachine
from hw.isa.loss import Loss

__all__ = ["Batch", "SPECIAL", "TINY", "WORDS", "random_batch", "random_numbers", "words"]


WORDS = 1 << 16


SPECIAL = (0, 0x80000000, 1, 0x80400000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFF800001,
           0x7F7FFFFF, 0xFF7FFFFF, 0x00800000, 0x80800001)  # fmt: skip


#: Numbers whose differences are too small for float32.
TINY = (0, 0x80000000, 1, 0x00800000, 0x00800001, 0x00900000, 0x80800000, 0x80800001, 0x80900000)


@dataclass(kw_only=True)
class Batch:
    """A batch as one or more commands, and what they must do.

    Members
    -------
    commands : list of fields
    writes : list per command of (address, word), in order
    flags : of all commands together
    memory : address -> word, to be there before
    """

    commands: list
    writes: list
    flags: int
    memory: dict

    def put(self, bench):
        for address, word in self.memory.items():
            bench.memory[address % WORDS] = word


def words(core, values, bits):
    """``values`` of ``bits`` bits one after the other, cut into words."""
    stream = sum(int(value) << bits * index for index, value in enumerate(values))
    count = -(-len(values) * bits // core.word_width)
    mask = (1 << core.word_width) - 1
    return [stream >> core.word_width * index & mask for index in range(count)]


def random_numbers(rng, shape, special):
    """Float32 bits, sometimes ties, with ``special`` also anything else, or only :data:`TINY`."""
    generator = np.random.default_rng(rng.getrandbits(32))
    values = generator.standard_normal(shape) * 2.0 ** generator.integers(-3, 5)
    if rng.random() < 0.3:
        values = np.round(values)
    bits = encode(FLOAT32, values)
    if special:
        if special == "tiny":
            return generator.choice(np.array(TINY, np.uint32), shape)
        chosen = generator.random(shape) < rng.choice((0.02, 0.3, 1.0))
        bits = np.where(chosen, generator.choice(np.array(SPECIAL, np.uint32), shape), bits)
        anywhere = generator.integers(0, 1 << 32, shape, dtype=np.uint32)
        bits = np.where(generator.random(shape) < 0.05, anywhere, bits)
    return bits.astype(np.uint32)


def random_batch(rng, config, core, *, special=False, numbers=60, base=None, whole=False, **fixed):
    """A batch of about ``numbers`` outputs, in commands of random sizes, from word address ``base``
    on (None: anywhere), or in one command, if ``whole``. ``fixed``: fields, and ``rows`` and
    ``length`` of the whole batch."""
    fmt = GOLDEN_FORMATS[config.operand_format]
    fields = {
        "loss": rng.choice((Loss.CROSS_ENTROPY, Loss.CROSS_ENTROPY, Loss.SQUARED_ERROR)),
        "x_wide": rng.random() < 0.8,
        "target_wide": rng.random() < 0.5,
    }
    length = fixed.pop("length", rng.choice((1, 2, 3, 7, 8, 10, 17, rng.randint(1, 40))))
    rows = fixed.pop("rows", rng.randint(1, max(1, min(20, numbers // length))))
    fields |= fixed
    is_cross = fields["loss"] == Loss.CROSS_ENTROPY

    def operands(bits, wide):
        """What is stored, the width of that, and the same as float32."""
        if wide:
            return bits, 32, bits
        codes = encode(fmt, bits.view(np.float32).astype(np.float64))
        if special:
            chosen = np.random.default_rng(rng.getrandbits(32)).random(bits.shape) < 0.3
            codes = np.where(chosen, bits & ((1 << fmt.width) - 1), codes)
        return codes, fmt.width, widen(fmt, codes)

    with np.errstate(invalid="ignore"):
        stored, bits, x = operands(random_numbers(rng, (rows, length), special), fields["x_wide"])
        if is_cross:
            labels = np.array([rng.randrange(length) for _ in range(rows)])
            targets, target_bits, y = labels[:, np.newaxis], 32, labels
            scales = (1 / rows, 1 / rows)
        else:
            random_targets = random_numbers(rng, (rows, length), special)
            targets, target_bits, y = operands(random_targets, fields["target_wide"])
            scales = (2 / x.size, 1 / x.size)

    # A host may scale as it likes.
    if special:
        scales = [rng.choice((1, 1, -1)) * scale * 2.0 ** rng.randint(-30, 30) for scale in scales]
    scales = [constant(scale) for scale in scales]

    x_words = [words(core, row, bits) for row in stored]
    target_words = [words(core, row, target_bits) for row in targets]
    stride = len(x_words[0]) + rng.randrange(3)
    position = base
    if base is None:
        position = rng.randrange(2) << 23 | rng.randrange((1 << 23) - WORDS)
    places = {}
    for name, count in (
        ("x", stride * rows),
        ("target", len(target_words[0]) * rows),
        ("gradient", -(-length // core.rows) * rows),
        ("value", -(-2 * 32 // core.word_width)),
    ):
        places[name] = position
        position += count + rng.randrange(3)
    memory = {}
    for number, (row, target) in enumerate(zip(x_words, target_words, strict=True)):
        memory |= {places["x"] + number * stride + i: word for i, word in enumerate(row)}
        first = places["target"] + number * len(target)
        memory |= {first + i: word for i, word in enumerate(target)}
    assert len({address % WORDS for address in memory}) == len(memory)

    commands, writes, begin = [], [], 0
    machine = LossMachine(fmt=fmt)
    while begin < rows:
        count = rows if whole else rng.choice((rows - begin, rng.randint(1, rows - begin)))
        end = begin + count
        per_row = -(-length // core.rows)
        commands.append(
            fields
            | {
                "first": begin == 0,
                "last": end == rows,
                "row_count": count,
                "row_length": length,
                "x_address": places["x"] + begin * stride,
                "x_stride": stride,
                "target_address": places["target"] + begin * len(target_words[0]),
                "gradient_address": places["gradient"] + begin * per_row,
                "value_address": places["value"],
                "gradient_scale": scales[0],
                "value_scale": scales[1],
            }
        )
        with np.errstate(invalid="ignore"):
            gradient, value = machine.run(commands[-1], x[begin:end], y[begin:end])
        stream = [word for row in gradient for word in words(core, row, fmt.width)]
        writes.append(list(enumerate(stream, start=places["gradient"] + begin * per_row)))
        if value is not None:
            writes[-1] += enumerate(words(core, value, 32), start=places["value"])
        begin = end
    return Batch(commands=commands, writes=writes, flags=machine.flags, memory=memory)
