"""Pooling layers in training, from DRAM to DRAM.

All geometry is pairs (vertical, horizontal). Every function raises
:class:`~compiler.errors.CompileError` if a row of what it writes, one word per pixel, with the rows
that belong to it does not fit into the buffer; of those, forward, one is enough.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from math import ldexp
from typing import Any

from compiler.codegen.core_builder import CoreProgram
from compiler.codegen.view import View
from compiler.errors import CompileError
from compiler.kernels.tiling.row_tiling import Part, Role, RowTile, run_row_tiles
from compiler.kernels.tiling.window_bands import run_window_bands
from compiler.kernels.tiling.windows import Lines, Windows
from compiler.tensors.intervals import Pair
from compiler.tensors.tensor import Tensor
from hw.isa.vector import Carry, Condition, Factor, Term

__all__ = ["average_pool", "average_pool_backward", "max_pool", "max_pool_backward", "upsample"]


def max_pool(
    program: CoreProgram,
    x: Tensor,
    y: Tensor,
    places: Tensor | None = None,
    *,
    kernel: Pair,
    stride: Pair,
    padding: Pair = (0, 0),
) -> None:
    """``y``: the maximum of every window; ``places``, if wanted: where it is, an operand that
    stands for ``kh * KW + kw`` (:func:`_marks`).

    The first of the largest elements; of several NaN the last.
    """
    windows = _windows(x, y, kernel, stride, padding)
    vector = program.vector
    marks = _marks(program, windows, y) if places is not None else []

    def larger(o: View, value: View, old: View) -> None:
        """``value`` where it is larger or NaN."""
        vector.emit(o, value, old, condition=Condition.GREATER, carry=Carry.Y, keep=1)

    def place_of(where: View, value: View, old: View, place: int, before: View | None) -> None:
        """``place`` where ``value`` is larger or NaN, else what ``before`` says, or 0."""
        rest: dict[str, Any] = {} if before is None else {"z": before, "carry": Carry.Z, "keep": 1}
        vector.emit(
            where, value, old, term=Term.IMMEDIATE, immediate=marks[place],
            condition=Condition.GREATER, **rest,
        )  # fmt: skip

    def whole(best: View, index: View | None, taps: Sequence[tuple[int, View]]) -> None:
        """Every window has all of its places."""
        old, before = taps[0][1], None
        for place, value in taps[1:]:
            if index is not None:
                place_of(index, value, old, place, before)
            larger(best, value, old)
            old, before = best, index
        if len(taps) == 1:
            vector.copy(best, old)
            if index is not None:
                vector.fill(index, marks[0])

    def begin(tile: RowTile, best: View, *views: View) -> None:
        vector.fill(best, float("-inf"))
        # Minus infinity is not larger than what is there already: the first place is given.
        for index in views[:-1]:
            for place, outputs in windows.first_places(tile.outputs):
                vector.fill(index[:, *outputs], marks[place])

    def go_on(tile: RowTile, best: View, *views: View) -> None:
        for place, outputs, lines in windows.places(tile.outputs, tile.lines):
            value, old = views[-1][:, *lines], best[:, *outputs]
            for index in views[:-1]:
                where = index[:, *outputs]
                place_of(where, value, old, place, where)
            larger(old, value, old)

    def work(tile: RowTile, best: View, *views: View) -> None:
        index = views[0] if places is not None else None
        taps = windows.places(tile.outputs, tile.lines)
        values = [(place, views[-1][:, *lines]) for place, _, lines in taps]
        if len(taps) == windows.count and all(v.shape[:3] == best.shape[:3] for _, v in values):
            whole(best, index, values)
            return
        begin(tile, best, *views)
        go_on(tile, best, *views)

    written = [y] if places is None else [y, places]
    parts = [*(Part(tensor, False, Role.WRITE) for tensor in written), Part(x, True)]
    bands = partial(run_window_bands, program, windows, parts, begin, go_on)
    run_row_tiles(program, windows, parts, work, otherwise=bands)


def max_pool_backward(
    program: CoreProgram,
    dy: Tensor,
    places: Tensor,
    dx: Tensor,
    *,
    kernel: Pair,
    stride: Pair,
    padding: Pair = (0, 0),
) -> None:
    """``dx``: every pixel adds ``dy`` of the windows whose maximum it is."""

    windows = _windows(dx, dy, kernel, stride, padding)
    marks = _marks(program, windows, dy)

    def term(o: View, gradient: View, before: View, place: int, index: View) -> None:
        program.vector.emit(
            o, gradient, before, index, term=Term.ADD, immediate=marks[place],
            condition=Condition.EQUAL, carry=Carry.Y, keep=1,
        )  # fmt: skip

    _scatter(program, windows, [dy, places], dx, term)


def _marks(program: CoreProgram, windows: Windows, outputs: Tensor) -> list[float]:
    """What stands for the places of a window: their numbers, if all of them are operands, else 0
    and the normal operands from the smallest on.

    Raises
    ------
    CompileError
        if there are more places than such operands.
    """
    fmt = program.config.format
    assert fmt.is_float
    if windows.count - 1 <= 1 << fmt.significand_bits:
        return [float(place) for place in range(windows.count)]
    steps = 1 << fmt.mantissa_bits
    most = (fmt.exponent_max - 1) * steps + 1
    if windows.count > most:
        raise CompileError(
            f"layer of {outputs.name}: its windows have {windows.count} places, but {fmt.name} can "
            f"tell only {most} of them apart"
        )
    normal = (ldexp(1 + n % steps / steps, n // steps + 1 - fmt.bias) for n in range(most - 1))
    return [0.0, *islice(normal, windows.count - 1)]


def average_pool(
    program: CoreProgram,
    x: Tensor,
    y: Tensor,
    *,
    kernel: Pair,
    stride: Pair,
    padding: Pair = (0, 0),
    include_pad: bool = True,
    divisor: int | None = None,
) -> None:
    """``y``: the sum of every window, place by place, times a constant: 1 / ``divisor``, or that of
    the window's number of places (:meth:`~compiler.kernels.tiling.windows.Windows.extents`)."""
    windows = _windows(x, y, kernel, stride, padding)
    vector = program.vector

    def whole(out: View, sums: View, taps: Sequence[View], share: float) -> None:
        """Every window has all of its places."""
        first, *others = taps
        for part in others[:-1]:
            first = vector.add(sums, first, part)
        if others:
            vector.emit(out, first, others[-1], share, term=Term.ADD, factor=Factor.Z)
        else:
            vector.scale(out, first, share)

    def begin(tile: RowTile, out: View, sums: View, pixels: View) -> None:
        # -0 and the first element is that element.
        vector.fill(sums, -0.0)

    def go_on(tile: RowTile, out: View, sums: View, pixels: View) -> None:
        for _, outputs, lines in windows.places(tile.outputs, tile.lines):
            vector.add(sums[:, *outputs], sums[:, *outputs], pixels[:, *lines])

    def end(tile: RowTile, out: View, sums: View, pixels: View) -> None:
        for part, share in _shares(windows, tile, include_pad, divisor):
            vector.scale(out[:, *part], sums[:, *part], share)

    def work(tile: RowTile, out: View, sums: View, pixels: View) -> None:
        places = windows.places(tile.outputs, tile.lines)
        shares = _shares(windows, tile, include_pad, divisor)
        taps = [pixels[:, *lines] for *_, lines in places]
        if len(shares) == 1 and len(taps) == windows.count:
            if all(tap.shape[:3] == out.shape[:3] for tap in taps):
                whole(out, sums, taps, shares[0][1])
                return
        begin(tile, out, sums, pixels)
        go_on(tile, out, sums, pixels)
        end(tile, out, sums, pixels)

    parts = [Part(y, False, Role.WRITE), Part(y, False, Role.SUMS), Part(x, True)]
    bands = partial(run_window_bands, program, windows, parts, begin, go_on, end)
    run_row_tiles(program, windows, parts, work, otherwise=bands)


