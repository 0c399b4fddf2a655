"""cocotb benches of the accumulator memory, compared with a Python model in every cycle."""

import os
from collections import deque

import cocotb

from hw.bus.signatures import ACCUMULATOR_READ_LATENCY

from .. import support
from ..ports import Ports


@cocotb.test()
@cocotb.parametrize(outside_share=[0.0, 0.05], same_bank_share=[0.1, 0.9])
async def random_traffic(dut, outside_share, same_bank_share):
    """The array reads and writes, post-processing reads, all at random.

    Entries outside are written by the array or read by post-processing in ``outside_share`` of
    the cycles; post-processing asks for the array's bank in ``same_bank_share`` of them.
    """
    dut = Ports(dut)
    config = support.configuration()
    core = config.cores[0]
    rng = support.generator(f"accumulator {outside_share} {same_bank_share}")
    width, depth = 32 * core.columns, core.accumulator_depth
    entries = [0, depth - 1, *(rng.randrange(depth) for _ in range(4))]
    words = {}
    await support.start(dut)

    array_due = deque([None] * ACCUMULATOR_READ_LATENCY)
    post_due = deque([None] * ACCUMULATOR_READ_LATENCY)
    request, last_read, outside = None, False, {}
    checked, waited = 0, 0
    for cycle in range(2000):
        place = f"cycle {cycle}, seed {os.environ['ADAGP_SEED']}"
        read = rng.random() < 0.7
        bank = rng.getrandbits(1)
        read_key = (bank, rng.choice(entries))
        write = rng.random() < 0.7
        write_key = (rng.getrandbits(1), rng.choice(entries))
        if rng.random() < outside_share:
            write_key = (write_key[0], rng.choice([depth, (1 << 16) - 1]))
        value = rng.getrandbits(width)
        if request is None and rng.random() < 0.7:
            entry = rng.choice(entries)
            if rng.random() < outside_share:
                entry = rng.choice([depth, (1 << 16) - 1])
            request = (bank if rng.random() < same_bank_share else 1 - bank, entry)
        init = rng.choice(["sums", "zero", "bias"]) if last_read else "sums"
        bias = rng.getrandbits(width)

        dut.read_en.value = read
        dut.read_bank.value, dut.read_address.value = read_key
        dut.write_en.value = write
        dut.write_bank.value, dut.write_address.value = write_key
        dut.write_data.value = value
        dut.post__valid.value = request is not None
        dut.post__bank.value, dut.post__address.value = request or (0, 0)
        dut.init_zero.value = init == "zero"
        dut.init_bias.value = init == "bias"
        dut.bias.value = bias
        await support.settle()

        reports = (int(dut.outside_post.value), int(dut.outside_write.value))
        expected = ("post" in outside, "write" in outside)
        assert reports == expected, f"{place}: {reports}, outside were {outside}"
        if outside:
            assert int(dut.outside_address.value) in outside.values(), f"{place}: {outside}"
        for name, due, port in (
            ("psum", array_due, dut.psum),
            ("post", post_due, dut.post__data),
        ):
            expected = due.popleft()
            if expected is not None:
                checked += 1
                actual = int(port.value)
                assert actual == expected, f"{place}: {name} {actual:#x}, expected {expected:#x}"

        if init != "sums":  # sampled one cycle after the read it belongs to
            array_due[-1] = bias if init == "bias" else 0
        collision = write and read_key == write_key
        array_due.append(None if not read or collision else words.get(read_key))
        ready = bool(int(dut.post__ready.value))
        outside = {}
        if request is not None:
            expected_ready = not (read and request[0] == read_key[0])
            assert ready == expected_ready, f"{place}: post ready {ready}"
            waited += not ready
            if request[1] >= depth:
                outside["post"] = request[1]
        if request is not None and ready:
            collision = write and request == write_key
            post_due.append(None if collision else words.get(request))
            request = None
        else:
            post_due.append(None)
        if write and write_key[1] >= depth:
            outside["write"] = write_key[1]
        elif write:
            words[write_key] = value
        last_read = read
        await support.next_cycle(dut)
    assert checked > 1000, f"only {checked} reads were checked"
    assert waited > 50, f"post-processing waited in only {waited} cycles"
