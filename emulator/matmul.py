"""WEIGHTS and MATMUL on the memories of the functional model, by golden's column."""

import numpy as np

from golden.arithmetic.dot_product import column_dot, encode
from hw.isa.encoding import Init, Opcode

from .memory import Access, FunctionalError, loop_indices

__all__ = ["MatmulCommands", "WeightsCommands", "tile_count"]


def tile_count(opcode, fields, rows):
    """K tiles that a WEIGHTS brings or a MATMUL takes."""
    taps = fields["kw_count"] * fields["kh_count"] * fields["cb_count"]
    if opcode is Opcode.MATMUL and fields["transpose"]:
        return -(-fields["wo_count"] * fields["ho_count"] * fields["n_count"] // rows)
    return taps


class WeightsCommands:
    """WEIGHTS of one core of a :class:`~emulator.machine.Machine`: tiles go into its ``tiles``."""

    def __init__(self, machine, core):
        self._machine, self._core = machine, core

    def _plan(self, fields):
        """(memory, byte indices (words, word)) and, for every word of (tile, line, block), its
        place there or -1 for zeros; the first words are the biases."""
        core = self._core
        loops = loop_indices(fields, ("cb", "kh", "kw"))
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
        return *self._machine.words(core, words), place

    def access(self, fields):
        name, index, _ = self._plan(fields)
        return Access([] if name is None else [(name, np.unique(index))], [])

    def execute(self, fields):
        core, machine = self._core, self._machine
        name, index, place = self._plan(fields)
        words = np.zeros((len(index) + 1, core.word_bytes), np.uint8)
        if name is not None:
            words[:-1] = machine.memories[name].read(index)[..., 0]
        bias = None
        if fields["bias"]:
            bias = words[: core.bias_words].reshape(-1)[: 4 * core.columns].copy().view("<u4")
        for tile in place:
            lines = words[tile].view(machine.dtype)
            if fields["transpose"]:
                lines = lines.reshape(core.rows, -1)[:, fields["skip"] :][:, : core.columns]
                lines = np.pad(lines, ((0, 0), (0, core.columns - lines.shape[1])))
            else:
                lines = lines[:, 0].T
            machine.tiles[core.index].append((lines, bias))
            bias = None


class MatmulCommands:
    """MATMUL of one core of a :class:`~emulator.machine.Machine`, whose ``tiles`` it takes."""

    def __init__(self, machine, core):
        self._machine, self._core = machine, core

    def _plan(self, fields):
        """Entries; per repetition (memory, byte indices (M', word), mask (M,))."""
        core = self._core
        outer = loop_indices(fields, ("cb", "kh", "kw"))
        inner = loop_indices(fields, ("n", "ho", "wo"))
        vectors = len(inner["n"])
        if fields["transpose"]:
            vectors = len(outer["cb"]) * core.rows + fields["ones"]
        entries = fields["accumulator_address"] + np.arange(vectors)
        self._machine.accumulator(core, fields).check(entries)
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
                name, index = self._machine.words(core, (base + step)[inside])
            taps.append((inside, name, index))
        return entries, taps

    def access(self, fields):
        entries, taps = self._plan(fields)
        reads = [(name, np.unique(index)) for _, name, index in taps if name is not None]
        return Access(reads, [(self._machine.accumulator(self._core, fields).name, entries)])

    def _vectors(self, fields, taps):
        """Vectors (K tiles, M, rows) of a MATMUL."""
        machine, rows = self._machine, self._core.rows
        x = np.zeros((len(taps), len(taps[0][0]), rows), machine.dtype)
        for tap, (inside, name, index) in enumerate(taps):
            if name is not None:
                x[tap, inside] = machine.memories[name].read(index)[..., 0].view(machine.dtype)
        if not fields["transpose"]:
            return x
        x = np.pad(x, ((0, 0), (0, -x.shape[1] % rows), (0, 0)))
        x = x.reshape(len(taps), -1, rows, rows).transpose(1, 0, 3, 2)
        x = x.reshape(len(x), -1, rows)
        if fields["ones"]:
            ones = np.full((len(x), 1, rows), encode(machine.format, 1.0), machine.dtype)
            x = np.concatenate([x, ones], axis=1)
        return x

    def execute(self, fields):
        machine, core = self._machine, self._core
        entries, taps = self._plan(fields)
        memory = machine.accumulator(core, fields)
        waiting = machine.tiles[core.index]
        for number, vectors in enumerate(self._vectors(fields, taps)):
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
            sums, flags = column_dot(machine.format, vectors, weights, sums)
            machine.flag(flags[:, : fields["channels"]])
        memory.write(entries, sums.astype("<u4").view(np.uint8).reshape(len(entries), -1))
