"""One command of the loss engine on the numbers of its rows, bit for bit.

The numerics are those of :mod:`golden.layers.loss`; a batch may be cut into several commands.
"""

import enum
from dataclasses import dataclass, field

import numpy as np

from golden.arithmetic.dot_product import encode
from golden.arithmetic.float32_unit import VectorUnit
from golden.arithmetic.formats import FLOAT32, FloatFormat
from golden.layers.loss import cross_entropy_rows, squared_error_rows

__all__ = ["Loss", "LossMachine"]

Loss = enum.IntEnum("Loss", "CROSS_ENTROPY SQUARED_ERROR", start=0)


@dataclass(kw_only=True, eq=False)
class LossMachine:
    """Executes commands; what a batch has added up so far stays from one to the next.

    Members
    -------
    fmt : format of the gradient
    terms : float32 bits to be added up, in order; None before the first batch
    correct : answers that are right
    flags : union of :class:`golden.arithmetic.dot_product.Flags`; those of the sum with a batch's
        last command
    """

    fmt: FloatFormat
    terms: list | None = field(default=None)
    correct: int = 0
    flags: int = 0

    def run(self, command: dict[str, int], outputs, targets):
        """Execute one command.

        Parameters
        ----------
        command : fields by name; addresses are not looked at
        outputs : (row_count, row_length) float32 bits
        targets : the same, or labels (row_count,)

        Returns
        -------
        gradient (row_count, row_length) operand codes, and the value row (2,) as float32 bits, or
        None if the command is not the last of its batch

        Raises
        ------
        ValueError
            for a label that is no class, and for a batch that does not begin with ``first``.
        """
        unit = VectorUnit()
        if command["first"]:
            self.terms, self.correct = [], 0
        elif self.terms is None:
            raise ValueError("a batch begins with a command with first")
        scale = np.uint32(command["gradient_scale"])
        if command["loss"] == Loss.CROSS_ENTROPY:
            rows = cross_entropy_rows(self.fmt, outputs, targets, scale, unit)
        else:
            rows = squared_error_rows(self.fmt, outputs, targets, scale, unit)
        self.terms += list(rows.terms)
        self.correct += rows.correct
        value = None
        if command["last"]:
            total = unit.sum(np.array(self.terms, np.uint32))
            mean = unit.multiply(total, np.uint32(command["value_scale"]))
            value = np.array([mean, encode(FLOAT32, float(self.correct))], np.uint32)
        self.flags |= unit.flags
        return rows.gradient, value
