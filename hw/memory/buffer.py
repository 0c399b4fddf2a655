"""On-chip operand memory: banks with one read and one write port each, shared by several clients.

The global buffer and the predictor memory are both made of this.
"""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hw.bus.signatures import BufferReadSignature, BufferWriteSignature
from hw.config import BUFFER_ADDRESS_WIDTH
from hw.primitives.pipeline import delay, register
from hw.primitives.ram import add_ram

__all__ = ["Buffer"]


class Buffer(wiring.Component):
    """Banked memory that holds one operand per PE-array row in each word.

    The ports of a *channel* share its wires to the banks: in each cycle a channel serves one of
    them and a bank one channel. A port is served in the cycle in which it asks unless one with a
    lower number asks for the same bank or has the channel; reads and writes do not disturb each
    other. Throughput: one word per channel and cycle. Read latency:
    :data:`~hw.bus.signatures.BUFFER_READ_LATENCY` cycles. Contents are undefined after reset and
    survive it. What a read gives in the cycle of a write to the same word is undefined.

    Addresses with bit 23 clear select the global buffer, with bit 23 set the predictor memory. An
    access outside the banks that exist is accepted, reads anything or is dropped, and is reported
    in the next cycle: a bit per port in ``outside`` and the word address of the first of these
    ports, reads before writes.

    Parameters
    ----------
    config : AdaGPConfig
    core : CoreConfig
        whose memories these are
    readers, writers : iterable of int
        for each port the number of its channel

    Members
    -------
    read : array of ``In(BufferReadSignature(core))``
    write : array of ``In(BufferWriteSignature(core))``
    outside_read, outside_write : Out, one bit per port
    outside_address : Out
    """

    def __init__(self, config, core, *, readers, writers):
        self.core = core
        self.readers, self.writers = tuple(readers), tuple(writers)
        self.banks = [
            (memory, number, depth)
            for memory in core.memories
            for number, depth in enumerate(config.memory_banks[memory])
        ]
        super().__init__(
            {
                "read": In(BufferReadSignature(core)).array(len(self.readers)),
                "write": In(BufferWriteSignature(core)).array(len(self.writers)),
                "outside_read": Out(len(self.readers)),
                "outside_write": Out(len(self.writers)),
                "outside_address": Out(BUFFER_ADDRESS_WIDTH),
            }
        )

    def _decode(self, m, address, name):
        """Bank number of ``address``, and whether it exists."""
        chosen = address[BUFFER_ADDRESS_WIDTH - 1]
        hit = Signal(len(self.banks), name=f"{name}_hit")
        for index, (memory, number, depth) in enumerate(self.banks):
            above = address[(depth - 1).bit_length() : BUFFER_ADDRESS_WIDTH - 1]
            m.d.comb += hit[index].eq((chosen == memory) & (above == number))
        return hit

    def _arbitrate(self, m, ports, payloads, hits, channels, name):
        """Per channel: banks it serves (one bit at most), and the payload of the port it serves."""
        banks = len(hits[0])
        taken, busy = Const(0, banks), {channel: Const(0) for channel in channels}
        serves = {channel: Const(0, banks) for channel in channels}
        bring = dict.fromkeys(channels)
        rows = list(zip(ports, payloads, hits, channels, strict=True))
        for port, payload, hit, channel in reversed(rows):
            others = bring[channel]
            bring[channel] = (
                payload if others is None else Mux(port.valid & hit.any(), payload, others)
            )
        for port, _payload, hit, channel in rows:
            asks = hit & (port.valid & ~busy[channel]).replicate(banks)
            serves[channel] = serves[channel] | (asks & ~taken)
            m.d.comb += port.ready.eq((hit & ~taken).any() & ~busy[channel] | ~hit.any())
            taken = taken | asks
            busy[channel] = busy[channel] | (port.valid & hit.any())
        result = []
        for channel in sorted(set(channels)):
            serve = Signal(banks, name=f"{name}_channel{channel}_serves")
            brought = Signal(len(bring[channel]), name=f"{name}_channel{channel}")
            m.d.comb += [serve.eq(serves[channel]), brought.eq(bring[channel])]
            result.append((serve, brought))
        return result

    def elaborate(self, platform):
        m = Module()
        depths = [depth for _memory, _number, depth in self.banks]

        reads = [self.read[i] for i in range(len(self.read))]
        writes = [self.write[i] for i in range(len(self.write))]
        read_hits = [self._decode(m, port.address, f"read{i}") for i, port in enumerate(reads)]
        write_hits = [self._decode(m, port.address, f"write{i}") for i, port in enumerate(writes)]
        read_channels = self._arbitrate(
            m, reads, [port.address for port in reads], read_hits, self.readers, "read"
        )
        write_channels = self._arbitrate(
            m,
            writes,
            [Cat(port.address, port.data, port.enable) for port in writes],
            write_hits,
            self.writers,
            "write",
        )

        # The clients and this choice among them are far from the banks, and the block RAMs of a
        # bank from each other: what was accepted reaches the banks a cycle later, reads and writes
        # alike. Behind the banks there is no register: clients have one.
        write_accepted = [
            (
                delay(m, serves, 1, name=f"write_channel{channel}_accepted", reset=True),
                register(m, brought, name=f"write_channel{channel}_carried"),
            )
            for channel, (serves, brought) in enumerate(write_channels)
        ]

        outputs = []
        for bank, depth in enumerate(depths):
            ram = add_ram(
                m,
                platform,
                name=f"bank{bank}",
                width=self.core.word_width,
                depth=depth,
                granularity=self.core.group_width,
            )
            outputs.append(ram.read_data)
            m.d.sync += ram.read_en.eq(0)
            for serves, address in read_channels:
                with m.If(serves[bank]):
                    m.d.sync += [ram.read_address.eq(address), ram.read_en.eq(1)]
            for serves, brought in write_accepted:
                data_at = BUFFER_ADDRESS_WIDTH
                enable_at = data_at + self.core.word_width
                # The wires of a single channel lead to all banks alike.
                with m.If(serves[bank] | (len(write_accepted) == 1)):
                    m.d.comb += [
                        ram.write_address.eq(brought[:data_at]),
                        ram.write_data.eq(brought[data_at:enable_at]),
                        ram.write_en.eq(
                            brought[enable_at:] & serves[bank].replicate(len(ram.write_en))
                        ),
                    ]

        ports, hits = reads + writes, read_hits + write_hits
        for port, hit in reversed(list(zip(ports, hits, strict=True))):
            with m.If(port.valid & ~hit.any()):
                m.d.sync += self.outside_address.eq(port.address)
        m.d.sync += Cat(self.outside_read, self.outside_write).eq(
            Cat(port.valid & ~hit.any() for port, hit in zip(ports, hits, strict=True))
        )

        for channel, (serves, _address) in enumerate(read_channels):
            chosen = Signal(range(max(len(depths), 2)), name=f"channel{channel}_chosen")
            data = Signal(self.core.word_width, name=f"channel{channel}_data")
            for bank in range(len(depths)):
                with m.If(serves[bank]):
                    m.d.sync += chosen.eq(bank)
            select = delay(m, chosen, 1, name=f"channel{channel}_select", reset=True)
            m.d.comb += data.eq(Array(outputs)[select] if len(depths) > 1 else outputs[0])
            for port, number in zip(reads, self.readers, strict=True):
                if number == channel:
                    m.d.comb += port.data.eq(data)
        return m
