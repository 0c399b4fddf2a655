"""The commands of the PE array, WEIGHTS, MATMUL and POST: the fields behind the header."""

import enum

from hw.config import BUFFER_ADDRESS_WIDTH

from .field import BUFFER_ADDRESS_NOTE, Field

__all__ = [
    "Init",
    "MATMUL",
    "MATMUL_LOOPS",
    "POST",
    "POST_LOOPS",
    "POST_OUTPUT_LOOPS",
    "Pool",
    "WEIGHTS",
    "WEIGHTS_LOOPS",
]

_A = BUFFER_ADDRESS_WIDTH

#: MATMUL's loops, innermost first: the first three walk the output vectors (M), the last three
#: the K tiles. ``cb`` counts blocks of ``rows`` channels. With ``transpose`` the first three walk
#: the contraction, and ``rows`` of their steps are a K tile; the last three walk the outputs.
MATMUL_LOOPS = ("wo", "ho", "n", "kw", "kh", "cb")
#: WEIGHTS' loops over K tiles, innermost first.
WEIGHTS_LOOPS = ("kw", "kh", "cb")
#: POST's loops, innermost first: the pooling window inside the channel groups inside the outputs.
POST_LOOPS = ("pw", "ph", "group", "wo", "ho", "n")
#: Those of them that go from output to output.
POST_OUTPUT_LOOPS = ("wo", "ho", "n")


class Init(enum.IntEnum):
    """Where the first K tile of a MATMUL takes its partial sums from."""

    ZERO = 0
    BIAS = 1
    ACCUMULATOR = 2


class Pool(enum.IntEnum):
    """How POST reduces a pooling window."""

    MAX = 0
    SUM = 1


#: Fields in order from the least significant bit.
WEIGHTS = (
    Field("transpose", 1, "1: a word holds a row of the tile, 0: a column"),
    Field(
        "bias",
        1,
        "bring biases, for the MATMUL with init BIAS that takes the first tile",
        default=0,
    ),
    Field("block_count", 8, "transpose 1: words of a row that are read", minimum=1, default=1),
    Field(
        "skip", 10, "transpose 1: columns to drop before the first of the tile", default=0, align=32
    ),
    Field("address", _A, f"word at loop index 0 everywhere, modulo 2**24; {BUFFER_ADDRESS_NOTE}"),
    Field("row_stride", _A, "words from one row (transpose 0: column) to the next", signed=True),
    *(
        Field(f"{n}_count", 16, f"iterations of loop {n}", minimum=1, default=1)
        for n in WEIGHTS_LOOPS
    ),
    *(
        Field(
            f"{n}_stride", _A, f"words address moves per step of loop {n}", signed=True, default=0
        )
        for n in WEIGHTS_LOOPS
    ),
    Field(
        "row_limit",
        16,
        "rows that exist, counted on through loop cb (transpose 0: columns that exist in every "
        "tile); others are zeros and not read",
    ),
    Field(
        "bias_address",
        _A,
        f"first word of the biases, 32 bits per column; {BUFFER_ADDRESS_NOTE}",
        default=0,
    ),
)

MATMUL = (
    Field("accumulator_bank", 1, "bank that collects the sums"),
    Field("init", 2, "partial sums the first K tile starts from", enum=Init, default=Init.ZERO),
    Field(
        "transpose",
        1,
        "1: K tiles run over `rows` steps of wo, ho, n in order, vectors over cb, kh, kw and the "
        "`rows` channels of a word",
        default=0,
    ),
    Field(
        "ones",
        1,
        "transpose 1: one more vector per K tile, of ones; its entry is the last",
        default=0,
    ),
    Field(
        "accumulator_address", 16, "entry of the first output vector; the rest follow", default=0
    ),
    Field(
        "x_address",
        _A,
        "word at loop index 0 everywhere, modulo 2**24; never read where coordinates are outside "
        f"the limits; {BUFFER_ADDRESS_NOTE}",
        align=32,
    ),
    Field("channels", 16, "valid columns; float flags of columns beyond are ignored", minimum=1),
    *(
        Field(f"{n}_count", 16, f"iterations of loop {n}", minimum=1, default=1)
        for n in MATMUL_LOOPS
    ),
    *(
        Field(
            f"{n}_stride", _A, f"words x_address moves per step of loop {n}", signed=True, default=0
        )
        for n in MATMUL_LOOPS
    ),
    Field("h_origin", 16, "row coordinate at index 0 (minus the padding)", signed=True),
    Field("w_origin", 16, "column coordinate at index 0 (minus the padding)", signed=True),
    Field("h_limit", 16, "rows in the buffer; a row coordinate outside reads zeros"),
    Field("w_limit", 16, "columns in the buffer; a column coordinate outside reads zeros"),
    Field("ho_step", 8, "row coordinate per step of ho (convolution stride)", default=0),
    Field("wo_step", 8, "column coordinate per step of wo", default=0),
    Field("kh_step", 8, "row coordinate per step of kh (dilation)", default=0),
    Field("kw_step", 8, "column coordinate per step of kw", default=0),
)

POST = (
    Field("accumulator_bank", 1, "bank to read"),
    Field("pool", 1, "reduction over the pooling window", enum=Pool, default=Pool.MAX),
    Field("relu", 1, "negative values become zero before pooling", default=0),
    Field("wide", 1, "store 32-bit values instead of operands", default=0),
    Field("accumulator_address", 16, "entry of index 0 everywhere", default=0),
    Field(
        "out_address",
        _A,
        f"word of the first output's first group; {BUFFER_ADDRESS_NOTE}",
        align=32,
    ),
    Field("out_group", 8, "position of the first group inside that word, in groups"),
    *(Field(f"{n}_count", 16, f"iterations of loop {n}", minimum=1, default=1) for n in POST_LOOPS),
    *(
        Field(f"{n}_stride", 16, f"entries per step of loop {n}", signed=True, default=0)
        for n in POST_LOOPS
        if n != "group"
    ),
    Field("channels", 16, "valid channels of the tile; lanes beyond are stored as zero"),
    *(
        Field(
            f"out_{n}_stride",
            _A,
            f"words the output moves per step of loop {n}",
            signed=True,
            default=0,
        )
        for n in POST_OUTPUT_LOOPS
    ),
    Field("scale", 32, "float32 factor; integers: multiplier in bits 0-15, shift in 16-21"),
)
