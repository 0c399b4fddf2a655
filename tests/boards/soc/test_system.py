"""What a board may be built of."""

import pytest

from boards.soc.sdram.timing import CHIPS
from boards.soc.system import SystemConfig
from hw.config import make_config


def config(accelerator=None, **options):
    fields = {"accelerator": make_config(variant="baseline", preset="ulx3s", **(accelerator or {})),
              "chip": CHIPS["any"], "clock_mhz": 40, "baud": 10_000_000}  # fmt: skip
    return SystemConfig(**fields | options)


@pytest.mark.parametrize(
    ("accelerator", "options", "message"),
    [
        ({"axi_address_width": 40}, {}, "axi_address_width must be 32, not 40"),
        ({"axi_data_width": 256}, {}, "axi_data_width must be 32, 64 or 128, not 256"),
        ({}, {"ratio": 4}, "ratio must be 1 or 2, not 4"),
        ({}, {"baud": 20_000_000}, "baud rate must be from 9766 to 10000000 at a clock of 40 MHz"),
        ({}, {"clock_mhz": 80}, "SDRAM clock must be from 20 to 133 MHz, not 160"),
    ],
)
def test_bad_input(accelerator, options, message):
    with pytest.raises(ValueError, match=message):
        config(accelerator, **options)
