"""Commands executed by compiled kernels, with the same results as the classes of each command.

:class:`CompiledCommands` either executes a command wholly or does nothing: what a command must not
do, and what has no kernel, is left to golden's functions, which say what is wrong.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from golden.arithmetic.divide_sqrt_exp import divide, exponential, square_root
from golden.arithmetic.dot_product import encode
from golden.commands.vector import Source
from hw.config import CoreConfig
from hw.isa.encoding import Init, Opcode
from hw.isa.vector import VECTOR_STREAMS, Operation, Watch

from .kernels import column, operands, transfers, vector
from .kernels import post as post_kernels
from .kernels.records import command_record, layout_record
from .matmul import tile_count

__all__ = ["CompiledCommands"]

_Fields = Mapping[str, int]
_UNARY = {Operation.ROOT: square_root, Operation.EXPONENTIAL: exponential}
_STRIDES = {
    name: tuple(f"{name}_{loop}_stride" for loop in ("i0", "i1", "i2")) for name in VECTOR_STREAMS
}


class CompiledCommands:
    """The engines of one core of a :class:`~emulator.machine.Machine`.

    Parameters
    ----------
    machine : Machine
    core : CoreConfig
    noted : :class:`golden.commands.vector.VectorMachine` that keeps what VECTOR commands leave from
        one to the next; None without a vector engine
    """

    def __init__(self, machine: Any, core: CoreConfig, noted: Any) -> None:
        self._machine, self._core, self._noted = machine, core, noted
        fmt = machine.format
        self._layout = layout_record(core, fmt, machine.first, machine.config.memory_depth)
        dram = machine.memories["dram"]
        self._buffer = (machine.data, machine.written)
        self._dram = (dram.data.reshape(-1), dram.written.reshape(-1))
        self._methods = {
            Opcode.LOAD: self._load,
            Opcode.STORE: self._store,
            Opcode.WEIGHTS: self._weights,
        }
        if fmt.is_float:
            self._one = int(encode(fmt, 1.0))
            self._methods |= {
                Opcode.MATMUL: self._matmul,
                Opcode.POST: self._post,
                Opcode.VECTOR: self._vector,
            }

    def execute(self, opcode: Opcode, fields: _Fields) -> bool:
        """Whether the command has been executed."""
        method = self._methods.get(opcode)
        return method is not None and method(fields)

    # Transfers -------------------------------------------------------------------------------

    def _transfer(self, opcode, fields):
        unit = self._machine.config.granule_bytes
        rows = fields["row_bytes"]
        aligned = not (fields["dram_address"] % unit or fields["run_bytes"] % unit or rows % unit)
        if fields["run_count"] > 1:
            aligned &= not fields["run_stride"] % unit
        if not aligned or not rows or fields["run_bytes"] % rows:
            return False
        record = command_record(opcode, fields)
        return transfers.transfer(
            record, self._layout, *self._buffer, *self._dram, opcode is Opcode.STORE
        )

    def _load(self, fields):
        return self._transfer(Opcode.LOAD, fields)

    def _store(self, fields):
        return self._transfer(Opcode.STORE, fields)

    # The array -------------------------------------------------------------------------------

    def _weights(self, fields):
        core, machine = self._core, self._machine
        count = tile_count(Opcode.WEIGHTS, fields, core.rows)
        tiles = np.zeros((count, core.rows, core.columns), np.uint16)
        raw = np.zeros(core.bias_words * core.word_bytes if fields["bias"] else 0, np.uint8)
        record = command_record(Opcode.WEIGHTS, fields)
        if not operands.read_weights(record, self._layout, *self._buffer, tiles, raw):
            return False
        bias = raw[: 4 * core.columns].view("<u4") if fields["bias"] else None
        tiles = tiles.astype(machine.dtype)
        waiting = machine.tiles[core.index]
        for tile in tiles:
            waiting.append((tile, bias))
            bias = None
        return True

    def _matmul(self, fields):
        core, machine = self._core, self._machine
        taps = fields["kw_count"] * fields["kh_count"] * fields["cb_count"]
        tiles = tile_count(Opcode.MATMUL, fields, core.rows)
        if fields["transpose"]:
            vectors = taps * core.rows + fields["ones"]
        else:
            vectors = fields["wo_count"] * fields["ho_count"] * fields["n_count"]
        memory = machine.accumulator(core, fields)
        start = fields["accumulator_address"]
        waiting = machine.tiles[core.index]
        if not tiles or not vectors or start + vectors > memory.entries or len(waiting) < tiles:
            return False
        taken = [waiting[number] for number in range(tiles)]
        with_bias = [bias is not None for _, bias in taken]
        if with_bias != [fields["init"] == Init.BIAS, *[False] * (tiles - 1)]:
            return False
        place = slice(start, start + vectors)
        held = memory.data.view("<u4")[place]
        if fields["init"] == Init.BIAS:
            sums = np.repeat(taken[0][1][np.newaxis], vectors, axis=0)
        elif fields["init"] == Init.ACCUMULATOR:
            if not memory.written[place].all():
                return False
            sums = held.copy()
        else:
            sums = np.zeros(held.shape, np.uint32)
        codes = np.zeros((tiles, vectors, core.rows), np.uint16)
        record = command_record(Opcode.MATMUL, fields)
        if not operands.read_vectors(record, self._layout, *self._buffer, self._one, codes):
            return False
        for _ in range(tiles):
            waiting.popleft()
        weights = np.array([tile for tile, _ in taken], np.uint16)
        machine.flags |= column.column_dots(self._layout, codes, weights, sums, fields["channels"])
        held[:] = sums
        memory.written[place] = True
        return True

    # Behind the array ------------------------------------------------------------------------

    def _post(self, fields):
        memory = self._machine.accumulator(self._core, fields)
        record = command_record(Opcode.POST, fields)
        flags = post_kernels.post(
            record, self._layout, memory.data.view("<u4"), memory.written.reshape(-1), *self._buffer
        )
        return self._raise(flags)

    def _vector(self, fields):
        noted = self._noted
        counts = fields["i0_count"] * fields["i1_count"] * fields["i2_count"] * fields["cb_count"]
        operation, watch = fields["operation"], fields["watch"]
        behind = fields["add"] or fields["condition"] or operation
        if (
            not counts
            or watch > Watch.MORE
            or (operation and watch)
            or fields["sample"]
            or (fields["reduce"] and behind)
        ):
            return False
        if fields["guarded"] and noted.guard and noted.noted:
            return True
        record = command_record(Opcode.VECTOR, fields)
        streams = []
        for name in VECTOR_STREAMS[:-1]:
            source = fields[f"{name}_source"]
            constant = fields["immediate"]
            if source == Source.COEFFICIENT:
                constant = int(noted.coefficients[fields["coefficient"]])
            readable, numbers = vector.read_stream(
                record, self._layout, *self._buffer, source, fields[f"{name}_address"],
                *(fields[stride] for stride in _STRIDES[name]), constant,
            )  # fmt: skip
            if not readable:
                return False
            streams.append(numbers)
        if operation == Operation.CHAIN:
            results, flags = vector.run_chain(record, self._layout, *streams)
        else:
            results, flags = self._special(fields, *streams[:2])
        if fields["reduce"]:
            results, new = vector.sum_steps(results)
            flags |= new
        if not self._raise(vector.store(record, self._layout, *self._buffer, results), flags):
            return False
        if watch:
            found = vector.watch(record, self._layout, streams[1])
            before = noted.noted and watch == Watch.MORE
            noted.noted = before or found
            noted.rejected += int(noted.guard and noted.noted and not before)
        return True

    def _special(self, fields, x, y):
        """Results and flags of golden's division, root or exponential of the active lanes."""
        lanes = np.arange(x.shape[0])[:, np.newaxis] * self._core.rows + np.arange(x.shape[2])
        active = np.broadcast_to((lanes < fields["channels"])[:, np.newaxis], x.shape)
        results = np.zeros(x.shape, np.uint32)
        if not active.any():
            return results, 0
        if fields["operation"] == Operation.DIVIDE:
            results[active], flags = divide(x[active], y[active])
        else:
            results[active], flags = _UNARY[Operation(fields["operation"])](x[active])
        return results, int(np.bitwise_or.reduce(flags))

    def _raise(self, flags, more=0):
        """Raise flags; False for the -1 of a kernel that refuses a command."""
        if flags < 0:
            return False
        self._machine.flags |= flags | more
        return True
