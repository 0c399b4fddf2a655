"""The PE array: operand decoders, columns, and the exchange of weights."""

from dataclasses import dataclass

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hw.formats import FLAGS_LAYOUT, FloatFormat, IntFormat
from hw.primitives.pipeline import delay
from hw.primitives.shared_module import add_shared

from .float_column import DotProductColumn, FloatTiming
from .integer_column import IntegerColumn, IntegerTiming
from .operand_decoder import OperandDecoder

__all__ = ["ArrayTiming", "PEArray"]


@dataclass(frozen=True, kw_only=True)
class ArrayTiming:
    """Cycle counts of an array, without building one."""

    fmt: FloatFormat | IntFormat
    rows: int

    @property
    def column(self) -> FloatTiming | IntegerTiming:
        return FloatTiming(rows=self.rows) if self.fmt.is_float else IntegerTiming(rows=self.rows)

    @property
    def x_delay(self) -> int:
        """From ``x`` to the inputs of the columns."""
        return 3 if self.fmt.is_float else 2

    @property
    def psum_offset(self) -> int:
        """From ``x`` to the ``psum`` it is added to."""
        return self.x_delay + self.column.psum_offset

    @property
    def latency(self) -> int:
        """From ``x`` to ``o``."""
        return self.x_delay + self.column.latency


