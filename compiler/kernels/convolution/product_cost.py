"""How a product in tiles compares with the same in boxes of the contraction."""

from collections.abc import Callable, Sequence

from compiler.codegen.core_builder import Job
from compiler.errors import CompileError

from .blocked_product import BlockedProduct
from .blocked_sizes import JOB_CYCLES
from .conv_tiling import MapTile

__all__ = ["blocked_jobs", "tiled_cycles"]

#: Tiles that take no more than so many times as long as their vectors, or as boxes, stay: what
#: seems to be late comes in time then, and tiles take fewer commands.
_GOOD = 1.2
#: Boxes are as good as tiles that take the same time, if there are so many tiles and at most one
#: box for so many of them: they take fewer commands.
_MANY, _FEWER = 512, 2
#: One part of the buffer in so many is not counted on: what is in use leaves room in pieces.
_SPARE = 8


def tiled_cycles(
    tiles: Sequence[MapTile],
    *,
    array: Callable[[MapTile, int], int],
    least: int,
    size: Callable[[MapTile], int],
    source: Callable[[MapTile], int],
    weights: Sequence[tuple[int, int]],
    room: int,
) -> tuple[int, int]:
    """(vectors that enter the array, cycles until they have with what they wait for), about.

    Loads hide if they take half the time: where they take longer, each waits for a place that what
    is computed leaves late.

    Parameters
    ----------
    tiles : images and rows
    array : cycles of the array for a tile, all column tiles, where a K tile takes at least so many
    least : cycles that a K tile takes at least
    size : words of a tile, and of what it reads
    source : cycles that what a tile reads takes to load
    weights : words of those that are loaded together, and the cycles that this takes
    room : words of the buffer
    """
    largest = max(map(size, tiles))
    stay = sum(words for words, _ in weights) + 2 * largest <= room
    again = 0 if stay else sum(cycles for _, cycles in weights)
    twice = 2 * (largest + max(words for words, _ in weights))
    hidden = stay or twice <= room - room // _SPARE
    shapes: dict[tuple[int, int, bool], tuple[int, int]] = {}
    vectors = total = 0
    for images, rows in tiles:
        # Lines at an edge read fewer others.
        key = images[1] - images[0], rows[1] - rows[0], rows[0] == 0
        if key not in shapes:
            part = images, rows
            alone, loads = array(part, least), source(part) + again
            shapes[key] = array(part, 1), max(alone, 2 * loads) if hidden else alone + loads
        vectors += shapes[key][0]
        total += shapes[key][1]
    return vectors, total


def blocked_jobs(
    blocked: BlockedProduct, cycles: tuple[int, int] | None, count: int, more: int = 0, *,
    again: int = 0, looks: bool = False,
) -> list[Job] | None:  # fmt: skip
    """Jobs of a product in boxes, if there are no tiles that would be about as quick, or if they
    are far fewer.

    Parameters
    ----------
    cycles : what :func:`tiled_cycles` says, or None where there are no tiles
    count : jobs of the tiles
    more : cycles that boxes cost besides
    again : cycles for reading the map again where boxes do not look at its parts
    looks : whether the tiles do

    Raises
    ------
    CompileError
        if neither can be done, or takes more jobs than the program can use
        (:meth:`~compiler.codegen.core_builder.CoreProgram.expect`).
    """
    seen = looks or not again  # what somebody wants to see of the map, if tiles are taken
    good = seen and cycles is not None and cycles[1] <= _GOOD * cycles[0]
    if good and count < _MANY:
        return None
    try:
        cut, least = blocked.plan(again)
    except CompileError:
        if cycles is None:
            raise
        return None
    boxes = blocked.count(cut)
    blocked.program.expect(boxes if cycles is None else min(count, boxes))
    jobs = blocked.jobs(cut)
    more += 0 if blocked.looks else again
    if cycles is not None and (seen or not blocked.looks):
        fewer = _FEWER * len(jobs) <= count and least + more <= cycles[1] + count * JOB_CYCLES
        if not fewer and (good or cycles[1] <= _GOOD * least + more):
            return None
    elif cycles is not None and cycles[1] <= least + more:
        return None
    return jobs
