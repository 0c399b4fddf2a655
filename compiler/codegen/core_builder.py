"""Commands of one core, with what they touch: the vocabulary in which layers are written."""

from collections.abc import Iterable, Sequence
from functools import partial
from math import prod

from compiler.errors import CompileError
from compiler.tensors.intervals import Channels, Interval, TensorBox
from compiler.tensors.tensor import IN_ORDER, Order, Tensor, Transfer, transfers
from hw.config import BUFFER_ADDRESS_WIDTH, AdaGPConfig, CoreConfig
from hw.formats import FLOAT32
from hw.isa.encoding import Opcode

from .cost import Command, Fields, duration
from .dependencies import Recorder
from .jobs.job import Job, Need
from .jobs.job_runner import JobRunner
from .linking.entries import Region, dram_region
from .replay import Likeness, StepCall
from .scratchpad import Block, Scratch
from .vector_commands import VectorCommands
from .view import View

__all__ = ["CoreProgram", "Job", "Need", "dma_fields"]


class CoreProgram:
    """Writes commands for one core.

    Parameters
    ----------
    config : AdaGPConfig
    core : CoreConfig
    recorder : Recorder
        that of the whole program
    memory : the one to work in, 0 or 1; by default the core's first

    Members
    -------
    scratch : Scratch, its memory
    vector : VectorCommands
    pieces : into how many of what has room in its memory work of the vector engine is cut
    shares_vector : whether others need the vector engine at the same time
    in_turns : whether jobs take turns with those of others, so that they should be like each other
    """

    #: So that what is loaded, worked on and stored at the same time has room.
    pieces = 4
    shares_vector = in_turns = False

    def __init__(
        self,
        config: AdaGPConfig,
        core: CoreConfig,
        recorder: Recorder,
        *,
        memory: int | None = None,
    ) -> None:
        self.config, self.core, self.recorder = config, core, recorder
        self.scratch = Scratch(config, core.memories[0] if memory is None else memory)
        self._memories = {self.scratch.memory: self.scratch}
        self._runner = JobRunner([self.scratch], recorder, core.index)
        self.granule = config.granule_bytes
        self.vector = VectorCommands(core, self._vector)
        self._resident: dict[str, Block] = {}  # name of a tensor -> its block
        self._missing: dict[str, Tensor] = {}  # those of them that are not loaded yet, by name

    def words(self, tensor: Tensor, channels: Channels = None) -> int:
        """Buffer words of ``channels`` (begin, end) of a pixel, by default of all of them."""
        begin, end = channels or (0, tensor.pitch)
        size = (min(end, tensor.pitch) - begin) * tensor.dtype.itemsize
        return -(-size // self.core.word_bytes)

    def memory(self, number: int) -> Scratch:
        """:attr:`scratch`, or that of the other memory that the core reaches."""
        if number not in self._memories:
            self._memories[number] = Scratch(self.config, number)
        return self._memories[number]

    # Steps -----------------------------------------------------------------------------------

    def write_step(self, call: StepCall) -> None:
        """Write a step. In a program with loops it begins with empty memories, and a step that is
        like an earlier one is replayed (:mod:`~compiler.codegen.replay`)."""
        write = partial(call.write, self)
        recordings = self.recorder.recordings
        if recordings is None:
            write()
            return
        for scratch in self._memories.values():
            scratch.forget_idle(())
            scratch.rewind()
        self._runner.begin_step()
        like = Likeness(call.tensors, kept=self._resident).of(call)
        if like is None:
            write()
            return
        kept = tuple((name, block.address) for name, block in self._resident.items())
        like = (
            like, self.core.index, self.scratch.memory, kept, frozenset(self._missing),
            self.recorder.state,
        )  # fmt: skip
        recording = recordings.find(self.recorder, like)
        if recording is None:
            recording = recordings.record(self.recorder, like, call.tensors, write)
            recording.missing = frozenset(self._missing)
            return
        recording.replay(self.recorder, call.tensors)
        for name in self._missing.keys() - recording.missing:
            del self._missing[name]

    def expect(self, jobs: int) -> None:
        """At least so many ``jobs`` come: who takes no more may say so before they are made."""

    # Transfers -------------------------------------------------------------------------------

    def keep(self, tensor: Tensor, *, load: bool = True) -> None:
        """Keep all of ``tensor`` here; what is stored in it changes it here as well. Comes before
        anything else. It is loaded when it is needed first; without ``load`` it is there already,
        as a program before has kept it, too."""
        words = prod(tensor.shape[:3]) * self.words(tensor)
        self._resident[tensor.name] = self.scratch.reserve(words)
        if load:
            self._missing[tensor.name] = tensor

    def fetch(self, name: str) -> None:
        """LOADs of all of the tensor ``name``, if it is kept and not there."""
        tensor = self._missing.pop(name, None)
        if tensor is not None:
            self.load(tensor, (*tensor.pixels, (0, tensor.pitch)), self._resident[name])

    def need(
        self,
        tensor: Tensor,
        images: Interval,
        rows: Interval,
        columns: Interval,
        channels: Channels = None,
    ) -> Need:
        """A box of a tensor, pixel after pixel; (begin, end) of each axis."""
        channels = channels or (0, tensor.pitch)
        box = (images, rows, columns, channels)
        pixels = 1
        for begin, end in box[:3]:
            pixels *= end - begin
        words = pixels * self.words(tensor, channels)
        place = self._place(tensor, box, pixels, words)
        load = None if place else lambda block: self.load(tensor, box, block)
        return Need((tensor.name, *box), words, load, place)

    def _place(self, tensor: Tensor, box: TensorBox, pixels: int, words: int) -> Block | None:
        """Where a box lies if the tensor is kept here and the box is a run of whole pixels."""
        block = self._resident.get(tensor.name)
        if block is None or box[3] != (0, tensor.pitch) or tensor.order != IN_ORDER:
            return None
        self.fetch(tensor.name)
        _, height, width, _ = tensor.shape
        first, last = (
            (n * height + h) * width + w for n, h, w in ([a for a, _ in box[:3]],
                                                          [b - 1 for _, b in box[:3]])
        )  # fmt: skip
        if last - first + 1 != pixels:
            return None
        address = block.address + first * self.words(tensor)
        return Block(block.memory, address, words, fixed=True)

    def result(
        self,
        tensor: Tensor,
        images: Interval,
        rows: Interval,
        columns: Interval,
        channels: Channels = None,
        *,
        wide: bool = False,
    ) -> Need:
        """Room for the same box, which a job writes; ``wide`` as in :meth:`view`."""
        need = self.need(tensor, images, rows, columns, channels)
        wide = wide and tensor.kind != "float32"
        chunks = self.core.chunks_per_wide if wide else 1
        return Need(object(), chunks * need.words, place=None if wide else need.place)

    def load(
        self, tensor: Tensor, box: TensorBox, block: Block, first: int = 0, *,
        order: Order | None = None,
    ) -> None:  # fmt: skip
        """LOADs of a box of ``tensor`` into words from ``first`` on, pixels in its order or another
        one."""
        self.load_moves(transfers(tensor, *box, self.core.word_bytes, order), block, first)

    def load_cycles(self, tensor: Tensor, box: TensorBox) -> int:
        """How long LOADs of a box of ``tensor`` take, about."""
        moves = transfers(tensor, *box, self.core.word_bytes)
        loads = (Command(Opcode.LOAD, self.core.index, fields=dma_fields(0, m)) for m in moves)
        return sum(duration(load, self.config)[0] for load in loads)

    def load_moves(self, moves: Iterable[Transfer], block: Block, first: int = 0) -> None:
        """LOADs of ``moves`` into words from ``first`` on."""
        for move in moves:
            fields = dma_fields(block.address + first + move.word, move)
            self.recorder.emit(
                Opcode.LOAD,
                fields,
                reads=[dram_region(fields)],
                writes=[block.region(first + move.word, move.words)],
                core=self.core.index,
            )

    def store(
        self, tensor: Tensor, box: TensorBox, block: Block, first: int = 0, *,
        order: Order | None = None,
    ) -> None:  # fmt: skip
        """STOREs of words from ``first`` on, pixels in the tensor's order or another one, into a
        box of ``tensor``.

        Copies of it in other blocks are old then.
        """
        self.scratch.drop_keys(lambda key: _is_part(key, tensor, box), apart_from=block)
        for move in transfers(tensor, *box, self.core.word_bytes, order):
            fields = dma_fields(block.address + first + move.word, move)
            self.recorder.emit(
                Opcode.STORE,
                fields,
                reads=[block.region(first + move.word, move.words)],
                writes=[dram_region(fields)],
                core=self.core.index,
            )

    def run(self, jobs: Iterable[Job]) -> None:
        """Do jobs one by one, see :class:`~compiler.codegen.jobs.job_runner.JobRunner`."""
        self._runner.run(jobs)

    # Maps ------------------------------------------------------------------------------------

    def view(
        self,
        block: Block,
        tensor: Tensor,
        images: Interval,
        rows: Interval,
        columns: Interval,
        channels: Channels = None,
        *,
        wide: bool = False,
    ) -> View:
        """A box of a tensor as it lies in a block, pixel after pixel in the tensor's order;
        ``wide`` as float32 whatever the tensor is.

        Raises
        ------
        CompileError
            if a float32 pixel is not ``chunks_per_wide`` times as many words as one of operands.
        """
        begin, end = channels or (0, tensor.pitch)
        chunks = self.core.chunks_per_wide if tensor.kind == "float32" else 1
        words, rest = divmod(self.words(tensor, channels), chunks)
        if rest:
            raise CompileError(
                f"{tensor.name}: {min(end, tensor.pitch) - begin} float32 numbers are no multiple "
                f"of {chunks} words; the pitch must be one of "
                "compiler.tensors.parameters.channel_pitch"
            )
        chunks = self.core.chunks_per_wide if wide else chunks
        # A part of the channels may be one of the pitch alone.
        size = max(0, min(end, tensor.shape[3]) - begin)
        count, height, width = (b - a for a, b in (images, rows, columns))
        shape = (count, height, width, size)
        return View.dense(block, shape, words, chunks=chunks, order=tensor.order)

    def _vector(self, fields: Fields, reads: Sequence[Region], writes: Sequence[Region]) -> None:
        noted = Region(("noted", self.core.index), 0, 1)  # by a watching command for guarded ones
        if fields.get("guarded"):
            reads = [*reads, noted]
        if fields.get("watch"):
            writes = [*writes, noted]
        self.recorder.emit(Opcode.VECTOR, fields, reads=reads, writes=writes, core=self.core.index)

    # Products --------------------------------------------------------------------------------

    def next_bank(self) -> int:
        """The accumulator bank that has been free for longer."""
        return self._runner.next_bank()

    @property
    def bank(self) -> int:
        """The accumulator bank that :meth:`next_bank` has given last."""
        return self._runner.banks[0]

    def sums(self, bank: int) -> Region:
        """All of an accumulator bank."""
        return Region(("sums", self.core.index, bank), 0, self.core.accumulator_depth)

    def weights(self, fields: Fields, *blocks: Block) -> None:
        """WEIGHTS, reading ``blocks``."""
        self.recorder.emit(
            Opcode.WEIGHTS,
            fields,
            reads=[block.region() for block in blocks],
            core=self.core.index,
        )

    def matmul(self, fields: Fields, block: Block) -> None:
        """MATMUL into ``accumulator_bank``, reading vectors from ``block``."""
        # May lie before the block; sums of address and strides wrap at the field's width.
        address = fields["x_address"] % (1 << BUFFER_ADDRESS_WIDTH)
        self.recorder.emit(
            Opcode.MATMUL,
            fields | {"x_address": address},
            reads=[block.region()],
            writes=[self.sums(fields["accumulator_bank"])],
            core=self.core.index,
        )

    def post(self, fields: Fields, block: Block) -> None:
        """POST from ``accumulator_bank`` into ``block``; one output unless loops are given, and the
        sums as they are unless there is a ``scale``."""
        self.recorder.emit(
            Opcode.POST,
            {"scale": FLOAT32.one} | fields,
            reads=[self.sums(fields["accumulator_bank"])],
            writes=[block.region()],
            core=self.core.index,
        )

    def whole_words(self, channels: Interval) -> Interval:
        """(begin, end) of the channels whose words hold ``channels``."""
        (begin, end), rows = channels, self.core.rows
        return begin // rows * rows, -(-end // rows) * rows

    def column_place(self, channels: Interval, end: int, *, wide: bool) -> tuple[int, Fields]:
        """Fields of POST for a column tile with ``channels`` (begin, end) of a pixel, to be stored
        up to channel ``end``, zeros behind its own: its first word, and the rest."""
        core = self.core
        chunks = core.chunks_per_wide if wide else 1
        first = channels[0] // core.post_lanes
        word, group = divmod(first * chunks, core.groups_per_word)
        return word, {
            "wide": int(wide),
            "group_count": -(-end // core.post_lanes) - first,
            "channels": channels[1] - channels[0],
            "out_group": group,
        }


def _is_part(key: object, tensor: Tensor, box: TensorBox) -> bool:
    """Whether ``key`` is that of a box of ``tensor`` that has something in common with ``box``."""
    if not isinstance(key, tuple) or key[0] != tensor.name:
        return False
    return all(a < d and c < b for (a, b), (c, d) in zip(key[1:], box, strict=True))


def dma_fields(address: int, move: Transfer) -> Fields:
    """LOAD or STORE between the buffer from ``address`` on and DRAM as ``move`` says."""
    return {
        "buffer_address": address,
        "dram_address": move.dram_address,
        "run_bytes": move.run_bytes,
        "run_count": move.run_count,
        "run_stride": move.run_stride,
        "row_bytes": move.row_bytes,
    }
