"""The boards there are: what is on them, and what fits."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from boards.soc.sdram.timing import CHIPS
from boards.soc.system import SystemConfig
from hw.config.selection import select_config

__all__ = ["BOARDS", "Board", "BoardError", "board_by_name"]


class BoardError(ValueError):
    """Wrong input: a name that nobody has, a frequency that cannot be had."""


@dataclass(frozen=True, kw_only=True)
class Board:
    """One board.

    Members
    -------
    devices : FPGAs that it is made with, see :mod:`synth.fpga.devices`; the first is meant unless
        another is asked for
    package, speed : of all of them
    chips : of :data:`~boards.soc.sdram.timing.CHIPS`, those that boards have been made with
    input_mhz : the clock on the board
    clock_mhz : of the accelerator, unless told otherwise
    preset, settings : of the accelerator, unless told otherwise
    device_settings : FPGA -> beside ``settings``, where it is not the first
    small : FPGAs that are crowded: the whole design is mapped at once, which takes longer and gives
        fewer cells, and wires may go further around
    baud : most bits per second of the host link
    """

    name: str
    title: str
    devices: tuple[str, ...]
    package: str
    speed: str
    chips: tuple[str, ...]
    input_mhz: float
    clock_mhz: float
    ratio: int
    baud: int
    preset: str
    settings: dict[str, str] = field(default_factory=dict)
    device_settings: dict[str, dict[str, str]] = field(default_factory=dict)
    small: tuple[str, ...] = ()

    def config(
        self, *, variant: str = "baseline", settings: Iterable[str] = (), chip: str = "any",
        clock_mhz: float | None = None, ratio: int | None = None, baud: int | None = None,
    ) -> SystemConfig:  # fmt: skip
        """What is built of it.

        ``settings``: "key=value" of the accelerator's fields, in place of the board's own.

        Raises
        ------
        ConfigError, BoardError
            with everything that is wrong
        """
        if chip not in CHIPS:
            raise BoardError(f"chip must be one of {', '.join(CHIPS)}, not {chip!r}")
        given = {setting.partition("=")[0].strip() for setting in settings}
        own = [f"{key}={value}" for key, value in self.settings.items() if key not in given]
        accelerator = select_config(variant=variant, preset=self.preset, settings=[*own, *settings])
        try:
            return SystemConfig(
                accelerator=accelerator,
                chip=CHIPS[chip],
                clock_mhz=self.clock_mhz if clock_mhz is None else clock_mhz,
                ratio=self.ratio if ratio is None else ratio,
                baud=self.baud if baud is None else baud,
            )
        except ValueError as error:
            raise BoardError(str(error)) from None

    def with_device(self, device: str) -> "Board":
        """The same with this FPGA. Raises :class:`BoardError` with those that there are."""
        if device not in self.devices:
            raise BoardError(f"device must be one of {', '.join(self.devices)}, not {device!r}")
        settings = self.settings | self.device_settings.get(device, {})
        return replace(self, devices=(device,), settings=settings)

    @property
    def device(self) -> str:
        """The FPGA."""
        return self.devices[0]

    @property
    def peak_mbytes(self) -> float:
        """Most that the memory moves, in 10^6 bytes a second."""
        return 2 * self.clock_mhz * self.ratio


_ULX3S = Board(
    name="ulx3s",
    title="Radiona ULX3S",
    devices=("LFE5U-85F", "LFE5U-45F", "LFE5U-25F"),
    package="CABGA381",
    speed="6",
    chips=tuple(CHIPS),
    input_mhz=25.0,
    clock_mhz=40.0,
    ratio=2,
    baud=3_000_000,
    preset="ulx3s",
    settings={"columns": "4", "training": "true", "axi_data_width": "32"},
    # About 1,800 sites less for 1.2 % more cycles of a batch of digits (docs/boards.md).
    device_settings={
        device: {"command_queue_depth": "2", "buffer_banks": "1", "buffer_bank_depth": "4096"}
        for device in ("LFE5U-45F", "LFE5U-25F")
    },
    small=("LFE5U-45F", "LFE5U-25F"),
)

#: Name -> board.
BOARDS = {board.name: board for board in (_ULX3S,)}


def board_by_name(name: str) -> Board:
    """The board of that name; raises :class:`BoardError`, with the names there are."""
    if name in BOARDS:
        return BOARDS[name]
    close = difflib.get_close_matches(name, BOARDS, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise BoardError(f"board must be one of {', '.join(BOARDS)}, not {name!r}{hint}")
