"""The commands of one run: a stage over some images on one core, with everything double-buffered.

The order is output tiles outermost, then column tiles, then boxes of K tiles. An input window is
loaded once per output tile and serves all its column tiles; weights stay in the buffer when all
of them fit and are streamed through a ring of slots otherwise. Streaming weights costs about
``rows x columns`` operands for every K tile and output tile, streaming inputs would cost ``rows``
for every vector: so the inputs stay. Biases always stay.

Semaphores of a core: see :class:`~compiler.inference.run.Semaphore`. All of them are back at zero
when a run has finished.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from compiler.codegen.core_builder import dma_fields
from compiler.codegen.cost import Command
from compiler.tensors.tensor import Pool, Transfer, transfers
from hw.config import AdaGPConfig
from hw.isa.encoding import Opcode

from .command_fields import matmul_fields, post_fields
from .run import Plan, Run, Semaphore
from .tiling import Box, Geometry
from .weight_layout import WeightSlice

__all__ = ["RunScheduler"]

#: Tokens a semaphore may hold at most, with one in reserve.
MAX_TOKENS = 14
#: Column tiles ahead of their use at which a weight LOAD enters the stream.
LOOKAHEAD = 2
#: Most LOADs that an input window is cut into, and words below which it is not worth cutting.
MAX_PIECES, MIN_PIECE_WORDS = 8, 64


@dataclass
class _Item:
    """Something in the buffer: what it is, where, and between which products it is used."""

    what: tuple[Any, ...]
    index: int
    address: int = 0
    first_use: int = -1
    last_use: int = -1


#: Position in the stream, deadline, and the LOADs that come there together.
_Load = tuple[float, float, list[Command]]


class RunScheduler:
    """Commands of one :class:`Run` under one :class:`Plan`."""

    def __init__(self, config: AdaGPConfig, run: Run, plan: Plan) -> None:
        self.config, self.run, self.plan = config, run, plan
        self.core = run.core
        self.geometry = Geometry(run.stage, run.core)
        nts = self.geometry.column_tiles
        self.groups = [(i, min(i + plan.group, nts)) for i in range(0, nts, plan.group)]
        self.group_of = {
            nt: index for index, (begin, end) in enumerate(self.groups) for nt in range(begin, end)
        }
        #: About how many MATMULs there are.
        self.size = len(plan.tiles) * nts * len(plan.boxes)
        self.fits = self._place()

    def _x_box(self, item: _Item) -> Box:
        return item.what[2] if self.plan.chunk_x else self.geometry.whole

    def _w_slice(self, item: tuple[int, int, Box]) -> WeightSlice:
        """The weights of an item (reuse, group of column tiles, box)."""
        _, group, box = item
        first = group * self.plan.w_group
        end = min(first + self.plan.w_group, self.geometry.column_tiles)
        unit = self.config.granule_bytes // self.run.weights.dtype.itemsize
        return WeightSlice(self.run.weights, self.geometry, max(1, unit), box, first, end)

    def chunk(self, group: int) -> tuple[int, int, int]:
        """(first channel, last channel + 1, words) of an output pixel's part in ``group``."""
        begin, end = self.groups[group]
        first = begin * self.core.columns
        last = self.run.target.pitch if end == self.geometry.column_tiles else None
        last = end * self.core.columns if last is None else last
        row = (last - first) * self.run.target.dtype.itemsize
        return first, last, -(-row // self.core.word_bytes)

    def _place(self) -> bool:
        """Find room for the slots; whether there is any."""
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
        biases = geometry.bias_words * geometry.column_tiles
        w_size = self.w_slot * self.w_slots + biases
        sizes = [self.x_slot * plan.x_slots, self.out_slot * plan.out_slots]
        own = self.core.memories[0]
        shared = self.run.weights_memory == own
        if shared:
            sizes.append(w_size)
        placed = Pool(self.config, own).place(sizes)
        apart = None if shared else Pool(self.config, self.run.weights_memory).place([w_size])
        if placed is None or (apart is None and not shared):
            return False
        self.x_base, self.out_base = placed[0][:2]
        self.bias_base = placed[0][2] if apart is None else apart[0][0]
        self.w_base = self.bias_base + biases
        #: No two kinds of data share a bank.
        self.spread = placed[1]
        return True

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
        for item in self.x_items:
            item.address = self.x_base + item.index % plan.x_slots * self.x_slot
        for item in self.w_items:
            item.address = self.w_base + item.index % self.w_slots * self.w_slot

    # Commands --------------------------------------------------------------------------------

    def _mask(self, *semaphores: int, core: int | None = None) -> int:
        base = (self.core.index if core is None else core) * self.config.semaphores
        return sum(1 << (base + semaphore) for semaphore in semaphores)

    def commands(self) -> list[Command]:
        """The run's commands, in an order in which they could also run one by one."""
        self._number()
        loads = [*self._bias_loads(), *self._x_loads(), *self._w_loads()]
        loads.sort(key=lambda load: load[:2])
        pending = [command for _, _, commands in loads for command in commands]
        if not self.run.first:
            pending[0].wait |= self._mask(Semaphore.DONE)
        result, position = [], 0
        for op in range(len(self.ops)):
            while position < len(loads) and loads[position][0] <= op:
                result += loads[position][2]
                position += 1
            result += self._compute(op)
        return result

    def _load(
        self, address: int, moves: Iterable[Transfer], wait: int, signal: int
    ) -> list[Command]:
        commands = [
            Command(Opcode.LOAD, self.core.index, fields=dma_fields(address + move.word, move))
            for move in moves
        ]
        commands[0].wait = wait
        commands[-1].signal = signal
        return commands

    def _x_loads(self) -> Iterator[_Load]:
        """LOADs of the input windows as (position, deadline, commands)."""
        plan, geometry, run = self.plan, self.geometry, self.run
        for index, item in enumerate(self.x_items):
            tile, box = plan.tiles[item.what[0]], self._x_box(item)
            rows, columns = geometry.input_window(tile, box)
            earliest = 0
            wait = 0
            if index >= plan.x_slots:
                earliest = self.x_items[index - plan.x_slots].last_use + 1
                wait = self._mask(Semaphore.X_FREE)
            if index == 0 and run.waits_input:
                wait |= self._mask(Semaphore.INPUT)
            by_image = tile.images > 1
            begin, end = (tile.n0, tile.n1) if by_image else rows
            words = geometry.input_window_words(tile, box)
            room = item.first_use - earliest
            pieces = max(1, min(end - begin, room, MAX_PIECES, words // MIN_PIECE_WORDS))
            unit = words // (end - begin)
            for piece in range(pieces):
                low = begin + (end - begin) * piece // pieces
                high = begin + (end - begin) * (piece + 1) // pieces
                moves = transfers(
                    run.source,
                    (low, high) if by_image else (tile.n0, tile.n1),
                    rows if by_image else (low, high),
                    columns,
                    (box.cb0 * self.core.rows, box.cb1 * self.core.rows),
                    self.core.word_bytes,
                )
                signal = self._mask(Semaphore.X_FULL) if piece == pieces - 1 else 0
                commands = self._load(
                    item.address + (low - begin) * unit, moves, 0 if piece else wait, signal
                )
                position = earliest + room * piece // pieces
                yield position, item.first_use + 0.5, commands

    def _bias_loads(self) -> Iterator[_Load]:
        """The LOAD of all biases, likewise: it goes before all others, which vouch for it."""
        if self.run.bias is not None:
            tiles, columns = (0, self.geometry.column_tiles), (0, self.run.bias.pitch)
            moves = transfers(self.run.bias, (0, 1), (0, 1), tiles, columns, self.core.word_bytes)
            yield 0, -1, self._load(self.bias_base, moves, 0, 0)

    def _w_loads(self) -> Iterator[_Load]:
        """LOADs of the weights, likewise; also notes which products wait for one."""
        plan = self.plan
        self.w_waits = set()
        head = plan.head_boxes if len(plan.boxes) == 1 else ()
        rest = len(self.w_items) - bool(head)
        per_token = max(1, -(-rest // (MAX_TOKENS - len(head)))) if plan.resident else 1
        for index, item in enumerate(self.w_items):
            weights = self._w_slice(item.what)
            earliest = wait = 0
            if index >= self.w_slots:
                earliest = self.w_items[index - self.w_slots].last_use + 1
                wait = self._mask(Semaphore.W_FREE)
            signal = self._mask(Semaphore.W_FULL)
            if index == 0 and head:
                for position, box in enumerate(head):
                    self.w_waits.add(position)
                    place = max(0, position - LOOKAHEAD)
                    commands = self._load(item.address, weights.moves(box), 0, signal)
                    yield place, position, commands
                continue
            group = (index - bool(head)) % per_token
            last = group == per_token - 1 or index == len(self.w_items) - 1
            if group == 0:
                self.w_waits.add(item.first_use)
                use = item.first_use
            commands = self._load(
                item.address, weights.moves(weights.box), wait, signal if last else 0
            )
            yield max(earliest, use - LOOKAHEAD), use, commands

    def _compute(self, op: int) -> list[Command]:
        """WEIGHTS and MATMUL, and after the last box of a column tile POST, after the last of a
        group STORE."""
        plan, geometry = self.plan, self.geometry
        t, nt, box, x, w = self.ops[op]
        job = t * geometry.column_tiles + nt
        jobs = len(plan.tiles) * geometry.column_tiles
        first, last = box.first == 0, box.first + box.tiles == geometry.k_tiles
        wait = signal = weights_wait = weights_signal = 0
        if x.first_use == op:
            wait |= self._mask(Semaphore.X_FULL)
        if op in self.w_waits:
            weights_wait = self._mask(Semaphore.W_FULL)
        if first and job >= 2:
            wait |= self._mask(Semaphore.ACC_FREE)
        if x.last_use == op and x.index + plan.x_slots < len(self.x_items):
            signal |= self._mask(Semaphore.X_FREE)
        if w.last_use == op and w.index + self.w_slots < len(self.w_items):
            weights_signal = self._mask(Semaphore.W_FREE)
        if last:
            signal |= self._mask(Semaphore.ACC_FULL)
        bias = self.bias_base + nt * geometry.bias_words
        weights = self._w_slice(w.what).fields(
            nt, box, address=w.address, bias_address=bias if first and self.run.bias else None
        )
        fields = matmul_fields(
            geometry,
            plan.tiles[t],
            nt,
            box,
            x_box=self._x_box(x),
            x_address=x.address,
            bank=job % 2,
        )
        commands = [
            Command(Opcode.WEIGHTS, self.core.index, weights_wait, weights_signal, weights),
            Command(Opcode.MATMUL, self.core.index, wait, signal, fields),
        ]
        if last:
            commands += self._drain(t, nt, job, jobs)
        return commands

    def _drain(self, t: int, nt: int, job: int, jobs: int) -> list[Command]:
        plan, run, core = self.plan, self.run, self.core
        tile = plan.tiles[t]
        group = self.group_of[nt]
        begin, end = self.groups[group]
        unit, units = t * len(self.groups) + group, len(plan.tiles) * len(self.groups)
        address = self.out_base + unit % plan.out_slots * self.out_slot
        wait, signal = self._mask(Semaphore.ACC_FULL), 0
        if nt == begin and unit >= plan.out_slots:
            wait |= self._mask(Semaphore.OUT_FREE)
        if job + 2 < jobs:
            signal |= self._mask(Semaphore.ACC_FREE)
        if nt == end - 1:
            signal |= self._mask(Semaphore.OUT_FULL)
        first, last, words = self.chunk(group)
        fields = post_fields(
            self.geometry,
            tile,
            nt,
            position=nt - begin,
            last_channel=last,
            address=address,
            words=words,
            bank=job % 2,
        )
        commands = [Command(Opcode.POST, core.index, wait, signal, fields)]
        if nt == end - 1:
            moves = transfers(
                run.target, (tile.n0, tile.n1), (tile.h0, tile.h1), (tile.w0, tile.w1),
                (first, last), core.word_bytes,
            )  # fmt: skip
            stores = [
                Command(Opcode.STORE, core.index, fields=dma_fields(address + move.word, move))
                for move in moves
            ]
            stores[0].wait = self._mask(Semaphore.OUT_FULL)
            if unit + plan.out_slots < units:
                stores[-1].signal |= self._mask(Semaphore.OUT_FREE)
            if unit == units - 1:
                if not run.last:
                    stores[-1].signal |= self._mask(Semaphore.DONE)
                if run.signals_input:
                    stores[-1].signal |= self._mask(Semaphore.INPUT, core=1 - core.index)
            commands += stores
        return commands


def _use(
    items: list[_Item], known: dict[tuple[Any, ...], _Item], key: tuple[Any, ...], op: int
) -> _Item:
    if key not in known:
        known[key] = _Item(key, len(items), first_use=op)
        items.append(known[key])
    known[key].last_use = op
    return known[key]
