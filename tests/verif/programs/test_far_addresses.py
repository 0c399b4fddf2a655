"""Programs with addresses far beyond a memory: the interpreter refuses them as well.

On the accelerator they run in the coverage campaign (verif/coverage/stimuli.py).
"""

import pytest

from emulator.interpreter import interpret
from emulator.machine import FunctionalError
from hw.config import make_config
from hw.isa.error_codes import ErrorCode
from verif.programs.far_addresses import far_address_faults
from verif.programs.faulty_programs import WINDOW


def test_they_are_refused():
    """Every bit of every address, of both cores."""
    config = make_config(variant="max", preset="tiny")
    faults = far_address_faults(config)
    bits = {fault.address for fault in faults if fault.code is ErrorCode.ACCUMULATOR_ADDRESS}
    assert max(bits) == 1 << 15
    bits = {fault.address for fault in faults if fault.unit.name == "CORE0_LOSS"}
    assert max(bits) == 1 << 22 and min(bits) >= config.memory_depth[0]
    for fault in faults:
        with pytest.raises(FunctionalError, match="none at"):
            interpret(config, fault.bytes, bytearray(WINDOW))
