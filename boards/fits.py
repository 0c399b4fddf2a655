"""Which arrays fit: some were built, the rest is counted from what was measured."""

from dataclasses import dataclass

from boards.catalogue import Board
from synth.fpga.devices import device_by_name

__all__ = ["ARRAYS", "MOST", "Fit", "fits"]

#: (rows, columns) that are looked at.
ARRAYS = ((4, 4), (4, 8), (8, 8), (8, 12), (12, 9), (12, 12), (12, 15))
#: What has been placed and routed on the board, with engines: device, rows, columns -> sites.
_BUILT = {
    ("LFE5U-85F", 4, 4): 36_028, ("LFE5U-85F", 8, 8): 50_068, ("LFE5U-45F", 4, 4): 33_278,
}  # fmt: skip
#: Sites for look-up tables that a processing element of bf16 takes: 12 x 9 PEs with both engines
#: less 12 x 6 (docs/results_fpga.md).
_PER_PE = (59_149 - 51_039) / 36
#: What else is there, by whether there are training engines, (sites, rows of the array): with
#: them from 4 x 4 PEs on the board (docs/boards.md), without from 12 x 15 (docs/results_fpga.md),
#: whose two rows of multipliers in look-up tables are counted as well.
_REST = {True: _BUILT["LFE5U-85F", 4, 4] - 16 * _PER_PE, False: 60_226 - 180 * _PER_PE}
#: A row more, with engines: the rest of 12 x 6 PEs less that of 4 x 4, in eight rows.
_PER_ROW = (51_039 - 72 * _PER_PE - _REST[True]) / 8
#: Multipliers beside those of the PEs: 30 of 4 x 4.
_MULTIPLIERS = 14
#: Share of the sites up to which a design has been routed (12 x 15 PEs without engines).
MOST = 0.78


@dataclass(frozen=True, kw_only=True)
class Fit:
    """An array on a device.

    Members
    -------
    share : of the sites for look-up tables
    built : it was placed and routed; else the share is counted
    """

    rows: int
    columns: int
    share: float
    built: bool


def fits(board: Board, device: str, *, training: bool) -> list[Fit]:
    """Arrays of :data:`ARRAYS` that fit an FPGA of the board with a share of at most
    :data:`MOST`, with ``training`` engines or without."""
    available = device_by_name(device).available
    found = []
    for rows, columns in ARRAYS:
        pes = rows * columns
        counted = _REST[training] + pes * _PER_PE + (rows - 4) * _PER_ROW * training
        measured = _BUILT.get((device, rows, columns), 0) if training else 0
        share, built = (measured or counted) / available["COMB"], measured > 0
        room = pes + _MULTIPLIERS <= available["MULT18X18D"]
        if built or (share <= MOST and room):
            found.append(Fit(rows=rows, columns=columns, share=share, built=built))
    return found
