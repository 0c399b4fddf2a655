"""Column tiles of a product in training: the channels that pass through the array together."""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Self

from hw.config import CoreConfig

from .intervals import Interval, round_up

__all__ = ["ColumnTiles"]


@dataclass(frozen=True)
class ColumnTiles:
    """``channels`` in tiles of ``width``; the last one has what is left.

    Tiles are as equal as whole buffer words allow, or else whole groups of ``post_lanes``: POST
    takes as long for a tile as it is wide, the array always the same, so one after the other of
    unlike tiles would make each wait for the other. Finite results do not depend on the tiles.
    """

    channels: int
    width: int

    @classmethod
    def of(cls, channels: int, core: CoreConfig, groups: int = 1) -> Self:
        """Tiles of a core; those of a grouped convolution have all ``columns``, because the tiles
        decide which infinities meet zeros (docs/training.md)."""
        if groups > 1:
            return cls(channels, core.columns)
        even = -(-channels // -(-channels // core.columns))
        word = round_up(even, core.rows)
        return cls(channels, word if word <= core.columns else round_up(even, core.post_lanes))

    @property
    def count(self) -> int:
        return -(-self.channels // self.width)

    def range(self, tile: int) -> Interval:
        """(begin, end) of its channels."""
        return tile * self.width, min((tile + 1) * self.width, self.channels)

    def edges(self, tiles: Interval, item: int, word_bytes: int) -> list[int]:
        """Those of ``tiles`` [begin, end) behind the first that begin with a word, where the first
        one does and a channel has ``item`` bytes."""
        first = self.range(tiles[0])[0]
        begins = ((tile, self.range(tile)[0] - first) for tile in range(tiles[0] + 1, tiles[1]))
        return [tile for tile, begin in begins if not begin * item % word_bytes]

    def groups(self, most: int, item: int, word_bytes: int) -> list[Interval]:
        """All tiles in groups [begin, end) that begin with a word, of at most so many tiles where
        there are such groups."""
        edges = [*self.edges((0, self.count), item, word_bytes), self.count]
        groups, begin = [], 0
        while begin < self.count:
            place = bisect_right(edges, begin + most)
            if not place or edges[place - 1] <= begin:
                place += 1
            groups.append((begin, edges[place - 1]))
            begin = edges[place - 1]
        return groups
