"""What a host writes to start a program, and what registers say of its end; used by the driver, too
(tests/verif/system/test_driver.py)."""

import pytest

from hw.config import make_config
from hw.isa.error_codes import ErrorCode
from hw.registers.host import counters, ending, field_values, start_values, without_waiting
from hw.registers.map import Unit, register_map

MAP = register_map(make_config(variant="max", preset="tiny"))


def test_start():
    values = start_values(MAP, base=0x3000, size=1 << 32, program=64, program_size=128, watchdog=9)
    first, *_, last = values
    assert (first, last) == ("WATCHDOG", "CONTROL")
    assert (values["MEM_SIZE"], values["MEM_SIZE_HI"], values["WATCHDOG"]) == (0, 1, 9)
    assert field_values(MAP, "CONTROL", values["CONTROL"]) == {"START": 1, "STOP": 0}
    assert all(field_values(MAP, "INTERRUPT_ENABLE", values["INTERRUPT_ENABLE"]).values())
    with pytest.raises(ValueError, match="size must be from 0 to 4294967296"):
        start_values(MAP, base=0, size=(1 << 32) + 1, program=0, program_size=0)


def test_ending():
    errors = {"ERROR_CODE": ErrorCode.REPEAT_TARGET, "ERROR_UNIT": Unit.SEQUENCER,
              "ERROR_ADDRESS_LO": 0x40, "ERROR_ADDRESS_HI": 1}  # fmt: skip
    status = {field.name: field.mask for field in MAP["STATUS"].fields}
    assert ending(MAP, {"STATUS": 0}) == "no program has run since the reset"
    assert ending(MAP, {"STATUS": status["DONE"]}) == "the program has ended"
    text = ending(MAP, {"STATUS": status["DONE"] | status["ERROR"], **errors})
    assert text.startswith("SEQUENCER ended the program with REPEAT_TARGET at 0x100000040: ")


def test_counters():
    values = {f"CORE0_{name}_LO": 1 for name in ("VECTORS", "STALL_WEIGHTS", "STALL_BUFFER")}
    values |= {"CORE0_STALL_HAZARD_LO": 2, "CORE0_STALL_COMMAND_LO": 4, "CYCLES_LO": 99,
               "BATCH_WAIT_LO": 90}  # fmt: skip
    values |= {name.replace("_LO", "_HI"): 1 for name in values}
    found = counters(MAP, values)
    assert found["CYCLES"] == (1 << 32) + 99 and len(found) == 7
    without = without_waiting(found)
    assert without["CYCLES"] == 5 * (1 << 32) + 9 and without["BATCH_WAIT"] == 0
