"""Product of a convolution, forward or for its input gradient, in boxes of any size."""

from collections.abc import Hashable, Sequence
from functools import cached_property, partial
from itertools import product

from compiler.codegen.convolution_walk import clip, matmul_walk, window_range
from compiler.codegen.core_builder import Job, Need
from compiler.codegen.cost import Fields
from compiler.codegen.scratchpad import Block
from compiler.kernels.tiling.late_work import Late, behind
from compiler.tensors.intervals import Interval, PixelBox, even_parts
from compiler.tensors.tensor import IN_ORDER, Order, strides_of
from hw.isa.encoding import Init

from .blocked_cut import Box, Cut, contraction_boxes, has_outputs
from .blocked_sizes import BlockedSizes, Phase
from .part_statistics import PartStatistics

__all__ = ["BlockedProduct"]

#: What is behind the last results does not count up to such a share of a product: boxes of fewer
#: results would have less behind them, but are slower than they seem.
_LITTLE = 0.01


class BlockedProduct(BlockedSizes):
    """Writes a product in the boxes that :class:`~.blocked_sizes.BlockedSizes` chooses: for what is
    too large for one box, or slow in it.

    Members
    -------
    statistics : of the target's parts, if somebody wants them
    looks : whether the jobs write these, too: boxes are whole parts
    """

    statistics: PartStatistics | None = None
    looks = False

    def jobs(self, cut: Cut) -> list[Job]:
        """Jobs that write all of the target."""
        jobs: list[tuple[Job, Sequence[Late]]] = []
        groups = self._groups(cut.group)
        self.looks = self.can_look(cut)
        _, *self._read_words, _ = self.box_words(cut, self.spans(cut))
        for box in self._boxes(cut):
            for group in groups:
                jobs += self._group_jobs(cut, box, group)
        return behind(jobs)

    def count(self, cut: Cut) -> int:
        """How many jobs that are, without those that are behind others."""
        boxes, tiles = self._boxes(cut), range(self.tiles.count)
        return sum(
            sum(has_outputs(phase, box) for box in boxes)
            * sum(len(self._contraction(cut, tile, phase)) for tile in tiles)
            for phase in self.phases
        )

    def _contraction(self, cut: Cut, tile: int, phase: Phase) -> list[Box | None]:
        """Boxes of the contraction of a column tile and phase; None is one without taps."""
        taps = len(phase[0].taps), len(phase[1].taps)
        channels = self.blocks(self.tiles.range(tile))
        return [*contraction_boxes(cut, channels, taps)] if all(taps) else [None]

    def _boxes(self, cut: Cut) -> list[PixelBox]:
        """Those of outputs."""
        images, height, width, _ = self.target.shape
        columns = self._parts(width, cut.columns, self.step[1])
        rows = self._parts(height, cut.rows, self.step[0])
        return [*product(even_parts(0, images, cut.images), rows, columns)]

    def _contractions(self, cut: Cut) -> int:
        """Boxes of the contraction of a column tile, at least."""
        return len(contraction_boxes(cut, (0, self._least_blocks), self._taps()))

    @cached_property
    def _least_blocks(self) -> int:
        """Words of source channels of the column tile that reads the fewest."""
        channels = map(self.tiles.range, range(self.tiles.count))
        return min(end - begin for begin, end in map(self.blocks, channels))

    def _early(self, cut: Cut) -> int:
        """Jobs of a group before there is something in the block of its results, if there are
        some: what is left to do with results before can be over then, and their block is free."""
        count = self._contractions(cut)
        return count - 1 if count > 3 else 0

    def can_look(self, cut: Cut) -> bool:
        """Whether somebody wants statistics and all boxes are whole parts, whose results have room,
        beside the next ones unless they are gone by then."""
        most = self._most(cut)
        if self.statistics is None or most is None:
            return False
        out, *_, inputs = self.box_words(cut, self.spans(cut))
        out += self.statistics.room(most, self.largest(cut))
        room = self.program.scratch.words
        return (out + 2 * inputs if self._early(cut) else 2 * out + inputs) <= room

    def _most(self, cut: Cut) -> Interval | None:
        """As many parts as the largest box is; None if nobody wants statistics, or boxes are no
        whole parts."""
        if self.statistics is None or cut.columns < self.target.shape[2]:
            return None
        most = 0
        for images, rows, _ in self._boxes(cut):
            parts = self.statistics.numbers(images, rows)
            if parts is None:
                return None
            most = max(most, parts[1] - parts[0])
        return 0, most

    def looking(self, cut: Cut, cost: float) -> float:
        """What is behind the results of the last group, and what those before make the array wait
        for."""
        most = self._most(cut)
        assert self.statistics and most
        late = self.statistics.cycles(most, self.largest(cut))
        groups, boxes = self._groups(cut.group), len(self._boxes(cut))
        sizes = [end - begin for begin, end in groups]
        early = self._early(cut)
        # It begins behind the first of these, when results have been stored.
        jobs = early - 2 if early else max(sizes) * self._contractions(cut)
        time = jobs * cost / (boxes * self.tiles.count * self._contractions(cut))
        behind = max(0.0, late * sizes[-1] / max(sizes) - cost * _LITTLE)
        return behind + (boxes * len(groups) - 1) * max(0.0, late - time)

    def _group_jobs(
        self, cut: Cut, box: PixelBox, group: Interval
    ) -> list[tuple[Job, Sequence[Late]]]:
        pixels = 1
        for begin, end in box:
            pixels *= end - begin
        channels = self._channels(group)
        statistics, parts = self.statistics, self._seen(box)
        room = statistics.room(parts, channels) if statistics and parts else 0
        output = Need(object(), pixels * self.program.words(self.target, channels) + room)
        jobs: list[Job] = []
        for tile in range(*group):
            for phase in self.phases:
                if has_outputs(phase, box):
                    jobs += self._phase_jobs(cut, box, group, tile, phase, output, bool(jobs))
        if not jobs:
            return []
        late: Sequence[Late] = ()
        if statistics and parts:
            store = partial(self._store, box, channels)
            early = self._early(cut)
            late = statistics.late(
                parts, output, early - 1 if early else len(jobs), channels=channels, store=store,
                holds=early > 0,
            )  # fmt: skip
        *others, last = jobs
        last = last._replace(run=partial(last.run, ends=True), like=(last.like, "ends"))
        return [*((job, ()) for job in others), (last, late)]

    def _order(self, box: PixelBox, channels: Interval) -> Order:
        """Axes as the pixels of results lie in their block."""
        statistics, parts = self.statistics, self._seen(box)
        return statistics.order(parts, channels) if statistics and parts else self.target.order

    def _seen(self, box: PixelBox) -> Interval | None:
        """Parts of which a box of outputs consists, if the jobs take their statistics."""
        return self.statistics.numbers(box[0], box[1]) if self.statistics and self.looks else None

    def _phase_jobs(
        self, cut: Cut, box: PixelBox, group: Interval, tile: int, phase: Phase, output: Need,
        written: bool,
    ) -> list[Job]:  # fmt: skip
        """The boxes of a column tile and phase; ``written``: of some that were before them, too."""
        program = self.program
        boxes = self._contraction(cut, tile, phase)
        jobs = []
        for part in boxes:
            ends = part is boxes[0], part is boxes[-1]
            # There are no results before the first sums are complete.
            writes = written or ends[1]
            needs = [output] if writes else []
            if part is not None:
                # Blocks of one size take each other's places, where there are no others.
                reads = self._source_need(box, phase, part), self._weights_need(tile, phase, part)
                for need, words in zip(reads, self._read_words, strict=True):
                    alike = need.place is None and not program.in_turns
                    needs.append(need._replace(words=words) if alike else need)
                bias = self.bias_need(tile) if part is boxes[0] else None
                needs += [bias] if bias else []
            like = self._likeness(box, group, tile, phase, part)
            at = (
                *(begin for begin, _ in box),
                self.tiles.range(tile)[0],
                part[0][0] if part else 0,
            )
            run = partial(self._run, box, group, tile, phase, part, *ends, writes)
            jobs.append(Job(tuple(needs), run, like=(like, ends, writes), at=at))
        return jobs

    def _likeness(
        self, box: PixelBox, group: Interval, tile: int, phase: Phase, part: Box | None
    ) -> tuple[object, ...]:
        """What boxes have in common that differ in where they lie in DRAM alone."""
        (begin, end), channels = self.tiles.range(tile), self._channels(group)
        like = (
            self.phases.index(phase), *(b - a for a, b in box),
            *(part[0] % step for part, step in zip(box[1:], self.step, strict=True)),
            begin - channels[0], end - begin, channels[1] - channels[0], begin % self.core.rows,
        )  # fmt: skip
        if part is None:
            return like
        inputs, outputs = self.weights_box(tile, part[0])
        lines = self._lines(box, phase, part)
        begins = [(first - start, last - first) for start, (first, last) in lines]
        sizes = part[0][1] - part[0][0], inputs[1] - inputs[0], outputs[1] - outputs[0]
        return *like, *part[1:], *begins, *sizes

    def _lines(self, box: PixelBox, phase: Phase, part: Box) -> list[tuple[int, Interval]]:
        """Of rows and columns of the source for a box of outputs and taps: where the first output
        would begin, and [first, last) of those that are there."""
        key = *box[1:], phase, *part[1:]
        if key not in self._known_lines:
            found = []
            sizes = self.source.shape[1:3]
            for axis, outputs, taps, size in zip(phase, box[1:], part[1:], sizes, strict=True):
                numbers = axis.numbers(outputs)
                lines = window_range(
                    numbers, taps, stride=axis.stride, padding=-axis.origin, dilation=axis.advance
                )
                found.append((numbers[0] * axis.stride, clip(*lines, size)))
            self._known_lines[key] = found
        return self._known_lines[key]

    @cached_property
    def _known_lines(self) -> dict[Hashable, list[tuple[int, Interval]]]:
        """What :meth:`_lines` has found: tiles of a map ask for the same again and again."""
        return {}

    def _source_need(self, box: PixelBox, phase: Phase, part: Box) -> Need:
        rows, columns = (lines for _, lines in self._lines(box, phase, part))
        begin, end = part[0]
        channels = begin * self.core.rows, end * self.core.rows
        return self.program.need(self.source, box[0], rows, columns, channels)

    @staticmethod
    def _kernel(phase: Phase, part: Box) -> tuple[range, range]:
        """Rows and columns of the kernel in a box."""
        rows, columns = (axis.taps[slice(*p)] for axis, p in zip(phase, part[1:], strict=True))
        return rows, columns

    def _weights_need(self, tile: int, phase: Phase, part: Box) -> Need:
        """Its taps, as the tensor has them if they are neighbours, or else in order of the
        contraction."""
        program, (rows, columns) = self.program, self._kernel(phase, part)
        inputs, outputs = self.weights_box(tile, part[0])
        size = self._tap_words(tile, part[0])
        if _neighbours(rows) and _neighbours(columns):
            box = (min(rows), max(rows) + 1), (min(columns), max(columns) + 1), inputs, outputs
            return program.need(self.weights, *box)

        def load(block: Block) -> None:
            for number, (kh, kw) in enumerate(product(rows, columns)):
                box = (kh, kh + 1), (kw, kw + 1), inputs, outputs
                program.load(self.weights, box, block, number * size)

        return Need(object(), len(rows) * len(columns) * size, load)

    def _run(
        self, box: PixelBox, group: Interval, tile: int, phase: Phase, part: Box | None,
        first: bool, last: bool, writes: bool, *blocks: Block, ends: bool = False,
    ) -> None:  # fmt: skip
        """A box of the contraction: the ``first``, the ``last`` of a column tile and phase; behind
        the one that ``ends`` a group its outputs are stored. Their block is the first one, if there
        is something in it."""
        program, channels, output = self.program, self._channels(group), blocks[0]
        if first:
            program.next_bank()
        begin, end = self.tiles.range(tile)
        if part is None:
            self._nothing(box, phase, end - begin, output)
        else:
            source, weights, *bias = blocks[writes:]
            self._weights(tile, phase, part, weights, *bias)
            init = (Init.BIAS if bias else Init.ZERO) if first else Init.ACCUMULATOR
            self._matmul(box, phase, part, init, end - begin, source)
        if last:
            self._post(box, channels, group, tile, phase, output)
        if ends and not self.looks:
            self._store(box, channels, output)
            program.scratch.drop([output])

    def _store(self, box: PixelBox, channels: Interval, output: Block) -> None:
        order = self._order(box, channels)
        self.program.store(self.target, (*box, channels), output, order=order)

    def _nothing(self, box: PixelBox, phase: Phase, valid: int, block: Block) -> None:
        """Zeros for a phase without taps."""
        fields = {"address": block.address, "row_stride": 0, "row_limit": 0, "transpose": 0}
        self.program.weights(fields, block)
        part = (0, 1), (0, 1), (0, 1)
        walk = self._walk(box, phase, part, block, 1)
        walk |= {"h_limit": 0, "accumulator_bank": self.program.bank, "channels": valid}
        self.program.matmul(walk, block)

    def _weights(
        self, tile: int, phase: Phase, part: Box, weights: Block, bias: Block | None = None
    ) -> None:
        rows, columns = self._kernel(phase, part)
        (first, last), outputs = self.weights_box(tile, part[0])
        together, place = _neighbours(rows) and _neighbours(columns), 0
        order = self.weights.order if together else IN_ORDER
        sizes = len(rows), len(columns), last - first
        down, right, row = strides_of(sizes, order, self.program.words(self.weights, outputs))
        if together:
            place = (rows[0] - min(rows)) * down + (columns[0] - min(columns)) * right
            down, right = (-n if r.step < 0 else n for n, r in ((down, rows), (right, columns)))
        fields = self.weights_fields(tile, part[0], row)
        fields |= {
            "address": weights.address + place + fields.get("address", 0),
            "kw_count": len(columns), "kh_count": len(rows), "kw_stride": right, "kh_stride": down,
            "cb_count": part[0][1] - part[0][0],
        }  # fmt: skip
        if bias is None:
            self.program.weights(fields, weights)
        else:
            fields |= {"bias": 1, "bias_address": bias.address}
            self.program.weights(fields, weights, bias)

    def _walk(self, box: PixelBox, phase: Phase, part: Box, x: Block, words: int) -> Fields:
        vertical, horizontal = phase
        rows, columns = (lines for _, lines in self._lines(box, phase, part))
        return matmul_walk(
            x.address,
            words,
            images=box[0][1] - box[0][0],
            outputs=(vertical.numbers(box[1]), horizontal.numbers(box[2])),
            taps=(part[1], part[2]),
            lines=(rows, columns),
            stride=(vertical.stride, horizontal.stride),
            padding=(-vertical.origin, -horizontal.origin),
            dilation=(vertical.advance, horizontal.advance),
        )

    def _matmul(
        self, box: PixelBox, phase: Phase, part: Box, init: Init, valid: int, x: Block
    ) -> None:
        begin, end = part[0]
        words = self.program.words(self.source, (begin * self.core.rows, end * self.core.rows))
        walk = self._walk(box, phase, part, x, words)
        walk |= {"accumulator_bank": self.program.bank, "init": init, "channels": valid}
        walk["cb_count"] = end - begin
        self.program.matmul(walk, x)

    def _post(
        self, box: PixelBox, channels: Interval, group: Interval, tile: int, phase: Phase,
        output: Block,
    ) -> None:  # fmt: skip
        program = self.program
        begin, end = self.tiles.range(tile)
        stop = channels[1] if tile == group[1] - 1 else end
        wide = self.target.kind == "float32"
        place, fields = program.column_place(
            (begin - channels[0], end - channels[0]), stop - channels[0], wide=wide
        )
        images = box[0][1] - box[0][0]
        numbers = [axis.numbers(part) for axis, part in zip(phase, box[1:], strict=True)]
        rows, columns = (b - a for a, b in numbers)
        by_image, by_row, by_column = strides_of(
            [b - a for a, b in box],
            self._order(box, channels),
            program.words(self.target, channels),
        )
        top, left = (
            axis.offset + n[0] * axis.step - part[0]
            for axis, n, part in zip(phase, numbers, box[1:], strict=True)
        )
        program.post(
            fields
            | self.post_fields()
            | {
                "accumulator_bank": self.program.bank,
                "wo_count": columns,
                "ho_count": rows,
                "n_count": images,
                "wo_stride": 1,
                "ho_stride": columns,
                "n_stride": columns * rows,
                "out_address": output.address + top * by_row + left * by_column + place,
                "out_wo_stride": phase[1].step * by_column,
                "out_ho_stride": phase[0].step * by_row,
                "out_n_stride": by_image,
            },
            output,
        )


def _neighbours(taps: range) -> bool:
    return len(taps) == 1 or abs(taps.step) == 1