def average_pool_backward(
    program: CoreProgram,
    dy: Tensor,
    dx: Tensor,
    *,
    kernel: Pair,
    stride: Pair,
    padding: Pair = (0, 0),
    include_pad: bool = True,
    divisor: int | None = None,
) -> None:
    """``dx``: every pixel adds the shares of its windows."""
    windows = _windows(dx, dy, kernel, stride, padding)
    shares = _all_shares(windows, include_pad, divisor)
    vector = program.vector

    def term(o: View, gradient: View, before: View, _: int) -> None:
        vector.scale_add(o, gradient, shares[0][1], before)

    def term_of_share(o: View, gradient: View, before: View, _: int) -> None:
        vector.add(o, before, gradient)

    if len(shares) == 1:
        _scatter(program, windows, [dy], dx, term)
        return

    def scale(tile: RowTile, gradient: View, room: View) -> View:
        for part, share in _shares(windows, tile, include_pad, divisor):
            vector.scale(room[:, *part], gradient[:, *part], share)
        return room

    _scatter(program, windows, [dy], dx, term_of_share, scale)


def upsample(program: CoreProgram, x: Tensor, y: Tensor, *, factor: Pair) -> None:
    """``y``: every pixel of ``x`` as a window of ``factor`` pixels."""
    windows = _windows(y, x, factor, factor, (0, 0))

    def work(tile: RowTile, out: View, pixels: View) -> None:
        for _, outputs, lines in windows.places(tile.outputs, tile.lines):
            program.vector.copy(out[:, *lines], pixels[:, *outputs])

    parts = [Part(y, True, Role.WRITE), Part(x, False)]
    run_row_tiles(program, windows, parts, work, cut_map=True)


