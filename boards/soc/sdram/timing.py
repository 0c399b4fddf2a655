"""SDRAM chips: geometry, times of their speed grades, and what these are in cycles.

docs/boards.md has the data sheets that they were compared with.
"""

from dataclasses import dataclass, fields, replace
from math import ceil

__all__ = [
    "CHIPS",
    "FAULTS",
    "INITIAL_REFRESHES",
    "WORD_BYTES",
    "SdramChip",
    "SdramCycles",
    "fault",
]

#: What one column command moves: two transfers of 16 bits.
WORD_BYTES = 4
#: Refreshes of all rows in the initialisation; two are asked for, eight are usual.
INITIAL_REFRESHES = 8


@dataclass(frozen=True, kw_only=True)
class SdramChip:
    """A single data rate SDRAM with 16 data bits and four banks.

    Members
    -------
    row_width, column_width : address bits; a column is 16 bits
    rcd_ns : ACTIVATE to READ or WRITE
    rp_ns : PRECHARGE to ACTIVATE
    ras_ns : ACTIVATE to PRECHARGE, at least
    ras_most_us : and at most
    rc_ns : ACTIVATE to ACTIVATE of a bank
    rrd_ns : ACTIVATE to ACTIVATE of another bank
    rfc_ns : REFRESH to any command
    wr_ns : last data of a WRITE to PRECHARGE
    mrd_cycles : MODE REGISTER SET to any command
    refresh_ms : in which every row is refreshed once
    init_us : from the first clock to the first command
    cas2_ns : shortest clock period for a CAS latency of 2; 3 is good for all frequencies here
    """

    name: str
    row_width: int = 13
    column_width: int
    rcd_ns: float
    rp_ns: float
    ras_ns: float
    ras_most_us: float = 100.0
    rc_ns: float
    rrd_ns: float
    rfc_ns: float
    wr_ns: float
    mrd_cycles: int = 2
    refresh_ms: float = 64.0
    init_us: float
    cas2_ns: float = 10.0

    @property
    def size_bytes(self) -> int:
        return 2 << (2 + self.row_width + self.column_width)


_CHIPS = (
    SdramChip(
        name="MT48LC16M16A2-75", column_width=9, rcd_ns=20, rp_ns=20, ras_ns=44, rc_ns=66,
        rrd_ns=15, rfc_ns=66, wr_ns=15, init_us=100,
    ),
    SdramChip(
        name="IS42S16160G-7", column_width=9, rcd_ns=20, rp_ns=20, ras_ns=45, rc_ns=67.5,
        rrd_ns=15, rfc_ns=70, wr_ns=20, init_us=200,
    ),
    SdramChip(
        name="AS4C32M16SB-7", column_width=10, rcd_ns=21, rp_ns=21, ras_ns=42, rc_ns=63,
        rrd_ns=14, rfc_ns=63, wr_ns=14, init_us=200,
    ),
)  # fmt: skip


def _common(chips) -> SdramChip:
    """What works with each of them: the longest times, the smallest geometry."""
    smallest = ("column_width", "row_width", "refresh_ms", "ras_most_us")
    values = {
        field.name: (min if field.name in smallest else max)(
            getattr(chip, field.name) for chip in chips
        )
        for field in fields(SdramChip)
        if field.name != "name"
    }
    return SdramChip(name="any", **values)


#: Name -> chip; "any" works with each of them.
CHIPS = {chip.name: chip for chip in (_common(_CHIPS), *_CHIPS)}


@dataclass(frozen=True, kw_only=True)
class SdramCycles:
    """The times of a chip in SDRAM cycles at one frequency.

    Raises
    ------
    ValueError
        if the frequency is not from 20 to 133 MHz
    """

    chip: SdramChip
    clock_mhz: float

    def __post_init__(self) -> None:
        if not 20 <= self.clock_mhz <= 133:
            raise ValueError(f"SDRAM clock must be from 20 to 133 MHz, not {self.clock_mhz:g}")

    def cycles(self, ns: float) -> int:
        """Least number of cycles that take so long."""
        return ceil(round(ns * self.clock_mhz / 1000, 6))

    @property
    def cas(self) -> int:
        """CAS latency."""
        return 2 if 1000 / self.clock_mhz >= self.chip.cas2_ns else 3

    @property
    def rcd(self) -> int:
        return self.cycles(self.chip.rcd_ns)

    @property
    def rp(self) -> int:
        return self.cycles(self.chip.rp_ns)

    @property
    def ras(self) -> int:
        return self.cycles(self.chip.ras_ns)

    @property
    def rc(self) -> int:
        return self.cycles(self.chip.rc_ns)

    @property
    def rrd(self) -> int:
        return self.cycles(self.chip.rrd_ns)

    @property
    def rfc(self) -> int:
        return self.cycles(self.chip.rfc_ns)

    @property
    def wr(self) -> int:
        return self.cycles(self.chip.wr_ns)

    @property
    def mrd(self) -> int:
        return self.chip.mrd_cycles

    @property
    def init(self) -> int:
        return self.cycles(self.chip.init_us * 1000)

    @property
    def refresh(self) -> int:
        """Cycles from one refresh to the next, on the average."""
        return int(self.chip.refresh_ms * 1e6 / (1 << self.chip.row_width) * self.clock_mhz / 1000)

    @property
    def ras_most(self) -> int:
        return int(self.chip.ras_most_us * self.clock_mhz)


#: Name -> (what the controller is made for, what the chip is), where they differ from the chip that
#: is asked for.
_FAULTS: dict[str, tuple[dict, dict]] = {
    # A controller cannot be made too fast for a chip: its pipeline has three cycles anyway.
    "trcd": ({}, {"rcd_ns": 200.0}),
    "refresh": ({"refresh_ms": 64e3}, {}),
    "init": ({"init_us": 0.0}, {}),
}
FAULTS = tuple(_FAULTS)


def fault(chip: SdramChip, name: str) -> tuple[SdramChip, SdramChip]:
    """What a controller is made for, and the chip that it meets: they do not fit each other, to see
    that the checks of the chip's model notice. ``name``: of :data:`FAULTS`, "" for none."""
    made_for, real = _FAULTS.get(name, ({}, {}))
    return replace(chip, **made_for), replace(chip, **real)
