"""Reads and writes from a serial line, in the protocol that LiteX calls UARTBone: see
:mod:`hw.registers.board`.

Anything else in place of the first byte takes five bytes more, and is dropped with them. What has
begun and is not continued in time is forgotten, so that host and bridge find together again.
"""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.registers.board import COMMANDS

from .host_bus import HostBusSignature

__all__ = ["UartBridge"]


class UartBridge(wiring.Component):
    """A host's commands as accesses of a bus.

    Parameters
    ----------
    timeout_cycles : without a byte that end a command

    Members
    -------
    i, o : bytes from and to the host
    bus : the accesses

    After reset a command is expected.
    """

    def __init__(self, *, timeout_cycles: int):
        self._timeout = timeout_cycles
        super().__init__(
            {
                "i": In(stream.Signature(8)),
                "o": Out(stream.Signature(8)),
                "bus": Out(HostBusSignature()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bus = self.bus
        write, rising, known = Signal(), Signal(), Signal()
        words, byte = Signal(8), Signal(2)
        word, idle = Signal(32), Signal(range(self._timeout + 1))
        received = self.i.valid & self.i.ready
        shifted = Cat(self.i.payload, word[:24])
        m.d.comb += [bus.write.eq(write), bus.write_data.eq(word), self.o.payload.eq(word[24:])]
        m.d.sync += idle.eq(idle + 1)
        with m.If(received | (self.o.valid & self.o.ready) | (bus.valid & bus.ready)):
            m.d.sync += idle.eq(0)

        def give_up():
            with m.If(idle == self._timeout):
                m.next = "command"

        def next_word(state):
            m.d.sync += [words.eq(words - 1), bus.address.eq(bus.address + rising)]
            with m.If(words == 1):
                m.next = "command"
            with m.Else():
                m.next = state

        with m.FSM():
            with m.State("command"):
                m.d.comb += self.i.ready.eq(1)
                m.d.sync += [idle.eq(0), byte.eq(0)]
                with m.If(self.i.valid):
                    m.d.sync += [
                        write.eq(self.i.payload[0]),
                        rising.eq(self.i.payload <= COMMANDS["read"]),
                        known.eq((self.i.payload >= 1) & (self.i.payload <= len(COMMANDS))),
                    ]
                    m.next = "words"
            with m.State("words"):
                m.d.comb += self.i.ready.eq(1)
                give_up()
                with m.If(self.i.valid):
                    m.d.sync += words.eq(self.i.payload)
                    m.next = "address"
            with m.State("address"):
                m.d.comb += self.i.ready.eq(1)
                give_up()
                with m.If(self.i.valid):
                    m.d.sync += [word.eq(shifted), byte.eq(byte + 1), bus.address.eq(shifted)]
                    with m.If(byte == 3):
                        with m.If(~known):
                            m.next = "command"
                        with m.Elif(write):
                            m.next = "data"
                        with m.Else():
                            m.next = "access"
            with m.State("data"):
                m.d.comb += self.i.ready.eq(1)
                give_up()
                with m.If(self.i.valid):
                    m.d.sync += [word.eq(shifted), byte.eq(byte + 1)]
                    with m.If(byte == 3):
                        m.next = "access"
            with m.State("access"):
                m.d.comb += bus.valid.eq(1)
                with m.If(bus.ready):
                    with m.If(write):
                        next_word("data")
                    with m.Else():
                        m.d.sync += word.eq(bus.read_data)
                        m.next = "answer"
            with m.State("answer"):
                m.d.comb += self.o.valid.eq(1)
                with m.If(self.o.ready):
                    m.d.sync += [word.eq(word << 8), byte.eq(byte + 1)]
                    with m.If(byte == 3):
                        next_word("access")
        return m
