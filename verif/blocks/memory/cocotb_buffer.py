"""cocotb benches of the on-chip operand memory, compared with a Python model in every cycle."""

import json
import os
from collections import deque

import cocotb

from hw.bus.signatures import BUFFER_READ_LATENCY
from hw.config import BUFFER_ADDRESS_WIDTH

from .. import support
from ..ports import Ports

#: JSON: ``readers`` and ``writers`` of the buffer.
CHANNELS_VARIABLE = "ADAGP_BUFFER_CHANNELS"
_PREDICTOR = 1 << (BUFFER_ADDRESS_WIDTH - 1)


class Model:
    """Contents and rules of :class:`hw.memory.buffer.Buffer`."""

    def __init__(self, config, core):
        self.core = core
        self.config = config
        self.words = {}

    def bank(self, address):
        """Bank of ``address``, None outside."""
        memory, offset = divmod(address, _PREDICTOR)
        if memory not in self.core.memories:
            return None
        for number, depth in enumerate(self.config.memory_banks[memory]):
            if offset < depth:
                return memory, number
            offset -= depth
        return None

    def ready(self, requests, channels):
        """Which of ``requests`` (address or None, by port) are accepted in this cycle."""
        taken, busy, ready = set(), set(), []
        for address, channel in zip(requests, channels, strict=True):
            bank = None if address is None else self.bank(address)
            ready.append(bank is None or (bank not in taken and channel not in busy))
            if bank is not None and channel not in busy:
                taken.add(bank)
                busy.add(channel)
        return ready

    def write(self, address, value, enable):
        width = self.core.group_width
        mask = sum(((1 << width) - 1) << (group * width) for group in _bits(enable))
        old = self.words.get(address, (0, 0))
        known = old[1] | mask
        self.words[address] = ((old[0] & ~mask) | (value & mask), known)

    def read(self, address):
        """Value, and the mask of bits that have been written."""
        return self.words.get(address, (0, 0))


def _bits(value):
    return [index for index in range(value.bit_length()) if value >> index & 1]


def _core(config):
    return config.cores[int(os.environ["ADAGP_CORE"])]


def _ports(dut, kind):
    ports = []
    while hasattr(dut, f"{kind}__{len(ports)}__valid"):
        prefix = f"{kind}__{len(ports)}__"
        names = ("valid", "ready", "address", "data", "enable")
        ports.append({n: getattr(dut, prefix + n) for n in names if hasattr(dut, prefix + n)})
    return ports


def _addresses(config, core, rng):
    """A few addresses in each bank, the edges among them, so that ports often meet."""
    chosen = []
    for memory in core.memories:
        begin = memory * _PREDICTOR
        for depth in config.memory_banks[memory]:
            chosen += [begin, begin + depth - 1]
            chosen += [begin + rng.randrange(depth) for _ in range(4)]
            begin += depth
    return chosen


def _outside(config, core):
    """Addresses that no bank of this core has."""
    outside = []
    for memory in (0, 1):
        words = config.memory_depth[memory] if memory in core.memories else 0
        outside += [memory * _PREDICTOR + words, (memory + 1) * _PREDICTOR - 1]
    return outside


async def _traffic(dut, *, cycles, density, outside_share, name):
    """Random requests on all ports; checks grants, data, latency and reports in every cycle."""
    dut = Ports(dut)
    config = support.configuration()
    core = _core(config)
    rng = support.generator(f"{name} {density} {outside_share}")
    model = Model(config, core)
    reads, writes = _ports(dut, "read"), _ports(dut, "write")
    channels = json.loads(os.environ[CHANNELS_VARIABLE])
    assert reads and writes, "the bench found no ports"
    good, bad = _addresses(config, core, rng), _outside(config, core)
    await support.start(dut)

    requests = [None] * (len(reads) + len(writes))
    payloads = [(0, 0)] * len(writes)
    due = [deque([None] * BUFFER_READ_LATENCY) for _ in reads]
    missing, checked, conflicts = {}, 0, 0
    for cycle in range(cycles):
        for index, request in enumerate(requests):
            if request is None and rng.random() < density:
                outside = rng.random() < outside_share
                requests[index] = rng.choice(bad if outside else good)
                if index >= len(reads):
                    payloads[index - len(reads)] = (
                        rng.getrandbits(core.word_width),
                        rng.getrandbits(core.groups_per_word),
                    )
        for port, request in zip([*reads, *writes], requests, strict=True):
            port["valid"].value = request is not None
            port["address"].value = request or 0
        for port, (value, enable) in zip(writes, payloads, strict=True):
            port["data"].value = value
            port["enable"].value = enable
        await support.settle()

        place = f"cycle {cycle}, seed {os.environ['ADAGP_SEED']}"
        outside = int(dut.outside_read.value) | int(dut.outside_write.value) << len(reads)
        assert outside == sum(1 << port for port in missing), (
            f"{place}: ports outside {outside:#b}, expected {missing}"
        )
        if missing:
            address = int(dut.outside_address.value)
            assert address == missing[min(missing)], f"{place}: {address:#x}, expected {missing}"

        for index, queue in enumerate(due):
            expected = queue.popleft()
            if expected is not None:
                actual = int(reads[index]["data"].value)
                value, known, address = expected
                checked += known != 0
                assert actual & known == value & known, (
                    f"{place}: read port {index}, word {address:#x}: expected "
                    f"{value & known:#x}, got {actual & known:#x}"
                )

        expected_ready = [
            *model.ready(requests[: len(reads)], channels["readers"]),
            *model.ready(requests[len(reads) :], channels["writers"]),
        ]
        missing, written = {}, set()
        accepted = []
        for index, port in enumerate([*reads, *writes]):
            if requests[index] is None:
                accepted.append(False)
                continue
            ready = bool(int(port["ready"].value))
            assert ready == expected_ready[index], (
                f"{place}: port {index} ready {ready}, requests {requests}"
            )
            conflicts += not ready
            accepted.append(ready)
            if model.bank(requests[index]) is None:
                missing[index] = requests[index]
        for index in range(len(writes)):
            if accepted[len(reads) + index]:
                written.add(requests[len(reads) + index])
        for index in range(len(reads)):
            if not accepted[index]:
                due[index].append(None)
            elif requests[index] in written or model.bank(requests[index]) is None:
                due[index].append(None)  # which of both values it returns is left open
            else:
                due[index].append((*model.read(requests[index]), requests[index]))
        for index, (value, enable) in enumerate(payloads):
            address = requests[len(reads) + index]
            if accepted[len(reads) + index] and model.bank(address) is not None:
                model.write(address, value, enable)
        requests = [
            None if done else request for request, done in zip(requests, accepted, strict=True)
        ]
        await support.next_cycle(dut)
    assert checked > cycles / 50, f"only {checked} reads of written words in {cycles} cycles"
    if density > 0.5:
        assert conflicts > cycles / 20, f"only {conflicts} conflicts in {cycles} cycles"


@cocotb.test()
@cocotb.parametrize(density=[0.15, 0.6, 1.0])
async def random_traffic(dut, density):
    """Every port at random, from mostly idle to always asking."""
    await _traffic(dut, cycles=1500, density=density, outside_share=0.0, name="traffic")


@cocotb.test()
async def accesses_outside(dut):
    """Addresses outside are accepted, dropped and reported; the others go on undisturbed."""
    await _traffic(dut, cycles=1500, density=0.5, outside_share=0.1, name="outside")
