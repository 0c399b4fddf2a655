"""Every pin of the top has a place, which no other has, and the board's clock its frequency."""

import re

from boards.bitstream.constraints import constraints
from boards.soc.pads import SDRAM_PINS
from boards.soc.top import TOP_PINS


def test_pins():
    text = constraints()
    places = dict(re.findall(r'^LOCATE COMP "(.*)" SITE "(.*)";$', text, re.M))
    pins = {**TOP_PINS, **{f"sdram_{name}": pin for name, pin in SDRAM_PINS.items()}}
    expected = {
        name if bits == 1 else f"{name}[{bit}]"
        for name, (bits, _) in pins.items()
        for bit in range(bits)
    }
    assert set(places) == expected
    assert len(set(places.values())) == len(places)
    driven = set(re.findall(r'^IOBUF PORT "(.*?)" .*IO_TYPE=LVCMOS33', text, re.M))
    assert driven == expected
    # The schematic of the board.
    assert places["clk25"] == "G2" and places["uart_rx"] == "M1" and places["sdram_clk"] == "F19"
    assert places["sdram_dq[15]"] == "J17" and places["led[7]"] == "H3"
    assert text.count("FREQUENCY") == 1 and 'FREQUENCY PORT "clk25" 25 MHZ;' in text