class PEArray(wiring.Component):
    """``columns`` fused dot products of ``rows`` products each: ``o = psum + x @ w``.

    One vector ``x`` per cycle is broadcast to all columns; each column holds ``rows`` weights and
    has a partial sum and a result of its own (paper, section 4.1). Nothing stalls: the surroundings
    count cycles. Numerics: docs/numerics.md.

    **Timing.** A vector presented in cycle t takes the ``psum`` presented in cycle
    t + ``PSUM_OFFSET`` and gives ``o`` in cycle t + ``LATENCY``; hence ``LATENCY - PSUM_OFFSET``
    cycles pass from a partial sum to its successor. Throughput: one vector per cycle.

    **Weights.** Two banks. ``w_*`` loads the weights of one column per cycle into bank ``w_bank``;
    a vector uses bank ``weight_bank``, which may hold weights loaded up to and including the cycle
    before. While one bank is used the other may be loaded, from the cycle in which the first vector
    uses the other one. Using a bank ends the life of what the other one holds: it has to be loaded
    anew before it is used again. (There is a waiting and an active register per weight and no
    multiplexer; a bank is copied when it is first used.)

    **Multipliers.** Those of the first ``lut_rows`` rows are made of LUTs instead of multiplier
    blocks, for devices that have too few of them; nothing else changes. Float formats only.

    **Reset** clears ``o_valid`` and the state of the banks; data registers have none.

    Members
    -------
    x, x_valid, weight_bank : In
        ``rows`` operands, row 0 in the lowest bits, and the weight bank they are multiplied with.
    lane_enable : In
        One bit per column: whether its exceptions count in ``o_flags``; sampled with ``x``.
    psum : In
        ``columns`` partial sums (float32; int32 for integer formats), column 0 lowest.
    o, o_valid : Out
        ``columns`` results.
    o_flags : Out
        Exceptions of all enabled columns together; zero unless ``o_valid``.
    w_valid, w_data, w_column, w_bank : In
        ``rows`` weights of column ``w_column``.
    """

    def __init__(self, fmt: FloatFormat | IntFormat, rows: int, columns: int, *, lut_rows: int = 0):
        for name, value in (("Rows", rows), ("Columns", columns)):
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a positive integer, not {value!r}")
        if not 0 <= lut_rows <= (rows if fmt.is_float else 0):
            raise ValueError(
                f"Rows with multipliers of LUTs must be at most {rows if fmt.is_float else 0}, "
                f"not {lut_rows!r}"
            )
        self.fmt = fmt
        self.rows = rows
        self.columns = columns
        self.lut_rows = lut_rows
        operands = data.ArrayLayout(fmt.width, rows)
        super().__init__(
            {
                "x": In(operands),
                "x_valid": In(1),
                "weight_bank": In(1),
                "lane_enable": In(columns),
                "psum": In(data.ArrayLayout(32, columns)),
                "o": Out(data.ArrayLayout(32, columns)),
                "o_valid": Out(1),
                "o_flags": Out(FLAGS_LAYOUT),
                "w_valid": In(1),
                "w_data": In(operands),
                "w_column": In(range(columns)),
                "w_bank": In(1),
            }
        )
        self.timing = ArrayTiming(fmt=fmt, rows=rows)

    def _make_column(self):
        if self.fmt.is_float:
            return DotProductColumn(self.fmt, self.rows, lut_rows=self.lut_rows)
        return IntegerColumn(self.fmt, self.rows)

    @property
    def PSUM_OFFSET(self) -> int:
        """Cycles from ``x`` to the ``psum`` it is added to."""
        return self.timing.psum_offset

    @property
    def LATENCY(self) -> int:
        """Cycles from ``x`` to ``o``."""
        return self.timing.latency

    def elaborate(self, platform):
        m = Module()
        columns = []
        for index in range(self.columns):
            column = self._make_column()
            columns.append(
                add_shared(
                    m,
                    platform,
                    column,
                    name=f"column{index}",
                    module_name=f"adagp_column_{self.fmt.name}_{self.rows}"
                    + (f"_lut{self.lut_rows}" if self.lut_rows else ""),
                )
            )
            m.d.comb += [column.psum.eq(self.psum[index]), self.o[index].eq(column.o)]

        # Which bank waits. A waiting bank becomes active when a vector uses it, or when the
        # other one is loaded, which nobody can be using any more.
        waiting, waiting_bank = Signal(), Signal()
        used = self.x_valid & (self.weight_bank == waiting_bank)
        displaced = self.w_valid & (self.w_bank != waiting_bank)
        swap = Signal()
        m.d.comb += swap.eq(waiting & (used | displaced))
        with m.If(swap):
            m.d.sync += waiting.eq(0)
        with m.If(self.w_valid):
            m.d.sync += [waiting.eq(1), waiting_bank.eq(self.w_bank)]

        swap = delay(m, swap, self.timing.x_delay - 1, name="swap", reset=False)
        loads = Cat(self.w_valid & (self.w_column == index) for index in range(self.columns))
        loads = delay(m, loads, self.timing.x_delay - 1, name="loads", reset=False)
        if self.fmt.is_float:
            self._connect_float(m, platform, columns, swap, loads)
        else:
            self._connect_integer(m, columns, swap, loads)

        valid = self.x_valid
        for index in range(self.LATENCY):
            stage = Signal(name=f"valid_{index}")
            m.d.sync += stage.eq(valid)
            valid = stage
        enable = delay(m, self.lane_enable, self.LATENCY, name="enable", reset=False)
        flags = 0
        for index, column in enumerate(columns):
            flags = flags | (column.flags.as_value() & enable[index].replicate(4))
        m.d.comb += [
            self.o_valid.eq(valid),
            self.o_flags.eq(flags & valid.replicate(4)),
        ]
        return m

    def _connect_integer(self, m, columns, swap, loads):
        x = delay(m, self.x, 2, name="x", reset=False)
        w = delay(m, self.w_data, 1, name="w", reset=False)
        for index, column in enumerate(columns):
            m.d.comb += [
                column.x.eq(x),
                column.w.eq(w),
                column.load.eq(loads[index]),
                column.swap.eq(swap),
            ]

    def _connect_float(self, m, platform, columns, swap, loads):
        skew = self.timing.column.skew
        exponents, significands, nans = {}, {}, {}
        for side, codes in (("x", self.x), ("w", self.w_data)):
            decoders = []
            for row in range(self.rows):
                decoder = OperandDecoder(self.fmt, skew=skew)
                add_shared(
                    m,
                    platform,
                    decoder,
                    name=f"decode_{side}{row}",
                    module_name=f"adagp_decoder_{self.fmt.name}_d{skew}",
                )
                m.d.comb += decoder.code.eq(
                    delay(m, codes[row], 1, name=f"{side}{row}", reset=False)
                )
                decoders.append(decoder)
            exponents[side] = Cat(d.exponent for d in decoders)
            significands[side] = Cat(d.significand for d in decoders)
            nans[side] = Cat(d.nan for d in decoders).any()
        # One more register for the way to all columns.
        exponents["x"] = delay(m, exponents["x"], 1, name="x_exponents", reset=False)
        significands["x"] = delay(m, significands["x"], 1, name="x_significands", reset=False)
        nans["x"] = delay(m, nans["x"], 1, name="x_nan", reset=False)
        late_swap = delay(m, swap, skew, name="late_swap", reset=False)
        late_loads = delay(m, loads, skew, name="late_loads", reset=False)
        for index, column in enumerate(columns):
            for side in ("x", "w"):
                m.d.comb += [
                    getattr(column, f"{side}_exponent").eq(exponents[side]),
                    getattr(column, f"{side}_significand").eq(significands[side]),
                    getattr(column, f"{side}_nan").eq(nans[side]),
                ]
            m.d.comb += [
                column.load_exponent.eq(loads[index]),
                column.load_significand.eq(late_loads[index]),
                column.swap_exponent.eq(swap),
                column.swap_significand.eq(late_swap),
            ]
        return m
