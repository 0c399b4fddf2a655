"""Devices, windows of their memory, programs, and networks that run forward.

Covers: runtime/accelerator.py, runtime/device.py, runtime/errors.py, runtime/inference.py,
verif/system/device.py.
"""

import numpy as np
import pytest
import torch
from torch import nn

from compiler.errors import CompileError
from golden.arithmetic.dot_product import decode
from golden.arithmetic.formats import BF16
from hw.config import make_config
from hw.isa.encoding import Opcode, encode
from runtime import Accelerator, AcceleratorError
from runtime.inference import Inference
from verif.networks.workload import golden_network, prepare

CONFIG = make_config(variant="max", preset="tiny")
LOAD = {"buffer_address": 0, "run_bytes": 8, "run_count": 1, "run_stride": 0, "row_bytes": 8}


def program(*commands):
    return b"".join(encode(opcode, **fields) for opcode, fields in commands)


def test_windows_do_not_overlap_and_memory_grows():
    accelerator = Accelerator(CONFIG)
    windows = [accelerator.window(size) for size in (100, 5000, 8)]
    for number, window in enumerate(windows):
        accelerator.put(window, 0, bytes([number]) * window.size)
    accelerator.free(windows[1])
    assert accelerator.window(4096).base == windows[1].base
    large = accelerator.window(3 << 20)
    assert large.base > windows[2].base and accelerator.device.memory_bytes == 4 << 20
    for number in (0, 2):
        data = accelerator.get(windows[number], 0, windows[number].size)
        assert data == bytes([number]) * windows[number].size
    assert all(w.base % 4096 == 0 for w in [*windows, large])


@pytest.mark.parametrize("device", ["emulator", "rtl"])
def test_how_programs_end(device):
    """The same programs on every device: one that is right, one that is wrong, the first again."""
    right = program(
        (Opcode.LOAD, {**LOAD, "dram_address": 0x800, "signal": 1}),
        (Opcode.STORE, {**LOAD, "dram_address": 0x900, "wait": 1}),
        (Opcode.HALT, {}),
    )
    wrong = program((Opcode.LOAD, {**LOAD, "dram_address": 0x2000}), (Opcode.HALT, {}))
    with Accelerator(CONFIG, device=device, timeout_cycles=10_000) as accelerator:
        window = accelerator.window(0x1000)
        for code, message in ((right, None), (wrong, "0x2000|none at"), (right, None)):
            data = np.random.default_rng(len(code)).bytes(8)
            accelerator.put(window, 0, code)
            accelerator.put(window, 0x800, data)
            # Not even the next byte changes.
            accelerator.put(window, 0x8FF, b"\x11" * 10)
            if message is None:
                end = accelerator.run(window, program=0, program_size=len(code))
                assert end.ended and bool(end.counters) == (device == "rtl")
                assert accelerator.get(window, 0x8FF, 10) == b"\x11" + data + b"\x11"
            else:
                with pytest.raises(AcceleratorError, match=message):
                    accelerator.run(window, program=0, program_size=len(code))
        with pytest.raises(AcceleratorError, match="no program runs|no interrupt in 10000 cycles"):
            accelerator.wait()
        with pytest.raises(ValueError, match="ID can only be read|write of ID: response 2"):
            accelerator.device.write("ID", 1)
        with pytest.raises(KeyError, match="NOTHING"):
            accelerator.device.write("NOTHING", 1)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="one of emulator, rtl or serial:PORT, not 'fpga'"):
        Accelerator(CONFIG, device="fpga")
    with pytest.raises(TypeError, match="config must be .*make_config.*not 'tiny'"):
        Accelerator("tiny")
    other = make_config(variant="max", preset="tiny", rows=8)
    with pytest.raises(ValueError, match="compiled for rows=8; the accelerator has rows=4"):
        Accelerator(CONFIG).require(other)


@pytest.fixture
def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))


def test_maps_in_operand_format(rng, seed):
    """An output that VECTOR leaves has the operand format: bf16, rounded once."""
    images = torch.from_numpy(rng.normal(size=(3, 2, 4, 4)).astype(np.float32)).bfloat16().float()
    with Accelerator(CONFIG) as accelerator, Inference(accelerator, nn.ReLU()) as run:
        np.testing.assert_array_equal(run(images), torch.relu(images).numpy())


class Several(nn.Module):
    """Outputs that no layer computes by itself, or as the last one: joined channels, a slice, a
    map that has been flattened."""

    def __init__(self):
        super().__init__()
        self.conv, self.left, self.right = (nn.Conv2d(n, 8, 1) for n in (2, 8, 8))

    def forward(self, x):
        x = self.conv(x)
        y = self.left(x)
        return y[:, 4:], torch.cat([self.right(x), x], 1), y[:, :4].relu().flatten(1)


def test_outputs(rng, seed):
    torch.manual_seed(seed)
    model = Several()
    images = torch.from_numpy(rng.normal(size=(3, 2, 3, 4)).astype(np.float32))
    with Accelerator(CONFIG) as accelerator, Inference(accelerator, model) as run:
        found = run.outputs(images)
        with pytest.raises(ValueError, match=r"the network has 3 outputs; outputs\(images\)"):
            run(images)
    golden = golden_network(model, CONFIG, (2, 3, 4))
    stored = golden.stored(images.permute(0, 2, 3, 1).numpy())
    assert [output.shape for output in found] == [y.shape for y in model(images)]
    for node, output in zip(golden.outputs, found, strict=True):
        wanted = np.moveaxis(decode(BF16, stored[node.name]), 3, 1)
        np.testing.assert_array_equal(output, wanted.reshape(output.shape))


def test_prediction(network, rng):
    images = torch.from_numpy(rng.normal(size=(5, 2, 4, 4)).astype(np.float32))
    accelerator = Accelerator(CONFIG)
    found = accelerator.predict(network, images, batch=2)
    with Inference(accelerator, network) as run:
        outputs = run(images)
        np.testing.assert_array_equal(outputs.argmax(1), found)
        golden = prepare("golden", network, CONFIG, images.permute(0, 2, 3, 1).numpy())
        wanted = golden.logits(golden.expected[-1])
        np.testing.assert_array_equal(outputs, wanted.reshape(outputs.shape))
        with pytest.raises(ValueError, match=r"images\[0, 0, 0, 0\] is nan"):
            run(images * torch.nan)
        with pytest.raises(ValueError, match="images must be of shape .N, 2, 4, 4., not"):
            run(images[:, :1])
    assert accelerator.window(8).base == 0, "memory has not been given back"
    window = accelerator.window(8)
    accelerator.close()
    with pytest.raises(AcceleratorError, match="memory at 0x1000 has been given back, or the dev"):
        accelerator.get(window, 0, 8)
    with pytest.raises(CompileError, match="Tanhshrink"):
        accelerator.predict(nn.Sequential(network, nn.Tanhshrink()), images)
