"""Random WEIGHTS, MATMUL and POST commands on the whole accelerator: loops, steps and strides that
no layer needs."""

import random

import numpy as np

from golden.arithmetic.dot_product import encode as encode_number
from golden.arithmetic.formats import format_by_name
from hw.config import BUFFER_ADDRESS_WIDTH, AdaGPConfig
from hw.isa.encoding import (
    MATMUL_LOOPS,
    POST_LOOPS,
    POST_OUTPUT_LOOPS,
    WEIGHTS_LOOPS,
    Init,
    Opcode,
    Pool,
    encode,
)
from verif.stimulus.vector import WORDS

from .engine_programs import EngineProgram
from .faulty_programs import matmul, weights

__all__ = ["loop_program"]

#: Words that commands read; POST writes behind them.
_READ = WORDS // 2
#: Semaphores: MATMUL has sums for POST, POST has taken them. The program's own are others.
_FULL, _FREE = 1 << 14, 1 << 15


def loop_program(
    config: AdaGPConfig, core: int, seed: int, *, products: int = 12, special: bool = False
) -> EngineProgram:
    """``products`` times WEIGHTS, MATMUL and POST with random fields, one product after the other,
    weights far ahead. Every class of a loop's count occurs that the memories have room for.
    ``special``: on floats from one end of the range to the other, infinities among them."""
    rng, sizes = random.Random(seed), config.cores[core]
    fmt = format_by_name(config.operand_format)
    numbers = np.random.default_rng(seed)
    shape = WORDS, sizes.rows
    if fmt.is_float and special:
        values = numbers.standard_normal(shape) * np.exp2(numbers.integers(-100, 101, (WORDS, 1)))
        infinite = numbers.random(shape) < 0.02
        values[infinite] = numbers.choice((-np.inf, np.inf), np.count_nonzero(infinite))
    elif fmt.is_float:
        values = numbers.standard_normal(shape) * np.exp2(numbers.integers(-6, 7, shape))
    else:
        values = numbers.integers(-128, 128, shape)
    contents = encode_number(fmt, values).astype(np.uint8 if fmt.width == 8 else np.uint16)
    first = sizes.memories[0] << (BUFFER_ADDRESS_WIDTH - 1)
    place = sizes.memories[-1] << (BUFFER_ADDRESS_WIDTH - 1)
    body = []
    depth = sizes.accumulator_depth
    for bank in (0, 1):  # every entry starts as the sum of a vector of zeros
        body += [
            weights(config, core, address=first),
            matmul(config, core, vectors=depth, h_limit=0, accumulator_bank=bank, x_address=first),
        ]
    for number in range(products):
        tiles, product = _matmul(rng, sizes, depth)
        product["x_address"] |= first
        brought = _weights(rng, sizes, tiles, bias=product["init"] == Init.BIAS)
        for name in ("address", "bias_address"):
            brought[name] |= first
        output = _post(rng, sizes, depth, config.format.is_float)
        output["out_address"] |= place
        body += [
            encode(Opcode.WEIGHTS, core=core, **brought),
            encode(Opcode.MATMUL, core=core, wait=_FREE if number else 0, signal=_FULL, **product),
            encode(
                Opcode.POST, core=core, wait=_FULL,
                signal=_FREE if number + 1 < products else 0, **output,
            ),
        ]  # fmt: skip
    return EngineProgram(
        name=f"loops on core {core}", config=config, core=core, body=body, contents=contents
    )


def _reach(counts, strides):
    """(below, above) the first word, of a walk."""
    steps = [strides[name] * (counts[name] - 1) for name in strides]
    return -sum(step for step in steps if step < 0), sum(step for step in steps if step > 0)


def _counts(rng, loops, sizes, product):
    """Counts of ``loops`` whose product is at most ``product``; small ones, and the array's."""
    choices = (1, 1, 1, 2, 3, sizes.rows, sizes.columns, max(sizes.rows, sizes.columns) + 1)
    while True:
        counts = {name: rng.choice(choices) for name in loops}
        if np.prod(list(counts.values())) <= product:
            return counts


