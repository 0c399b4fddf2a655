"""How a product is cut whose lines, weights or results do not fit into the buffer."""

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.tensors.intervals import Interval, PixelBox, even_parts

__all__ = ["Axis", "Box", "Cut", "contraction_boxes", "cuts", "has_outputs"]

#: Blocks of source channels, rows and columns among the taps, (begin, end) each.
Box = tuple[Interval, Interval, Interval]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """How the outputs of a phase read the source along one axis.

    Members
    -------
    offset, step : the first output, and from one to the next
    origin : source line of the first output and tap; may lie outside
    stride, advance : source lines from one output, one tap to the next
    taps : kernel lines in the order in which they are added
    """

    offset: int = 0
    step: int = 1
    origin: int
    stride: int
    advance: int
    taps: range

    def numbers(self, outputs: Interval) -> Interval:
        """Numbers [begin, end) of the phase's lines among ``outputs``."""
        begin, end = (-(-(line - self.offset) // self.step) for line in outputs)
        return begin, max(begin, end)

    def span(self, outputs: int, taps: int, size: int) -> int:
        """Source lines of so many outputs and taps, at most."""
        return min(size, (outputs - 1) * self.stride + (taps - 1) * self.advance + 1)


@dataclass(frozen=True)
class Cut:
    """Sizes: images, rows and columns of a tile of outputs, column tiles whose results are stored
    together, blocks, rows and columns of taps of a box of the contraction."""

    images: int
    rows: int
    columns: int
    group: int
    blocks: int
    tap_rows: int
    tap_columns: int


def _halves(size: int) -> Iterator[int]:
    """size, half of it, ..., 1."""
    while size:
        yield size
        size = size // 2 if size == 1 else -(-size // 2)


def _lines(size: int, step: int) -> list[int]:
    """Lines of parts."""
    whole = [count * step for count in _halves(-(-size // step))]
    return [*whole, *(count for count in _halves(step) if count < step)]


def cuts(
    images: int, height: int, width: int, step: tuple[int, int], tiles: int, blocks: int,
    taps: tuple[int, int], vectors: int,
) -> Iterator[Cut]:  # fmt: skip
    """Sizes worth a try: parts of the map are multiples of ``step`` lines, or fewer than these; one
    has as many lines as fit into accumulators for so many ``vectors`` of each phase."""
    rows, columns = _lines(height, step[0]), _lines(width, step[1])
    shapes = [(n, height, width) for n in _halves(images)]
    shapes += [(1, count, width) for count in rows]
    if most := vectors // -(-width // step[1]) * step[0]:
        shapes.append((1, min(most, height), width))
    shapes += [(1, min(step[0], height), count) for count in columns]
    shapes += [(1, 1, count) for count in columns]
    boxes = [(count, *taps) for count in _halves(blocks)]
    boxes += [(1, rows, taps[1]) for rows in _halves(taps[0])]
    boxes += [(1, 1, columns) for columns in _halves(taps[1])]
    for shape in dict.fromkeys(shapes):
        for group in _halves(tiles):
            for box in dict.fromkeys(boxes):
                yield Cut(*shape, group, *box)


def contraction_boxes(cut: Cut, blocks: Interval, taps: tuple[int, int]) -> list[Box]:
    """Boxes of K tiles in the order of golden: words of channels, then rows, then columns."""
    rows, columns = ((0, count) for count in taps)
    if cut.tap_rows >= taps[0] and cut.tap_columns >= taps[1]:
        return [(part, rows, columns) for part in even_parts(*blocks, cut.blocks)]
    singles = [(b, b + 1) for b in range(*blocks)]
    if cut.tap_columns >= taps[1]:
        return [(b, part, columns) for b in singles for part in even_parts(*rows, cut.tap_rows)]
    return [
        (b, (row, row + 1), part)
        for b in singles
        for row in range(taps[0])
        for part in even_parts(*columns, cut.tap_columns)
    ]


def has_outputs(phase: tuple[Axis, Axis], box: PixelBox) -> bool:
    """Whether some outputs of a box are those of a phase."""
    numbers = (axis.numbers(part) for axis, part in zip(phase, box[1:], strict=True))
    return all(end > begin for begin, end in numbers)
