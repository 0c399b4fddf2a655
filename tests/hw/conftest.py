"""What the tests of the engines share: sizes, formats, and the way into a cocotb bench."""

import json

import pytest

from hw.config import make_config
from hw.primitives.shared_module import emit_verilog
from verif.blocks.support import CONFIG_VARIABLE
from verif.sim import runner


def engine_cases(*cases, long=()):
    """``size`` (rows, columns, lanes) and ``operand_format`` of every case, and of those that run
    with ``--long`` only."""
    return pytest.mark.parametrize(
        ("size", "operand_format"),
        [*cases, *(pytest.param(*case, marks=pytest.mark.long) for case in long)],
        ids=lambda value: value if isinstance(value, str) else "x".join(map(str, value)),
    )


def run_engine(engine, name, *, size, operand_format, seed, testcase=None, **environment):
    """Emit ``engine(config, core)`` as module ``name`` and run its bench on it.

    The bench is ``verif.blocks.engines.cocotb_<name>``. ``size`` may have a fourth number,
    ``post_groups``.
    """
    rows, columns, lanes, *groups = size
    config = make_config(
        preset="tiny",
        variant="baseline",
        operand_format=operand_format,
        rows=rows,
        columns=columns,
        post_lanes=lanes,
        **({"post_groups": groups[0]} if groups else {}),
    )
    text = emit_verilog(engine(config, config.cores[0]), name=name)
    return runner.run(
        runner.build(text, toplevel=name),
        f"verif.blocks.engines.cocotb_{name}",
        seed=seed,
        testcase=testcase,
        extra_env={CONFIG_VARIABLE: json.dumps(config.as_dict()), **environment},
    )
