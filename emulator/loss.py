"""LOSS commands on the memories of the functional model, by :mod:`golden.commands.loss`."""

import numpy as np

from golden.arithmetic.float32_unit import widen
from golden.commands.loss import Loss, LossMachine

from .memory import Access, FunctionalError

__all__ = ["LossCommands"]

#: A memory's name, and indices of bytes there.
_Bytes = tuple[str, np.ndarray]


class LossCommands:
    """The loss engine of one core of a :class:`~emulator.machine.Machine`.

    Parameters
    ----------
    machine : Machine
    core : CoreConfig
    """

    def __init__(self, machine, core):
        self._machine = machine
        self._core = core
        self._golden = LossMachine(fmt=machine.format)

    def access(self, fields):
        """Words that the command reads and writes, whatever the labels are.

        Raises
        ------
        FunctionalError
            for an address out of range, or a word that the command reads and writes.
        """
        reads = [self._outputs(fields)[:2], self._targets(fields)[:2]]
        writes = list(self._results(fields).values())
        for where, read in reads:
            for name, written in writes:
                both = np.intersect1d(read, written)
                if name == where and len(both):
                    word = int(both[0]) // self._core.word_bytes
                    raise FunctionalError(f"it reads and writes word {word:#x} of {name}")
        return Access(reads, writes)

    def execute(self, fields):
        """Do what the command does."""
        outputs = self._numbers(*self._outputs(fields), fields["x_wide"])
        if fields["loss"] == Loss.CROSS_ENTROPY:
            name, index, used = self._targets(fields)
            targets = self._bytes(name, index, used).view("<u4")[:, 0]
        else:
            targets = self._numbers(*self._targets(fields), fields["target_wide"])
        try:
            gradient, value = self._golden.run(fields, outputs, targets)
        except ValueError as error:
            raise FunctionalError(str(error)) from error
        results = self._results(fields)
        self._write(*results["gradient"], gradient.astype(self._machine.dtype))
        if value is not None:
            self._write(*results["value"], value.astype("<u4")[np.newaxis])
        self._machine.flag(self._golden.flags)

    # Rows ------------------------------------------------------------------------------------

    def _rows(self, address: int, stride: int | None, count: int, size: int) -> _Bytes:
        """Memory and byte indices (count, words of a row in bytes) of rows of ``size`` bytes."""
        words = -(-size // self._core.word_bytes)
        stride = words if stride is None else stride
        first = address + np.arange(count) * stride
        name, index = self._machine.words(self._core, first[:, np.newaxis] + np.arange(words))
        return name, index.reshape(count, -1)

    def _size(self, fields: dict[str, int], wide: int) -> int:
        return fields["row_length"] * (4 if wide else self._machine.dtype.itemsize)

    def _outputs(self, fields: dict[str, int]) -> tuple[str, np.ndarray, int]:
        """Memory, byte indices (rows, bytes), and how many of a row's bytes are used."""
        size = self._size(fields, fields["x_wide"])
        rows = self._rows(fields["x_address"], fields["x_stride"], fields["row_count"], size)
        return *rows, size

    def _targets(self, fields: dict[str, int]) -> tuple[str, np.ndarray, int]:
        size = self._size(fields, fields["target_wide"])
        if fields["loss"] == Loss.CROSS_ENTROPY:
            size = 4
        return *self._rows(fields["target_address"], None, fields["row_count"], size), size

    def _results(self, fields: dict[str, int]) -> dict[str, _Bytes]:
        """Name -> memory, byte indices (rows, bytes)."""
        size = self._size(fields, False)
        results = {
            "gradient": self._rows(fields["gradient_address"], None, fields["row_count"], size)
        }
        if fields["last"]:
            results["value"] = self._rows(fields["value_address"], None, 1, 8)
        return results

    def _bytes(self, name, index, used):
        return self._machine.memories[name].read(index[:, :used])[..., 0]

    def _numbers(self, name, index, used, wide):
        """float32 bits (rows, numbers)."""
        raw = self._bytes(name, index, used)
        if wide:
            return raw.view("<u4")
        return widen(self._machine.format, raw.view(self._machine.dtype))

    def _write(self, name, index, values):
        """Rows of ``values``, the last word of each filled up with zeros."""
        raw = values.view(np.uint8)
        full = np.zeros(index.shape, np.uint8)
        full[:, : raw.shape[1]] = raw
        self._machine.memories[name].write(index, full[..., np.newaxis])
