"""Serves :class:`verif.system.device.RtlDevice` from inside the simulation."""

import json
import pickle
import socket
from pathlib import Path

import cocotb

from hw.config import AdaGPConfig
from hw.registers import host

from .harness import Harness


class _Requests:
    """What a host may ask for: the methods, called by name."""

    def __init__(self, harness, progress):
        self._harness, self._progress = harness, progress
        self._driver = harness.driver
        self._started = self._interrupted = 0

    async def put(self, address, data):
        # The back door writes whole beats.
        beat = self._harness.memory.beat_bytes
        end = address + len(data)
        before = await self.get(address - address % beat, address % beat)
        after = await self.get(end, -end % beat)
        await self._harness.memory.load(address - len(before), before + data + after)

    async def get(self, address, size):
        return bytes(await self._harness.memory.dump(address, size))

    async def write(self, register, value):
        await self._driver.write(register, value)
        if register == "CONTROL":
            self._started = self._cycle()

    def _cycle(self):
        return int(self._harness.dut.cycle.value)

    async def wait(self, timeout_cycles):
        await self._harness.interrupt(timeout_cycles, self._progress)
        self._interrupted = self._cycle()
        names = [register.name for register in self._driver.map]
        # A pair's low half latches its high half.
        found = {name: await self._driver.read(name) for name in names}
        await self._driver.write("INTERRUPT_STATUS", found["INTERRUPT_STATUS"])
        await self._harness.wait(2)
        ended = not host.field_values(self._driver.map, "STATUS", found["STATUS"])["BUSY"]
        if ended and int(self._harness.dut.irq.value):
            raise AssertionError("the interrupt stays high after it has been acknowledged")
        return found

    async def observed(self):
        dut = self._harness.dut
        return {
            "start_cycle": self._started,
            "end_cycle": self._interrupted,
            "protocol_errors": int(dut.protocol_errors.value),
            "both_cores": int(dut.both_cores.value),
        }

    async def last_writes(self, address, size):
        return await self._harness.last_writes(address, size)

    async def reset(self):
        await self._harness.reset()


@cocotb.test()
async def serve(dut):
    """Answer the host's requests, one at a time, until it hangs up. In between no time passes."""
    job = json.loads(Path("job.json").read_text())
    harness = Harness(dut, AdaGPConfig(**job["config"]), base=0)
    harness.stalls(job["stall_share"], latency=job["latency"], seed=job["seed"])
    await harness.reset()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(job["socket"])
        peer = connection.makefile("rwb")

        def send(*message):
            pickle.dump(message, peer)
            peer.flush()

        requests = _Requests(harness, lambda cycle: send(None, cycle))
        while True:
            try:
                name, arguments = pickle.load(peer)
            except EOFError:
                return
            try:
                answer = True, await getattr(requests, name)(*arguments)
            except Exception as error:
                answer = False, (type(error).__name__, str(error))
            send(*answer)
