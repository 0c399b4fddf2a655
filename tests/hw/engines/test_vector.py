"""hw.engines.vector.engine.VectorEngine against golden.commands.vector, bit for bit.

Covers: hw/isa/vector.py, verif/blocks/engines/cocotb_vector.py,
verif/blocks/engines/vector_bench.py, verif/stimulus/vector.py.
"""

from hw.engines.vector.engine import VectorEngine
from tests.hw.conftest import engine_cases, run_engine


# Rows, columns, lanes: groups in a word 4, 2, 1; an odd number of them; several of 8 bits.
@engine_cases(
    ((8, 2, 2), "fp8_e4m3"),
    long=[
        ((12, 15, 3), "bf16"),
        ((8, 4, 4), "fp16"),
        ((4, 6, 2), "bf16"),
        ((4, 4, 4), "bf16"),
        ((5, 3, 1), "fp16"),
        ((6, 4, 2), "fp8_e5m2"),
    ],
)
def test_engine(size, operand_format, seed):
    run_engine(
        VectorEngine,
        "vector",
        size=size,
        operand_format=operand_format,
        seed=seed,
        VECTOR_COMMANDS=24,
    )
