"""Why points are not reached: the reasons of ``waivers.toml``.

Each waiver names points by ``kind``, ``file`` and ``what``, in which ``*`` stands for any text, and
gives a ``reason``. ``bits = [first, last]`` restricts it to these bits of a signal, and what one of
the patterns ``except`` matches it does not mean. A waiver that matches no point that is unreached
is wrong: what it says has changed.
"""

import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .points import KINDS, Point

__all__ = ["WAIVERS", "Waiver", "WaiverError", "apply_waivers", "read_waivers"]

WAIVERS = Path(__file__).with_name("waivers.toml")
"""The waivers of this project."""

_TEXTS = {"kind", "file", "what", "reason"}
_KEYS = _TEXTS | {"bits", "except"}


class WaiverError(ValueError):
    """A waiver that cannot be, or that matches nothing; the message names it."""


@dataclass(frozen=True, kw_only=True)
class Waiver:
    """Points that need not be reached, and why."""

    kind: str
    file: str
    what: str
    reason: str
    bits: tuple[int, int] | None = None
    exceptions: tuple[str, ...] = ()

    @cached_property
    def _pattern(self):
        return re.compile(_expression(self.file) + "\n" + _expression(self.what))

    @cached_property
    def _exceptions(self):
        return [re.compile(_expression(pattern)) for pattern in self.exceptions]

    def matches(self, point: Point) -> bool:
        """Whether it speaks of ``point``."""
        if point.kind != self.kind or not self._pattern.fullmatch(f"{point.file}\n{point.what}"):
            return False
        if any(pattern.fullmatch(point.what) for pattern in self._exceptions):
            return False
        if self.bits is None:
            return True
        return point.bit is not None and self.bits[0] <= point.bit <= self.bits[1]

    def __str__(self):
        bits = f", bits {self.bits[0]} to {self.bits[1]}" if self.bits else ""
        return f"{self.kind} {self.file}: {self.what}{bits}"


def _expression(pattern):
    return ".*".join(re.escape(part) for part in pattern.split("*"))


def read_waivers(text: str, where: str = WAIVERS.name) -> list[Waiver]:
    """The waivers of a TOML text, in its order.

    Raises
    ------
    WaiverError
        naming ``where`` and the waiver that lacks something or has a wrong value.
    """
    try:
        tables = tomllib.loads(text).get("waiver", [])
    except tomllib.TOMLDecodeError as error:
        raise WaiverError(f"{where}: {error}") from None
    found = []
    for number, table in enumerate(tables, 1):
        place = f"{where}, waiver {number}"
        if wrong := set(table) - _KEYS:
            raise WaiverError(f"{place}: unknown {', '.join(sorted(wrong))}; known are "
                              f"{', '.join(sorted(_KEYS))}")  # fmt: skip
        for key in sorted(_TEXTS):
            if not isinstance(table.get(key), str) or not table[key].strip():
                raise WaiverError(f"{place}: {key} must be a text, not {table.get(key)!r}")
        if table["kind"] not in KINDS:
            raise WaiverError(f"{place}: kind must be one of {', '.join(KINDS)}, "
                              f"not {table['kind']!r}")  # fmt: skip
        bits = table.get("bits")
        if bits is not None:
            if not _are_bits(bits):
                raise WaiverError(f"{place}: bits must be [first, last], not {bits!r}")
            table["bits"] = tuple(bits)
        exceptions = table.pop("except", [])
        if not isinstance(exceptions, list) or not all(type(e) is str for e in exceptions):
            raise WaiverError(f"{place}: except must be a list of texts, not {exceptions!r}")
        found.append(Waiver(**table, exceptions=tuple(exceptions)))
    return found


def _are_bits(bits):
    numbers = isinstance(bits, list) and len(bits) == 2 and all(type(b) is int for b in bits)
    return numbers and 0 <= bits[0] <= bits[1]


def apply_waivers(
    waivers: Iterable[Waiver], unreached: Iterable[Point]
) -> tuple[dict[Point, Waiver], list[Waiver]]:
    """The first waiver of each unreached point that has one, and the waivers that match none."""
    reasons, used = {}, set()
    waivers = list(waivers)
    for point in unreached:
        matching = [number for number, waiver in enumerate(waivers) if waiver.matches(point)]
        used.update(matching)
        if matching:
            reasons[point] = waivers[matching[0]]
    return reasons, [waiver for number, waiver in enumerate(waivers) if number not in used]