def _matmul(rng, sizes, depth):
    """Number of K tiles and fields of a command."""
    while True:
        counts = _counts(rng, MATMUL_LOOPS, sizes, 4 * depth)
        pixels = counts["wo"] * counts["ho"] * counts["n"]
        taps = counts["kw"] * counts["kh"] * counts["cb"]
        transpose, ones = rng.randrange(2), rng.randrange(2)
        vectors, tiles = pixels, taps
        if transpose:
            vectors, tiles = taps * sizes.rows + ones, -(-pixels // sizes.rows)
        strides = {name: rng.choice((-2, 0, 1, 3)) for name in MATMUL_LOOPS}
        below, above = _reach(counts, strides)
        if vectors <= depth and below + above < _READ:
            break
    limits = (0, 1, 2, 3, sizes.rows, sizes.columns, 9, 0xFFFF)
    return tiles, {
        "accumulator_bank": rng.randrange(2),
        "init": rng.choice(list(Init)),
        "transpose": transpose,
        "ones": ones,
        "channels": rng.choice((1, 2, sizes.columns, sizes.columns + 1, sizes.rows + 1, 0xFFFF)),
        "x_address": rng.randrange(below, _READ - above),
        "accumulator_address": rng.choice((0, 1, depth - vectors)) if vectors < depth else 0,
        **{f"{name}_count": count for name, count in counts.items()},
        **{f"{name}_stride": stride for name, stride in strides.items()},
        "h_origin": rng.choice((-1, 0, 1, 2, -1, 0, 1, 2, rng.randrange(-0x8000, 0x8000))),
        "w_origin": rng.choice((-1, 0, 1, 2, -1, 0, 1, 2, rng.randrange(-0x8000, 0x8000))),
        "h_limit": rng.choice(limits),
        "w_limit": rng.choice(limits),
        **{
            f"{name}_step": rng.choice((0, 0, 1, 1, 2, 2, rng.randrange(256)))
            for name in ("ho", "wo", "kh", "kw")
        },
    }


def _weights(rng, sizes, tiles, *, bias):
    """Fields of a command that brings ``tiles`` tiles."""
    shapes = [
        (a, b, tiles // (a * b))
        for a in range(1, tiles + 1)
        for b in range(1, tiles // a + 1)
        if tiles % (a * b) == 0
    ]
    counts = dict(zip(WEIGHTS_LOOPS, rng.choice(shapes), strict=True))
    rows = max(sizes.rows, sizes.columns)
    while True:
        blocks, transpose = rng.choice((1, 2, 3, sizes.columns, rows, rows + 1)), rng.randrange(2)
        strides = {name: rng.choice((-3, 0, 1, 4)) for name in WEIGHTS_LOOPS}
        strides |= {"row": rng.choice((-1, 0, 1, 2)), "block": 1}
        below, above = _reach({**counts, "row": rows, "block": blocks}, strides)
        if below + above < _READ:
            break
    return {
        "address": rng.randrange(below, _READ - above),
        "row_stride": strides["row"],
        **{f"{name}_count": count for name, count in counts.items()},
        **{f"{name}_stride": strides[name] for name in WEIGHTS_LOOPS},
        "row_limit": rng.choice((0, 1, 2, 3, sizes.rows, sizes.columns, rows + 1, 0xFFFF)),
        "transpose": transpose,
        "block_count": blocks,
        "skip": rng.choice((0, 1, sizes.rows - 1)),
        "bias": int(bias),
        "bias_address": rng.randrange(_READ - sizes.bias_words),
    }


def _post(rng, sizes, depth, is_float):
    """Fields of a command that writes behind what is read."""
    while True:
        counts = _counts(rng, POST_LOOPS, sizes, 200)
        groups = sizes.groups_per_vector
        counts["group"] = rng.choice((1, groups, groups + 1, 2, 3, sizes.rows, sizes.columns + 1))
        strides = {name: rng.choice((-1, 0, 1, 2)) for name in POST_LOOPS if name != "group"}
        below, above = _reach(counts, strides)
        wide = rng.randrange(2)
        size = counts["group"] * (sizes.chunks_per_wide if wide else 1)
        words = -(-(size + sizes.groups_per_word) // sizes.groups_per_word)
        out = {name: rng.choice((-words, 0, 1, words)) for name in POST_OUTPUT_LOOPS}
        out_below, out_above = _reach(counts, out)
        if below + above + 1 < depth and out_below + out_above + words < WORDS - _READ:
            break
    scale = rng.choice((0x3F800000, 0x3E800000, 0xC0400000)) if is_float else 181 | 15 << 16
    return {
        "accumulator_bank": rng.randrange(2),
        "pool": rng.choice(list(Pool)),
        "relu": rng.randrange(2),
        "wide": wide,
        "accumulator_address": rng.choice(
            (below, max(below, 1), rng.randrange(below, depth - above))
        ),
        **{f"{name}_count": count for name, count in counts.items()},
        **{f"{name}_stride": stride for name, stride in strides.items()},
        "channels": rng.choice((0, 1, sizes.columns, sizes.columns + 2)),
        "out_address": rng.randrange(_READ + out_below, WORDS - out_above - words),
        "out_group": rng.randrange(sizes.groups_per_word),
        **{f"out_{name}_stride": stride for name, stride in out.items()},
        "scale": scale,
    }
