"""The whole accelerator: registers, sequencer, cores, and their way to memory."""

from amaranth.hdl import Cat, Module, ResetInserter, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hw.bus.axi_mux import ReadMux, WriteMux, axi_id_width, connect_axi_half
from hw.bus.signatures import AXI4LiteSignature, AXI4Signature
from hw.control.batch_control import BATCH_REGISTERS, BATCH_UPDATES, BatchControl, connect_batches
from hw.control.command_queue import Semaphores
from hw.control.core import CORE_EVENTS, Core
from hw.control.fetch import AHEAD, CommandFetch
from hw.control.loop_control import LoopControl, connect_loops
from hw.control.sequencer import Sequencer
from hw.dma.store import OUTSTANDING_WRITES
from hw.isa.vector import COEFFICIENTS
from hw.primitives.shared_module import add_shared
from hw.registers.file import RegisterFile
from hw.registers.map import ADDRESS_WIDTH, Unit

__all__ = ["Accelerator"]


class Accelerator(wiring.Component):
    """The top of every variant.

    The host sets the memory window and the program's place through the registers and writes
    CONTROL.START; commands are then fetched and executed until HALT, the first error or
    CONTROL.STOP, and the interrupt rises. See docs/architecture.md.

    One clock ``clk``; reset ``rst``, active high, synchronous. After reset all registers have
    their documented values, nothing runs, and no bus request is out.

    Members
    -------
    s_axil : AXI4-Lite slave, 12 address bits, the registers
    m_axi : AXI4 master, the memory
    irq : interrupt, level, active high
    """

    def __init__(self, config):
        self.config = config
        super().__init__(
            {
                "s_axil": In(AXI4LiteSignature(address_width=ADDRESS_WIDTH)),
                "m_axi": Out(
                    AXI4Signature(
                        address_width=config.axi_address_width,
                        data_width=config.axi_data_width,
                        id_width=axi_id_width(1 + len(config.cores)),
                    )
                ),
                "irq": Out(1),
            }
        )

    def elaborate(self, platform):
        # What the blocks tell each other (each block has its own state):
        #
        # signal    meaning                                   from                to
        # --------  ----------------------------------------  ------------------  ----------------
        # clear     everything begins anew, before and after  sequencer           all but registers
        #           a run
        # restart   the fetch begins elsewhere: a new batch   batches             fetch
        # waiting   the run waits for the host at a batch     batches             counters
        # stop      no new bus requests                       sequencer           fetch, cores
        # bus_busy  something is outstanding on the bus       fetch, cores        sequencer
        # progress  a command has ended, a beat moves, or     bus, cores,         sequencer
        #           the run waits for the host                batches
        m = Module()
        config = self.config
        cores = config.cores

        m.submodules.registers = registers = RegisterFile(config)
        connect(m, flipped(self.s_axil), registers.bus)
        m.d.comb += self.irq.eq(registers.irq)

        m.submodules.sequencer = sequencer = Sequencer(config, sources=4 + len(cores))
        clear = sequencer.clear
        fetch = CommandFetch(config)
        restart, waiting = Signal(), Signal()
        m.submodules.fetch = ResetInserter(clear | restart)(fetch)
        semaphores = Semaphores(count=config.semaphore_count, queues=len(sequencer.queues))
        m.submodules.semaphores = ResetInserter(clear)(semaphores)

        m.d.comb += [
            sequencer.start.eq(registers.start),
            sequencer.abort.eq(registers.abort),
            sequencer.watchdog.eq(registers.watchdog),
            registers.finish.eq(sequencer.finish),
            registers.stopped.eq(sequencer.stopped),
            registers.draining.eq(sequencer.draining),
            fetch.start.eq(sequencer.begin),
            fetch.first.eq(registers.program_address),
            fetch.stop.eq(sequencer.stop),
            fetch.memory_base.eq(registers.mem_base),
            fetch.memory_size.eq(registers.mem_size),
            fetch.program_address.eq(registers.program_address),
            fetch.program_size.eq(registers.program_size),
            fetch.shift.eq(sequencer.shift),
            sequencer.address.eq(fetch.address),
            registers.events.commands.eq(sequencer.dispatched),
        ]
        connect(m, sequencer.error, registers.error)
        connect(m, fetch.command, sequencer.command)
        loops = LoopControl(config.row_list_depth)
        m.submodules.loops = loops = ResetInserter(clear)(loops)
        connect_loops(m, loops, sequencer=sequencer, fetch=fetch)
        if config.has_training_engines:
            m.submodules.batches = batches = ResetInserter(clear)(BatchControl())
            connect_batches(m, batches, sequencer=sequencer, fetch=fetch, restart=restart)
            m.d.comb += batches.fails.eq(sequencer.error.valid | semaphores.fails)
            for name in ("program_address", "program_size", *BATCH_REGISTERS):
                m.d.comb += getattr(batches, name).eq(getattr(registers, name))
            for name in BATCH_UPDATES:
                connect(m, getattr(batches, name), getattr(registers, name))
            m.d.comb += [
                waiting.eq(batches.waiting),
                registers.waiting.eq(waiting),
                registers.batch.eq(batches.batch),
                registers.events.batch_wait.eq(waiting),
                registers.events.batches_gp.eq(batches.in_gp),
            ]

        m.submodules.read_mux = read_mux = ReadMux(
            config, 1 + len(cores), outstanding=max(AHEAD, config.axi_outstanding_reads)
        )
        m.submodules.write_mux = write_mux = WriteMux(
            config,
            len(cores),
            outstanding=OUTSTANDING_WRITES,
            id_width=axi_id_width(1 + len(cores)),
        )
        self._connect_errors(m, fetch, semaphores)
        connect(m, fetch.read, read_mux.requesters[0])

        added = [self._add_core(m, platform, core, semaphores, waiting) for core in cores]
        if config.row_list_depth:
            m.d.comb += loops.result.eq(added[0].row)
        m.d.comb += sequencer.bus_busy.eq(Cat(fetch.busy, *(core.bus_busy for core in added)))

        # Bus
        axi = self.m_axi
        connect_axi_half(m, read_mux.axi, axi)
        connect_axi_half(m, write_mux.axi, axi)
        m.d.comb += [
            registers.events.read_beats.eq(axi.rvalid & axi.rready),
            registers.events.read_stall.eq(axi.arvalid & ~axi.arready),
            registers.events.write_beats.eq(axi.wvalid & axi.wready),
            registers.events.write_stall.eq(
                (axi.awvalid & ~axi.awready) | (axi.wvalid & ~axi.wready)
            ),
        ]
        moves = [
            getattr(axi, f"{channel}valid") & getattr(axi, f"{channel}ready")
            for channel in ("ar", "r", "aw", "w", "b")
        ]
        m.d.comb += sequencer.progress.eq(
            Cat(moves, waiting, *(core.progress for core in added)).any()
        )
        with m.If(axi.wvalid & axi.wready):
            m.d.comb += registers.events.write_bytes.eq(sum(axi.wstrb))
        return m

    def _connect_errors(self, m, fetch, semaphores):
        """Errors of fetch, semaphores and bus; those of the cores come with them, in front of the
        bus."""
        sequencer = m.submodules.sequencer
        behind = 2 + len(self.config.cores)
        for number, port, unit in (
            (0, fetch.error, Unit.FETCH),
            (1, semaphores.error, Unit.SEQUENCER),
            (behind, m.submodules.read_mux.error, Unit.READ_BUS),
            (behind + 1, m.submodules.write_mux.error, Unit.WRITE_BUS),
        ):
            m.d.comb += [
                sequencer.errors[number].valid.eq(port.valid),
                sequencer.errors[number].code.eq(port.code),
                sequencer.errors[number].unit.eq(unit),
                sequencer.errors[number].address.eq(port.address),
            ]

    def _add_core(self, m, platform, core_config, semaphores, waiting):
        """A core with its queues, errors and bus channels."""
        config, index = self.config, core_config.index
        registers, sequencer = m.submodules.registers, m.submodules.sequencer
        read_mux, write_mux = m.submodules.read_mux, m.submodules.write_mux
        core = add_shared(
            m,
            platform,
            Core(config, core_config),
            name=f"core{index}",
            module_name=f"adagp_core{index}",
            clear=sequencer.clear,
        )
        for queue, opcode in enumerate(core.opcodes):
            number = sequencer.queues.index((index, opcode))
            connect(m, getattr(sequencer, f"push{number}"), getattr(core, f"push{queue}"))
            connect(m, core.take[queue], semaphores.take[number])
            connect(m, core.give[queue], semaphores.give[number])
            m.d.comb += [
                sequencer.empty[number].eq(core.empty[queue]),
                sequencer.blocked[number].eq(core.blocked[queue]),
                sequencer.working[number].eq(core.working[queue]),
            ]
        m.d.comb += [
            core.memory_base.eq(registers.mem_base),
            core.memory_size.eq(registers.mem_size),
            core.stop.eq(sequencer.stop),
            getattr(registers, f"core{index}_flags").eq(core.flags),
        ]
        if core_config.has_vector:
            # Batches are counted while no command is executed.
            sample_seed = Signal(32, name=f"sample_seed{index}", reset_less=True)
            m.d.sync += sample_seed.eq(registers.sample_seed + registers.batches_done)
            m.d.comb += [
                core.sample_seed.eq(sample_seed),
                core.guard.eq(registers.guard),
                *(
                    core.coefficients[number].eq(getattr(registers, f"coefficient{number}"))
                    for number in range(COEFFICIENTS)
                ),
            ]
        for event in CORE_EVENTS:
            m.d.comb += getattr(registers.events, f"core{index}_{event}").eq(
                getattr(core, event) & ~waiting
            )
        connect(m, core.error, sequencer.errors[2 + index])
        connect(m, core.read, read_mux.requesters[1 + index])
        connect(m, core.write, write_mux.requesters[index])
        return core
