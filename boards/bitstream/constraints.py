"""The pins of a ULX3S and its clock, as nextpnr reads them (LPF), from amaranth-boards' table."""

from amaranth_boards.ulx3s import ULX3S_85F_Platform

from boards.soc.pads import SDRAM_PINS
from boards.soc.top import TOP_PINS

__all__ = ["constraints"]

#: Port of the top module -> (resource, number, part of it) in the table.
_PLACES = {
    "clk25": ("clk25", 0, None),
    "uart_rx": ("uart", 0, "rx"),
    "uart_tx": ("uart", 0, "tx"),
    **{f"sdram_{name}": ("sdram", 0, name) for name in SDRAM_PINS},
    "sdram_cke": ("sdram", 0, "clk_en"),
    "sdram_cs_n": ("sdram", 0, "cs"),
    "sdram_ras_n": ("sdram", 0, "ras"),
    "sdram_cas_n": ("sdram", 0, "cas"),
    "sdram_we_n": ("sdram", 0, "we"),
}


def constraints() -> str:
    """Where every pin is and how it is driven, and how fast the board's clock is."""
    resources = {(r.name, r.number): r for r in ULX3S_85F_Platform.resources}
    lines = ["BLOCK RESETPATHS;", "BLOCK ASYNCPATHS;"]
    for port, (bits, _way) in {**TOP_PINS, **_named(SDRAM_PINS)}.items():
        if port == "led":
            pins = [_pins(resources["led", bit], None) for bit in range(bits)]
            names, attributes = [names[0] for names, _ in pins], pins[0][1]
        else:
            name, number, part = _PLACES[port]
            names, attributes = _pins(resources[name, number], part)
        if len(names) != bits:
            raise ValueError(f"{port} has {bits} bits, but the board {len(names)} pins for it")
        for bit, site in enumerate(names):
            signal = port if bits == 1 else f"{port}[{bit}]"
            lines.append(f'LOCATE COMP "{signal}" SITE "{site}";')
            settings = " ".join(f"{key}={value}" for key, value in attributes.items())
            lines.append(f'IOBUF PORT "{signal}" {settings};')
    lines.append(f'FREQUENCY PORT "clk25" {_clock_mhz(resources):g} MHZ;')
    return "\n".join([*lines, ""])


def _named(pins):
    return {f"sdram_{name}": pin for name, pin in pins.items()}


def _clock_mhz(resources) -> float:
    return resources["clk25", 0].clock.frequency / 1e6


def _pins(resource, part):
    """Sites of a resource or of a part of it, and how they are driven."""
    signal = resource
    attributes = dict(resource.attrs)
    if part is not None:
        signal = next(io for io in resource.ios if io.name == part)
        attributes |= signal.attrs
    return list(signal.ios[0].names), attributes
