"""What each command does, without time: memories, and the effects of the commands on them.

Built on :mod:`golden.arithmetic.dot_product` and :mod:`golden.commands.post`; VECTOR and LOSS are
in :mod:`emulator.vector` and :mod:`emulator.loss`. Memories know which bytes have been written;
reading others is an error, as is any address out of range.
"""

from collections import deque

import numpy as np

from golden.arithmetic.dot_product import column_dot, encode
from golden.arithmetic.formats import format_by_name
from golden.commands.post import post
from hw.config import BUFFER_ADDRESS_WIDTH
from hw.isa.encoding import POST_OUTPUT_LOOPS, QUEUE_OPCODES, Init, Opcode, Pool

from .loss import LossCommands
from .memory import Access, FunctionalError, Memory
from .vector import VectorCommands

__all__ = ["Access", "FunctionalError", "Machine", "tile_count"]

_ADDRESSES = 1 << BUFFER_ADDRESS_WIDTH


def tile_count(opcode, fields, rows):
    """K tiles that a WEIGHTS brings or a MATMUL takes."""
    taps = fields["kw_count"] * fields["kh_count"] * fields["cb_count"]
    if opcode is Opcode.MATMUL and fields["transpose"]:
        return -(-fields["wo_count"] * fields["ho_count"] * fields["n_count"] // rows)
    return taps


class Machine:
    """The memories of one accelerator, and the weight tiles on their way to its arrays.

    Parameters
    ----------
    config : AdaGPConfig
    memory : bytearray
        the DRAM window; changed in place
    unwritten : iterable of (offset, size)
        bytes of it that must not be read before they are written
    coefficients, guard : registers for VECTOR
    """

    def __init__(self, config, memory, unwritten=(), *, coefficients=(0,) * 8, guard=False):
        self.config = config
        self.format = format_by_name(config.operand_format)
        self.dtype = np.dtype(f"<u{self.format.width // 8}")
        self.flags = 0
        data = np.frombuffer(memory, np.uint8)
        self.memories = {"dram": Memory("DRAM", len(memory), 1, data)}
        for offset, size in unwritten:
            self.memories["dram"].written[offset : offset + size] = False
        for number, depth in config.memory_depth.items():
            core = config.memory_core[number]
            name = f"memory {number}"
            # Bytes are the unit: a group of lanes is written by itself.
            self.memories[name] = Memory(name, depth * core.word_bytes, 1)
        #: Engines of cores that have them, by the core's index.
        self.vector = {
            core.index: VectorCommands(self, core, coefficients, guard)
            for core in config.cores
            if core.has_vector
        }
        self.loss = {core.index: LossCommands(self, core) for core in config.cores if core.has_loss}
        #: For each core (weights (rows, columns), biases (columns,) or None), in order.
        self.tiles = [deque() for _ in config.cores]
        for core in config.cores:
            for bank in range(2):
                name = f"core {core.index} accumulator bank {bank}"
                self.memories[name] = Memory(name, core.accumulator_depth, 4 * core.columns)

    def access(self, opcode, fields):
        """What the command reads and writes; raises :class:`FunctionalError`."""
        return getattr(self, f"_{opcode.name.lower()}_access")(fields)

    def execute(self, opcode, fields):
        """Do what the command does; raises :class:`FunctionalError`."""
        getattr(self, f"_{opcode.name.lower()}")(fields)

    # Addresses -------------------------------------------------------------------------------

    def _core(self, fields):
        return self.config.cores[fields["core"]]

    def words(self, core, address):
        """(memory name, byte indices (..., word_bytes)) of buffer words at ``address``."""
        address = np.asarray(address, np.int64) % _ADDRESSES
        numbers = np.unique(address >> (BUFFER_ADDRESS_WIDTH - 1))
        if len(numbers) != 1:
            raise FunctionalError("one access reaches both memories")
        number = int(numbers[0])
        if number not in core.memories:
            raise FunctionalError(
                f"core {core.index} does not reach memory {number} (address "
                f"{int(address.flat[0]):#x})"
            )
        word = address % (_ADDRESSES // 2)
        depth = self.config.memory_depth[number]
        if word.max() >= depth:
            raise FunctionalError(
                f"memory {number} has {depth} words, none at {int(word.max()):#x}"
            )
        return f"memory {number}", word[..., None] * core.word_bytes + np.arange(core.word_bytes)

    def _bytes(self, name, index):
        return self.memories[name].read(index)[..., 0]

    # LOAD and STORE --------------------------------------------------------------------------

    def _transfer(self, fields):
        """DRAM bytes (rows, row_bytes), and (memory, buffer bytes (rows, words * word_bytes))."""
        core = self._core(fields)
        unit = self.config.granule_bytes
        names = ["dram_address", "run_bytes", "row_bytes"]
        for name in names if fields["run_count"] == 1 else [*names, "run_stride"]:
            if fields[name] % unit:
                raise FunctionalError(f"{name} {fields[name]} is no multiple of {unit}")
        if fields["run_bytes"] % fields["row_bytes"]:
            raise FunctionalError("run_bytes is no multiple of row_bytes")
        start = fields["dram_address"] + np.arange(fields["run_count"]) * fields["run_stride"]
        dram = (start[:, None] + np.arange(fields["run_bytes"])).reshape(-1, fields["row_bytes"])
        self.memories["dram"].check(dram)
        row_words = -(-fields["row_bytes"] // core.word_bytes)
        address = fields["buffer_address"] + np.arange(len(dram) * row_words)
        name, index = self.words(core, address)
        return dram, name, index.reshape(len(dram), -1)

    def _load_access(self, fields):
        dram, name, index = self._transfer(fields)
        return Access([("dram", dram)], [(name, index)])

    def _load(self, fields):
        dram, name, index = self._transfer(fields)
        rows = np.zeros(index.shape, np.uint8)
        rows[:, : dram.shape[1]] = self._bytes("dram", dram)
        self.memories[name].write(index, rows[..., None])

    def _store_access(self, fields):
        dram, name, index = self._transfer(fields)
        return Access([(name, index)], [("dram", dram)])

    def _store(self, fields):
        dram, name, index = self._transfer(fields)
        rows = self._bytes(name, index[:, : dram.shape[1]])
        self.memories["dram"].write(dram, rows[..., None])

    # WEIGHTS ---------------------------------------------------------------------------------

    def _weights_plan(self, fields):
        """(memory, byte indices (words, word)) and, for every word of (tile, line, block), its
        place there or -1 for zeros; the first words are the biases."""
        core = self._core(fields)
        loops = self.grid(fields, ("cb", "kh", "kw"))
        bias = core.bias_words * fields["bias"]
        words = [fields["bias_address"] + np.arange(bias)]
        lines = np.arange(core.rows if fields["transpose"] else core.columns)
        blocks = np.arange(fields["block_count"] if fields["transpose"] else 1)
        number = lines + (loops["cb"][:, None] * core.rows if fields["transpose"] else 0)
        exists = np.broadcast_to(number < fields["row_limit"], (len(loops["cb"]), len(lines)))
        base = fields["address"] + sum(loops[loop] * fields[f"{loop}_stride"] for loop in loops)
        address = base[:, None, None] + lines[:, None] * fields["row_stride"] + blocks
        words.append(address[exists].ravel())
        place = np.full(address.shape, -1)
        place[exists] = bias + np.arange(exists.sum() * len(blocks)).reshape(-1, len(blocks))
        words = np.concatenate(words)
        if not len(words):
            return None, np.zeros((0, core.word_bytes), np.int64), place
        return *self.words(core, words), place

    def _weights_access(self, fields):
        name, index, _ = self._weights_plan(fields)
        return Access([] if name is None else [(name, np.unique(index))], [])

    def _weights(self, fields):
        core = self._core(fields)
        name, index, place = self._weights_plan(fields)
        words = np.zeros((len(index) + 1, core.word_bytes), np.uint8)
        if name is not None:
            words[:-1] = self._bytes(name, index)
        bias = None
        if fields["bias"]:
            bias = words[: core.bias_words].reshape(-1)[: 4 * core.columns].copy().view("<u4")
        for tile in place:
            lines = words[tile].view(self.dtype)
            if fields["transpose"]:
                lines = lines.reshape(core.rows, -1)[:, fields["skip"] :][:, : core.columns]
                lines = np.pad(lines, ((0, 0), (0, core.columns - lines.shape[1])))
            else:
                lines = lines[:, 0].T
            self.tiles[fields["core"]].append((lines, bias))
            bias = None

    # MATMUL ----------------------------------------------------------------------------------

    def _accumulator(self, fields):
        return f"core {fields['core']} accumulator bank {fields['accumulator_bank']}"

    def grid(self, fields, loops):
        """Index arrays of nested loops, outermost first, flattened."""
        counts = [fields[f"{loop}_count"] for loop in loops]
        return dict(zip(loops, np.indices(counts).reshape(len(loops), -1), strict=True))

    def _matmul_plan(self, fields):
        """Entries; per repetition (memory, byte indices (M', word), mask (M,))."""
        core = self._core(fields)
        outer = self.grid(fields, ("cb", "kh", "kw"))
        inner = self.grid(fields, ("n", "ho", "wo"))
        vectors = len(inner["n"])
        if fields["transpose"]:
            vectors = len(outer["cb"]) * core.rows + fields["ones"]
        entries = fields["accumulator_address"] + np.arange(vectors)
        self.memories[self._accumulator(fields)].check(entries)
        base = sum(inner[loop] * fields[f"{loop}_stride"] for loop in inner) + fields["x_address"]
        row = fields["h_origin"] + inner["ho"] * fields["ho_step"]
        column = fields["w_origin"] + inner["wo"] * fields["wo_step"]
        taps = []
        for cb, kh, kw in zip(*outer.values(), strict=True):
            h, w = row + kh * fields["kh_step"], column + kw * fields["kw_step"]
            inside = (h >= 0) & (h < fields["h_limit"]) & (w >= 0) & (w < fields["w_limit"])
            step = cb * fields["cb_stride"] + kh * fields["kh_stride"] + kw * fields["kw_stride"]
            name, index = None, None
            if inside.any():
                name, index = self.words(core, (base + step)[inside])
            taps.append((inside, name, index))
        return entries, taps

    def _matmul_access(self, fields):
        entries, taps = self._matmul_plan(fields)
        reads = [(name, np.unique(index)) for _, name, index in taps if name is not None]
        return Access(reads, [(self._accumulator(fields), entries)])

    def _vectors(self, core, fields, taps):
        """Vectors (K tiles, M, rows) of a MATMUL."""
        x = np.zeros((len(taps), len(taps[0][0]), core.rows), self.dtype)
        for tap, (inside, name, index) in enumerate(taps):
            if name is not None:
                x[tap, inside] = self._bytes(name, index).view(self.dtype)
        if not fields["transpose"]:
            return x
        x = np.pad(x, ((0, 0), (0, -x.shape[1] % core.rows), (0, 0)))
        x = x.reshape(len(taps), -1, core.rows, core.rows).transpose(1, 0, 3, 2)
        x = x.reshape(len(x), -1, core.rows)
        if fields["ones"]:
            ones = np.full((len(x), 1, core.rows), encode(self.format, 1.0), self.dtype)
            x = np.concatenate([x, ones], axis=1)
        return x

    def _matmul(self, fields):
        core = self._core(fields)
        entries, taps = self._matmul_plan(fields)
        memory = self.memories[self._accumulator(fields)]
        waiting = self.tiles[fields["core"]]
        for number, vectors in enumerate(self._vectors(core, fields, taps)):
            if not waiting:
                raise FunctionalError("it needs a weight tile more than there are")
            weights, bias = waiting.popleft()
            wants_bias = number == 0 and fields["init"] == Init.BIAS
            if wants_bias != (bias is not None):
                raise FunctionalError(
                    f"K tile {number} {'wants' if wants_bias else 'does not want'} the biases, its "
                    f"weights come {'with' if bias is not None else 'without'} them"
                )
            if wants_bias:
                sums = np.broadcast_to(bias, (len(entries), core.columns))
            elif number == 0 and fields["init"] == Init.ACCUMULATOR:
                sums = memory.read(entries).view("<u4")
            elif number == 0:
                sums = np.zeros((len(entries), core.columns), np.uint32)
            sums, flags = column_dot(self.format, vectors, weights, sums)
            self.flag(flags[:, : fields["channels"]])
        memory.write(entries, sums.astype("<u4").view(np.uint8).reshape(len(entries), -1))

    def flag(self, flags):
        self.flags |= int(np.bitwise_or.reduce(flags, axis=None)) if np.size(flags) else 0

    # POST ------------------------------------------------------------------------------------

    def _post_plan(self, fields):
        """Entries (outputs, window), memory, byte indices (outputs, bytes of an output)."""
        core = self._core(fields)
        outputs = self.grid(fields, ("n", "ho", "wo"))
        window = self.grid(fields, ("ph", "pw"))
        first = sum(outputs[loop] * fields[f"{loop}_stride"] for loop in outputs)
        inside = sum(window[loop] * fields[f"{loop}_stride"] for loop in window)
        entries = fields["accumulator_address"] + first[:, None] + inside
        self.memories[self._accumulator(fields)].check(entries)
        item = 4 if fields["wide"] else self.dtype.itemsize
        size = fields["group_count"] * core.post_lanes * item
        skip = fields["out_group"] * core.group_width // 8
        word_count = -(-(skip + size) // core.word_bytes)
        words = fields["out_address"] + sum(
            outputs[loop] * fields[f"out_{loop}_stride"] for loop in POST_OUTPUT_LOOPS
        )
        name, index = self.words(core, words[:, None] + np.arange(word_count))
        return entries, name, index.reshape(len(entries), -1)[:, skip : skip + size]

    def _post_access(self, fields):
        entries, name, index = self._post_plan(fields)
        return Access([(self._accumulator(fields), np.unique(entries))], [(name, index)])

    def _post(self, fields):
        core = self._core(fields)
        entries, name, index = self._post_plan(fields)
        lanes = fields["group_count"] * core.post_lanes
        valid = min(fields["channels"], lanes, core.columns)
        sums = self.memories[self._accumulator(fields)].read(entries).view("<u4")
        result, flags = post(
            self.format,
            sums[..., :valid],
            relu=bool(fields["relu"]),
            pool="sum" if fields["pool"] == Pool.SUM else "max",
            scale=fields["scale"],
            wide=bool(fields["wide"]),
        )
        self.flag(flags)
        full = np.zeros((len(entries), lanes), "<u4" if fields["wide"] else self.dtype)
        full[:, :valid] = result
        self.memories[name].write(index, full.view(np.uint8)[..., None])

    # VECTOR and LOSS -------------------------------------------------------------------------

    def _vector_access(self, fields):
        return self.vector[fields["core"]].access(fields)

    def _vector(self, fields):
        self.vector[fields["core"]].execute(fields)

    def _loss_access(self, fields):
        return self.loss[fields["core"]].access(fields)

    def _loss(self, fields):
        self.loss[fields["core"]].execute(fields)


assert all(hasattr(Machine, f"_{opcode.name.lower()}") for opcode in QUEUE_OPCODES)
