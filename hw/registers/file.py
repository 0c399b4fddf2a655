"""The accelerator's registers behind an AXI4-Lite slave, made from their description."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.bus.axi_lite import AXI4LiteTarget
from hw.bus.signatures import (
    RESP_DECERR,
    RESP_OKAY,
    RESP_SLVERR,
    AXI4LiteSignature,
    ErrorReportSignature,
    UpdateSignature,
)

from .counter_bank import CounterBank, EventSignature
from .map import ADDRESS_WIDTH, COUNTER_BASE, register_map
from .model import Access

__all__ = ["RegisterFile"]

#: Registers that the register file itself works with; all others that change have a port.
_OWN = (
    "CONTROL",
    "STATUS",
    "INTERRUPT_STATUS",
    "INTERRUPT_ENABLE",
    "ERROR_CODE",
    "ERROR_UNIT",
    "ERROR_ADDRESS_LO",
    "ERROR_ADDRESS_HI",
)

#: Accesses of fields that come from the rest of the machine.
_UPDATED = {Access.READ_ONLY, Access.SHARED}


class RegisterFile(wiring.Component):
    """Control, status and counters for the host.

    A run lasts from ``start`` to ``finish``: ``busy`` is high from the cycle of ``start`` to that
    of ``finish``, the interrupt follows in the next cycle. CYCLES is the number of cycles with
    ``busy``; the other counters count their events in these cycles. A run in which ``error`` came
    ends with ERROR instead of DONE as interrupt cause, one with ``stopped`` with STOPPED; only the
    first error of a run is kept.

    Writes to locked registers and of CONTROL.START during a run and to read-only registers are
    answered with SLVERR, accesses to undefined addresses with DECERR; neither changes anything. The
    coefficients may be written while a BATCH is ``waiting``: no command is executed then. If a
    cause or flag is set and cleared in the same cycle, it stays set.

    Latency: a write takes effect 2 cycles after address and data are accepted; a read answers 2
    cycles after its address, for a counter's low half up to 14 cycles. Reset: everything as in
    the description; the run is forgotten.

    Parameters
    ----------
    config : AdaGPConfig

    Members
    -------
    bus : AXI4-Lite slave
    irq : interrupt, level
    start : one cycle
    abort : one cycle, only during a run: CONTROL.STOP
    busy : high during a run
    finish : the run has ended; one cycle, only while ``busy``
    stopped : In(1), with ``finish``: because of ``abort``; then there is no error
    draining : In(1), state
    error : :class:`~hw.bus.signatures.ErrorReportSignature`
    events : one input per event, see :attr:`~hw.registers.model.RegisterMap.events`
    mem_base, mem_size, program_address, program_size, watchdog : registers, stable while ``busy``
    guard, sample_seed : the same, where VECTOR exists, and coefficient0 ... coefficient7, which may
        change while ``waiting``
    waiting, batch : In(1), state and interrupt cause, where BATCH exists, and its registers:
        batches, batches_ready : Out; may change at any time
        epoch_batches, warm_up, stage0 ... stage3 : Out, stable while ``busy``
        batches_done, epoch, epoch_batch, phase : Out, with ``<name>_update``,
        ``In(UpdateSignature(width))``
    core0_flags [, core1_flags] : 1 sets the sticky flag; bits as in the description
    """

    def __init__(self, config):
        self.map = register_map(config)
        self.has_batches = config.has_training_engines
        ports = {"waiting": In(1), "batch": In(1)} if self.has_batches else {}
        for register in self._with_ports():
            width = sum(field.width for field in register.fields)
            accesses = {field.access for field in register.fields}
            name = _port_name(register)
            if Access.WRITE_ONE_TO_CLEAR in accesses:
                ports[name] = In(width)
                continue
            top = max(field.lsb + field.width for field in register.fields)
            ports[name] = Out((ports[name].shape if name in ports else 0) + top)
            if accesses & _UPDATED:
                ports[f"{name}_update"] = In(UpdateSignature(width))
        super().__init__(
            {
                "bus": In(AXI4LiteSignature(address_width=ADDRESS_WIDTH)),
                "irq": Out(1),
                "start": Out(1),
                "abort": Out(1),
                "busy": Out(1),
                "finish": In(1),
                "stopped": In(1),
                "draining": In(1),
                "error": In(ErrorReportSignature()),
                "events": In(EventSignature(self.map.events)),
                **ports,
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.target = target = AXI4LiteTarget(address_width=ADDRESS_WIDTH)
        m.submodules.counters = counters = CounterBank(self.map.counters)
        connect(m, flipped(self.bus), target.bus)
        connect(m, flipped(self.events), counters.events)

        state = self._fields()
        self._write(m, target, state)
        self._read(m, target, counters, state)
        self._run(m, counters, state)
        self._connect_ports(m, state)
        return m

    def _with_ports(self):
        """Registers that the rest of the machine uses."""
        for register in self.map:
            fixed = register.constant or not register.fields
            if register.name not in _OWN and not register.counter and not fixed:
                yield register

    def _fields(self):
        """A signal for every field: (register name, field name) -> value that software reads."""
        return {
            (register.name, field.name): Const(field.reset, field.width)
            if field.access is Access.CONSTANT
            else Signal(field.width, init=field.reset, name=f"{register.name}_{field.name}".lower())
            for register in self.map
            if register.counter is None
            for field in register.fields
        }

    def _write(self, m, target, state):
        """Decode writes; a strobe field is high for one cycle."""
        mask = Cat(bit.replicate(8) for bit in target.write_strobe)
        for register in self.map:
            for field in register.fields:
                if field.access is Access.STROBE:
                    m.d.sync += state[register.name, field.name].eq(0)
        m.d.comb += target.write_resp.eq(RESP_DECERR)
        with m.If(target.write_valid), m.Switch(target.write_address):
            for register in self.map:
                with m.Case(register.offset // 4):
                    if not register.writable:
                        m.d.comb += target.write_resp.eq(RESP_SLVERR)
                        continue
                    refused = self.busy & self._needs_idle(register, target.write_data & mask)
                    if register.between_batches and self.has_batches:
                        refused &= ~self.waiting
                    m.d.comb += target.write_resp.eq(Mux(refused, RESP_SLVERR, RESP_OKAY))
                    with m.If(~refused):
                        for field in register.fields:
                            bits = slice(field.lsb, field.lsb + field.width)
                            value = state[register.name, field.name]
                            written, enable = target.write_data[bits], mask[bits]
                            if field.access in (Access.READ_WRITE, Access.SHARED):
                                m.d.sync += value.eq((value & ~enable) | (written & enable))
                            elif field.access is Access.WRITE_ONE_TO_CLEAR:
                                m.d.sync += value.eq(value & ~(written & enable))
                            elif field.access is Access.STROBE:
                                m.d.sync += value.eq(written & enable)

    @staticmethod
    def _needs_idle(register, written):
        """Whether a write of these bits to ``register`` is refused during a run."""
        if register.locked:
            return Const(1)
        fields = (field for field in register.fields if field.idle_only)
        return Cat(written[field.lsb :][: field.width] for field in fields).any()

    def _read(self, m, target, counters, state):
        """Answer reads; the low half of a counter is fetched from the bank first."""
        high = Signal(32)
        m.d.comb += [
            target.read_ready.eq(1),
            target.read_resp.eq(RESP_DECERR),
            counters.read_index.eq((target.read_address - COUNTER_BASE // 4) >> 1),
        ]
        with m.Switch(target.read_address):
            for register in self.map:
                if register.counter:
                    continue
                with m.Case(register.offset // 4):
                    m.d.comb += target.read_resp.eq(RESP_OKAY)
                    for field in register.fields:
                        if field.access is not Access.STROBE:
                            bits = target.read_data[field.lsb : field.lsb + field.width]
                            m.d.comb += bits.eq(state[register.name, field.name])
            with m.Case(*(r.offset // 4 for r in self.map if r.counter and _is_low(r))):
                m.d.comb += [
                    target.read_resp.eq(RESP_OKAY),
                    counters.read_valid.eq(target.read_valid),
                    target.read_ready.eq(counters.read_done),
                    target.read_data.eq(counters.read_value),
                ]
                with m.If(counters.read_done):
                    m.d.sync += high.eq(counters.read_value[32:])
            with m.Case(*(r.offset // 4 for r in self.map if r.counter and not _is_low(r))):
                m.d.comb += [target.read_resp.eq(RESP_OKAY), target.read_data.eq(high)]

    def _run(self, m, counters, state):
        """Start, end and errors of a run, and the interrupt."""
        busy, done, failed, stopped = (
            state["STATUS", name] for name in ("BUSY", "DONE", "ERROR", "STOPPED")
        )
        code, unit = state["ERROR_CODE", "VALUE"], state["ERROR_UNIT", "VALUE"]
        address = Cat(state["ERROR_ADDRESS_LO", "VALUE"], state["ERROR_ADDRESS_HI", "VALUE"])
        start = state["CONTROL", "START"]
        m.d.comb += [
            self.start.eq(start),
            self.abort.eq(state["CONTROL", "STOP"] & busy),
            self.busy.eq(start | busy),
            counters.clear.eq(start),
            counters.enable.eq(self.busy),
        ]
        with m.If(start):
            m.d.sync += [s.eq(0) for s in (done, failed, stopped, code, unit, address)]
            m.d.sync += busy.eq(1)
        first_error = Signal()
        m.d.comb += first_error.eq(self.busy & self.error.valid & (start | ~failed))
        with m.If(first_error):
            m.d.sync += [
                failed.eq(1),
                code.eq(self.error.code),
                unit.eq(self.error.unit),
                address.eq(self.error.address),
            ]
        with m.If(self.busy & self.finish):
            m.d.sync += [busy.eq(0), done.eq(1), stopped.eq(self.stopped)]
            with m.If(self.stopped):
                m.d.sync += state["INTERRUPT_STATUS", "STOPPED"].eq(1)
            with m.Elif(first_error | (failed & ~start)):
                m.d.sync += state["INTERRUPT_STATUS", "ERROR"].eq(1)
            with m.Else():
                m.d.sync += state["INTERRUPT_STATUS", "DONE"].eq(1)
        m.d.comb += state["STATUS", "DRAINING"].eq(self.draining)
        if self.has_batches:
            m.d.comb += state["STATUS", "WAITING"].eq(self.waiting)
            with m.If(self.batch):
                m.d.sync += state["INTERRUPT_STATUS", "BATCH"].eq(1)
        m.d.comb += self.irq.eq(
            Cat(
                state["INTERRUPT_STATUS", field.name] & state["INTERRUPT_ENABLE", field.name]
                for field in self.map["INTERRUPT_STATUS"].fields
            ).any()
        )

    def _connect_ports(self, m, state):
        """Every other register has a port of its name."""
        outputs = {}
        for register in self._with_ports():
            for position, field in enumerate(register.fields):
                value = state[register.name, field.name]
                if field.access is Access.WRITE_ONE_TO_CLEAR:
                    with m.If(getattr(self, register.name.lower())[position]):
                        m.d.sync += value.eq(1)
                    continue
                parts = outputs.setdefault(_port_name(register), [])
                parts += [Const(0, field.lsb - len(Cat(parts)) % 32), value]
                if field.access in _UPDATED:
                    update = getattr(self, f"{_port_name(register)}_update")
                    with m.If(update.valid):
                        m.d.sync += value.eq(update.value)
        for name, parts in outputs.items():
            m.d.comb += getattr(self, name).eq(Cat(*parts))


def _is_low(register):
    return register.name.endswith("_LO")


def _port_name(register):
    return register.name.removesuffix("_LO").removesuffix("_HI").lower()