def _shares(
    windows: Windows, tile: RowTile, include_pad: bool, divisor: int | None
) -> list[tuple[Lines, float]]:
    """[(outputs, what their sums are multiplied by)] of a tile, rectangles of windows."""
    outputs = tile.outputs
    if divisor is not None:
        whole = slice(0, outputs[1] - outputs[0]), slice(0, windows.outputs[1])
        return [(whole, 1.0 / divisor)]
    found = windows.extents(outputs, include_pad=include_pad)
    return [(part, 1.0 / places) for part, places in found]


def _all_shares(
    windows: Windows, include_pad: bool, divisor: int | None
) -> list[tuple[Lines, float]]:
    everything = RowTile(images=(0, 1), outputs=(0, windows.outputs[0]), lines=(0, windows.size[0]))
    return _shares(windows, everything, include_pad, divisor)


def _windows(x: Tensor, y: Tensor, kernel: Pair, stride: Pair, padding: Pair) -> Windows:
    return Windows(
        size=x.shape[1:3], outputs=y.shape[1:3], kernel=kernel, stride=stride, padding=padding
    )


def _scatter(
    program: CoreProgram,
    windows: Windows,
    inputs: Sequence[Tensor],
    dx: Tensor,
    term: Callable[..., None],
    prepare: Callable[[RowTile, View, View], View] | None = None,
) -> None:
    """Add to every pixel of ``dx``, from +0 on, what its windows bring, and round once.

    ``term(o, gradient, before, place, *others)``, on views of ``inputs``, leaves in ``o`` the sum
    ``before`` with what one place of the windows adds. ``prepare(tile, gradient, room)`` makes of
    the first input what ``term`` is given in its place, with room for it in float32.
    """
    vector = program.vector

    def prepared(tile: RowTile, views: Sequence[View]) -> tuple[list[View], View]:
        """Views of the inputs, and of the sums."""
        if prepare is None:
            return list(views[:-1]), views[-1]
        first, *others, room, sums = views
        return [prepare(tile, first, room), *others], sums

    def overlapping(tile: RowTile, out: View, *given: View) -> None:
        views, sums = prepared(tile, given)
        vector.fill(sums, 0.0)
        for place, outputs, lines in reversed(windows.places(tile.outputs, tile.lines)):
            before = sums[:, *lines]
            term(before, views[0][:, *outputs], before, place, *(v[:, *outputs] for v in views[1:]))
        vector.copy(out, sums)

    def apart(tile: RowTile, out: View, *given: View) -> None:
        views, zero = prepared(tile, given)
        places = windows.places(tile.outputs, tile.lines)
        pixels = [out[:, *lines] for *_, lines in places]
        if sum(part.size for part in pixels) < out.size:
            vector.fill(out, 0.0)
        vector.fill(zero, 0.0)
        for (place, outputs, _), o in zip(places, pixels, strict=True):
            term(o, views[0][:, *outputs], zero, place, *(v[:, *outputs] for v in views[1:]))

    parts = [Part(dx, True, Role.WRITE), *(Part(part, False) for part in inputs)]
    if prepare is not None:
        parts.append(Part(inputs[0], False, Role.SUMS))
    # Where windows share no pixel, its sum begins with +0 and ends with one term at most.
    parts.append(Part(dx, True, Role.VECTOR if windows.apart else Role.SUMS))
    run_row_tiles(program, windows, parts, apart if windows.apart else overlapping, cut_map=True)
