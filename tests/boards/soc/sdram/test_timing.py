"""Times of chips in cycles, at frequencies where they come out even and where they do not."""

import pytest

from boards.soc.sdram.timing import CHIPS, FAULTS, SdramChip, SdramCycles, fault


def test_common_chip():
    """What works with each chip is never shorter than one of them."""
    common, *chips = CHIPS.values()
    for chip in chips:
        assert common.rcd_ns >= chip.rcd_ns and common.rp_ns >= chip.rp_ns
        assert common.rc_ns >= chip.rc_ns and common.rfc_ns >= chip.rfc_ns
        assert common.init_us >= chip.init_us
        assert common.size_bytes <= chip.size_bytes
    assert common.size_bytes == 32 << 20
    assert CHIPS["AS4C32M16SB-7"].size_bytes == 64 << 20


def test_cycles():
    chip = SdramChip(
        name="x", column_width=9, rcd_ns=20, rp_ns=21, ras_ns=45, rc_ns=67.5, rrd_ns=15, rfc_ns=70,
        wr_ns=20, init_us=200,
    )  # fmt: skip
    fast = SdramCycles(chip=chip, clock_mhz=100)
    assert (fast.rcd, fast.rp, fast.ras, fast.rc, fast.rrd, fast.rfc) == (2, 3, 5, 7, 2, 7)
    assert (fast.cas, fast.init, fast.refresh, fast.wr) == (2, 20000, 781, 2)
    assert SdramCycles(chip=chip, clock_mhz=133).cas == 3
    assert SdramCycles(chip=chip, clock_mhz=80).ras_most == 8000


def test_frequency():
    with pytest.raises(ValueError, match="SDRAM clock must be from 20 to 133 MHz, not 140"):
        SdramCycles(chip=CHIPS["any"], clock_mhz=140)


def test_faults():
    chip = CHIPS["any"]
    assert fault(chip, "") == (chip, chip)
    for name in FAULTS:
        made_for, real = fault(chip, name)
        assert made_for != real and chip in (made_for, real)
