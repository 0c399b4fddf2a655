"""The commands of one run: a fused product on one core, with everything double-buffered.

The order is output tiles outermost, then column tiles, then boxes of K tiles. An input window is
loaded once per output tile and serves all its column tiles; weights stay in the buffer when all
of them fit and are streamed through a ring of slots otherwise. Streaming weights costs about
``rows x columns`` operands for every K tile and output tile, streaming inputs would cost ``rows``
for every vector: so the inputs stay. Biases always stay.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from compiler.codegen.core_builder import CoreProgram, Job
from compiler.codegen.scratchpad import Block, arrange
from compiler.tensors.tensor import Transfer
from hw.config import AdaGPConfig

from .command_fields import matmul_fields, post_fields
from .run import Plan, Run
from .tiling import Box, Geometry
from .weight_layout import WeightSlice

__all__ = ["RunScheduler"]

#: Column tiles ahead of their use at which a weight LOAD enters the stream.
LOOKAHEAD = 2
#: Most LOADs that an input window is cut into, and words below which it is not worth cutting.
MAX_PIECES, MIN_PIECE_WORDS = 8, 64


@dataclass
class _Item:
    """Something in the buffer: what it is, where, and between which products it is used."""

    what: tuple[Any, ...]
    index: int
    first_use: int = -1
    last_use: int = -1


#: Position in the stream, deadline, and what emits the LOADs that come there together.
_Load = tuple[float, float, Callable[[], None]]


class RunScheduler:
    """Commands of one :class:`Run` under one :class:`Plan`."""

    def __init__(self, config: AdaGPConfig, run: Run, plan: Plan, geometry: Geometry) -> None:
        self.config, self.run, self.plan = config, run, plan
        self.core = run.core
        self.geometry = geometry
        self._slices: dict[tuple[int, Box], WeightSlice] = {}
        nts = self.geometry.column_tiles
        self.groups = [(i, min(i + plan.group, nts)) for i in range(0, nts, plan.group)]
        self.group_of = {
            nt: index for index, (begin, end) in enumerate(self.groups) for nt in range(begin, end)
        }
        #: About how many MATMULs there are.
        self.size = len(plan.tiles) * nts * len(plan.boxes)
        self.fits = self._measure()

    def _x_box(self, item: _Item) -> Box:
        return item.what[2] if self.plan.chunk_x else self.geometry.whole

    def _w_slice(self, item: tuple[int, int, Box]) -> WeightSlice:
        """The weights of an item (reuse, group of column tiles, box)."""
        _, group, box = item
        if (group, box) in self._slices:
            return self._slices[group, box]
        first = group * self.plan.w_group
        end = min(first + self.plan.w_group, self.geometry.column_tiles)
        unit = self.config.granule_bytes // self.run.weights.dtype.itemsize
        found = WeightSlice(self.run.weights, self.geometry, max(1, unit), box, first, end)
        self._slices[group, box] = found
        return found

    def chunk(self, group: int) -> tuple[int, int, int]:
        """(first channel, last channel + 1, words) of an output pixel's part in ``group``."""
        begin, end = self.groups[group]
        first = begin * self.core.columns
        last = self.run.target.pitch if end == self.geometry.column_tiles else None
        last = end * self.core.columns if last is None else last
        row = (last - first) * self.run.target.dtype.itemsize
        return first, last, -(-row // self.core.word_bytes)

    def _measure(self) -> bool:
        """Sizes of the slots; whether there is room for them."""
        plan, geometry = self.plan, self.geometry
        x_boxes = plan.boxes if plan.chunk_x else (geometry.whole,)
        self.x_slot = max(
            geometry.input_window_words(tile, box) for tile in plan.tiles for box in x_boxes
        )
        w_groups = -(-geometry.column_tiles // plan.w_group)
        self.w_slot = max(
            self._w_slice((0, group, box)).words for box in plan.boxes for group in range(w_groups)
        )
        self.out_slot = max(tile.pixels for tile in plan.tiles) * max(
            self.chunk(group)[2] for group in range(len(self.groups))
        )
        self.w_slots = w_groups if plan.resident else plan.w_slots
        self.biases = geometry.bias_words * geometry.column_tiles
        weights = self.w_slot * self.w_slots + self.biases
        own = self.core.memories[0]
        #: Words of the rings of inputs and outputs, then of weights with biases, by memory.
        self.rooms = {own: [self.x_slot * plan.x_slots, self.out_slot * plan.out_slots]}
        self.rooms.setdefault(plan.weights_memory, []).append(weights)
        placed = [arrange(self.config, memory, sizes) for memory, sizes in self.rooms.items()]
        #: No two kinds of data share a bank.
        self.spread = placed[0] is not None and placed[0][1]
        return None not in placed

    def _number(self) -> None:
        """Products in order as (tile, column tile, box, x item, w item), and their items."""
        plan, geometry = self.plan, self.geometry
        self.x_items: list[_Item] = []
        self.w_items: list[_Item] = []
        self.ops: list[tuple[int, int, Box, _Item, _Item]] = []
        x_known: dict[tuple[Any, ...], _Item] = {}
        w_known: dict[tuple[Any, ...], _Item] = {}
        for t in range(len(plan.tiles)):
            for nt in range(geometry.column_tiles):
                boxes = plan.boxes
                if t == nt == 0 and len(boxes) == 1:
                    boxes = plan.head_boxes
                for box in boxes:
                    whole = len(plan.boxes) == 1
                    x_key = (t, nt, box) if plan.chunk_x else (t,)
                    w_key = (
                        0 if plan.resident else t,
                        nt // plan.w_group,
                        geometry.whole if whole else box,
                    )
                    op = len(self.ops)
                    x = _use(self.x_items, x_known, x_key, op)
                    w = _use(self.w_items, w_known, w_key, op)
                    self.ops.append((t, nt, box, x, w))

    def _x_block(self, item: _Item) -> Block:
        words = self.geometry.input_window_words(self.plan.tiles[item.what[0]], self._x_box(item))
        return self._x.part(item.index % self.plan.x_slots * self.x_slot, words)

    def _w_place(self, item: _Item) -> int:
        """Its first word in the block of weights."""
        return item.index % self.w_slots * self.w_slot

    # Commands --------------------------------------------------------------------------------

    def write(self, program: CoreProgram) -> None:
        """The run's commands, in an order in which they could also run one by one."""
        blocks = [
            block
            for memory, sizes in self.rooms.items()
            for block in program.memory(memory).take_side_by_side(sizes)
        ]
        self._x, self._out, weights = blocks
        self._w = weights.part(0, weights.words - self.biases)
        self._bias = weights.part(self._w.words, self.biases)
        self._number()
        loads = [*self._bias_loads(program), *self._x_loads(program), *self._w_loads(program)]
        loads.sort(key=lambda load: load[:2])
        program.run(self._jobs(program, loads))
        for block in blocks:
            program.memory(block.memory).release(block)

    def _jobs(self, program: CoreProgram, loads: Sequence[_Load]) -> Iterator[Job]:
        """One for each output tile, with the LOADs that come meanwhile."""
        first = done = 0
        for t, tile in enumerate(self.plan.tiles):
            last = first
            while last < len(self.ops) and self.ops[last][0] == t:
                last += 1
            own = done
            while done < len(loads) and (loads[done][0] < last or last == len(self.ops)):
                done += 1
            run = partial(self._tile, program, range(first, last), loads[own:done])
            yield Job((), run, like=self._likeness(t), at=(tile.n0, tile.h0, tile.w0))
            first = last

    def _likeness(self, t: int) -> Hashable:
        """What tiles have in common that differ in where they lie in DRAM alone: their own size,
        and where the next one lies, whose inputs are loaded meanwhile."""
        ahead = self.plan.x_slots
        if not t or t + ahead >= len(self.plan.tiles):
            return None
        product, own, found = self.run.product, self.plan.tiles[t], []
        for tile in self.plan.tiles[t : t + ahead]:
            windows = self.geometry.input_window(tile, self.geometry.whole)
            for begin, window, axis in ((own.h0, windows[0], 0), (own.w0, windows[1], 1)):
                origin = begin * product.pool_stride[axis] * product.stride[axis]
                found.append((window[0] - origin, window[1] - window[0]))
            found.append((tile.n0 - own.n0, tile.images))
            found += [(tile.h0 - own.h0, tile.h1 - tile.h0), (tile.w0 - own.w0, tile.w1 - tile.w0)]
        return tuple(found)

    def _tile(self, program: CoreProgram, ops: range, loads: Sequence[_Load]) -> None:
        position = 0
        for op in ops:
            while position < len(loads) and loads[position][0] <= op:
                loads[position][2]()
                position += 1
            self._compute(program, op)

    def _x_loads(self, program: CoreProgram) -> Iterator[_Load]:
        """LOADs of the input windows as (position, deadline, what emits them)."""
        plan, geometry = self.plan, self.geometry
        for index, item in enumerate(self.x_items):
            tile, box = plan.tiles[item.what[0]], self._x_box(item)
            rows, columns = geometry.input_window(tile, box)
            earliest = 0
            if index >= plan.x_slots:
                earliest = self.x_items[index - plan.x_slots].last_use + 1
            by_image = tile.images > 1
            begin, end = (tile.n0, tile.n1) if by_image else rows
            block = self._x_block(item)
            room = item.first_use - earliest
            pieces = max(1, min(end - begin, room, MAX_PIECES, block.words // MIN_PIECE_WORDS))
            unit = block.words // (end - begin)
            channels = box.cb0 * self.core.rows, box.cb1 * self.core.rows
            for piece in range(pieces):
                low = begin + (end - begin) * piece // pieces
                high = begin + (end - begin) * (piece + 1) // pieces
                images = (low, high) if by_image else (tile.n0, tile.n1)
                part = images, rows if by_image else (low, high), columns, channels
                load = partial(program.load, self.run.source, part, block, (low - begin) * unit)
                yield earliest + room * piece // pieces, item.first_use + 0.5, load

    def _bias_loads(self, program: CoreProgram) -> Iterator[_Load]:
        """The LOAD of all biases, likewise."""
        bias = self.run.bias
        if bias is not None:
            part = *bias.pixels, (0, bias.pitch)
            yield 0, -1, partial(program.load, bias, part, self._bias)

    def _w_loads(self, program: CoreProgram) -> Iterator[_Load]:
        """LOADs of the weights, likewise."""
        plan = self.plan

        def load(moves: list[Transfer], item: _Item) -> Callable[[], None]:
            return partial(program.load_moves, moves, self._w, self._w_place(item))

        head = plan.head_boxes if len(plan.boxes) == 1 else ()
        for index, item in enumerate(self.w_items):
            weights = self._w_slice(item.what)
            if index == 0 and head:
                for position, box in enumerate(head):
                    place = max(0, position - LOOKAHEAD)
                    yield place, position, load(weights.moves(box), item)
                continue
            earliest = 0
            if index >= self.w_slots:
                earliest = self.w_items[index - self.w_slots].last_use + 1
            use = item.first_use
            yield max(earliest, use - LOOKAHEAD), use, load(weights.moves(weights.box), item)

    def _compute(self, program: CoreProgram, op: int) -> None:
        """WEIGHTS and MATMUL, and after the last box of a column tile POST, after the last of a
        group STORE."""
        geometry = self.geometry
        t, nt, box, x, w = self.ops[op]
        first, last = box.first == 0, box.first + box.tiles == geometry.k_tiles
        if first:
            self._bank = program.next_bank()
        weights, place = self._w_slice(w.what), self._w_place(w)
        if box == weights.box:
            read = [self._w.part(place, weights.words)]
        else:
            moves = weights.moves(box)
            read = [self._w.part(place + move.word, move.words) for move in moves]
        bias = None
        if first and geometry.bias_words:
            block = self._bias.part(nt * geometry.bias_words, geometry.bias_words)
            bias, read = block.address, [*read, block]
        fields = weights.fields(nt, box, address=self._w.address + place, bias_address=bias)
        program.weights(fields, *read)
        vectors = self._x_block(x)
        fields = matmul_fields(
            geometry,
            self.plan.tiles[t],
            nt,
            box,
            x_box=self._x_box(x),
            x_address=vectors.address,
            bank=self._bank,
        )
        program.matmul(fields, vectors)
        if last:
            self._drain(program, t, nt)

    def _drain(self, program: CoreProgram, t: int, nt: int) -> None:
        tile, group = self.plan.tiles[t], self.group_of[nt]
        begin, end = self.groups[group]
        first, last, words = self.chunk(group)
        unit = t * len(self.groups) + group
        block = self._out.part(unit % self.plan.out_slots * self.out_slot, tile.pixels * words)
        fields = post_fields(
            self.geometry,
            tile,
            nt,
            position=nt - begin,
            last_channel=last,
            address=block.address,
            words=words,
            bank=self._bank,
        )
        program.post(fields, block)
        if nt == end - 1:
            part = (tile.n0, tile.n1), (tile.h0, tile.h1), (tile.w0, tile.w1), (first, last)
            program.store(self.run.target, part, block)


def _use(
    items: list[_Item], known: dict[tuple[Any, ...], _Item], key: tuple[Any, ...], op: int
) -> _Item:
    if key not in known:
        known[key] = _Item(key, len(items), first_use=op)
        items.append(known[key])
    known[key].last_use = op
    return known[key]
