"""Networks on a device and beside golden: the same functions that drive a board drive the emulator
here; a wrong bit in what comes back is found.
"""

import pytest

from boards.sim.networks import RUNS, prepare_network
from emulator.device import EmulatorDevice
from hw.config import make_config

CONFIG = make_config(variant="low", preset="tiny", axi_data_width=32)


class Faulty(EmulatorDevice):
    """Says one bit of the memory wrongly."""

    address = 0

    def get(self, address, size):
        data = bytearray(super().get(address, size))
        if address <= self.address < address + size:
            data[self.address - address] ^= 0x10
        return bytes(data)


@pytest.fixture(scope="module")
def networks():
    sizes = {"digits": {"images": 1}, "train-digits": {"images": 2, "batches": 2},
             "train-adagp": {"images": 2, "batches": 4}}  # fmt: skip
    return {name: prepare_network(name, CONFIG, **sizes[name]) for name in RUNS}


@pytest.mark.parametrize("name", RUNS)
def test_equal_to_golden(networks, name):
    network, said = networks[name], []
    result = network.run(EmulatorDevice(CONFIG, network.window_bytes), said.append)
    assert (result.wrong, result.differences) == (0, [])
    assert result.compared > 1000
    assert len(result.losses) == {"digits": 0, "train-digits": 2, "train-adagp": 4}[name]
    assert said and not sum(result.cycles)


def test_wrong_bit(networks):
    network = networks["digits"]
    device = Faulty(CONFIG, network.window_bytes)
    device.address = network.window_bytes - 3
    result = network.run(device)
    assert result.wrong == 1
    place = network.window_bytes - 0x3000 - 3
    assert result.differences[0].startswith(f"byte {place} is ")


def test_wrong_weight(networks):
    network = networks["train-digits"]
    device = Faulty(CONFIG, network.window_bytes)
    counts = []
    for device.address in range(0x3000, network.window_bytes, (network.window_bytes - 0x3000) // 7):
        counts.append(network.run(device).wrong)
    assert any(counts)


def test_bad_input():
    with pytest.raises(ValueError, match="must be a multiple of 4, not 6"):
        prepare_network("train-adagp", CONFIG, images=1, batches=6)
    with pytest.raises(ValueError, match="images must be from 1 to"):
        prepare_network("digits", CONFIG, images=0)
