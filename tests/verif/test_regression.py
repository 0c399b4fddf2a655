"""Ragged networks on the RTL, in integers; the random networks; waveforms.

Covers: verif/networks/execute.py, verif/networks/random_networks.py, verif/networks/workload.py,
verif/sim/waves.py.
"""

import numpy as np
import pytest
import torch
from torch import nn

from hw.config import make_config
from hw.formats import format_by_name
from verif.networks.execute import execute
from verif.networks.random_networks import random_network, special_images, with_specials
from verif.networks.workload import prepare
from verif.regression import CASES, RAGGED, Options


@pytest.fixture(scope="module")
def ragged():
    """6 x 5 PEs, integers, memories that nothing fits into; one build for all tests here."""
    return make_config(variant="baseline", preset="tiny", **{**RAGGED, "operand_format": "int8"})


@pytest.mark.parametrize("number", range(4))
def test_random_network(ragged, number, seed):
    model, shape = random_network(100 * seed + number)
    n, c, h, w = shape
    images = np.random.default_rng(seed).standard_normal((n, h, w, c))
    execution = execute(prepare(f"random {number}", model, ragged, images), seed=seed)
    assert execution.passed, execution.report()


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: nn.Conv2d(17, 13, 5, padding=2), (1, 9, 8, 17)),
        (lambda: nn.Conv2d(9, 11, 3, stride=2, padding=1), (2, 11, 12, 9)),
        (lambda: nn.Conv2d(31, 33, 1), (1, 5, 7, 31)),
        (lambda: nn.Linear(257, 31), (1, 257)),
        (lambda: nn.Linear(65, 17, bias=False), (45, 65)),
    ],
)
def test_layer_larger_than_the_memories(ragged, layer, shape, seed):
    torch.manual_seed(seed)
    images = np.random.default_rng(seed).standard_normal(shape)
    workload = prepare("large", nn.Sequential(layer()), ragged, images)
    execution = execute(workload, seed=seed, stall_share=0.2)
    assert execution.passed, execution.report()


def test_random_networks_depend_on_the_seed_only():
    texts = [(str(random_network(seed)[0]), random_network(seed)[1]) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_specials_are_among_the_codes():
    fmt = format_by_name("bf16")
    codes = special_images(fmt, (4, 5, 6, 7), 0.1, 1)
    special = codes >> fmt.mantissa_bits & fmt.exponent_max == fmt.exponent_max
    mantissa = codes & ((1 << fmt.mantissa_bits) - 1)
    assert (special & (mantissa == 0)).any() and (special & (mantissa != 0)).any()
    assert (codes >> fmt.mantissa_bits & fmt.exponent_max == 0).any()
    kept = with_specials(fmt, np.ones((3, 3), np.uint16), 0.0, 1)
    assert (kept == 1).all()


def test_options_make_configurations():
    options = Options(preset="tiny", settings={"rows": 8}, operand_format="fp16")
    config = options.config("low", rows=6, columns=2)
    assert (config.variant, config.rows, config.columns) == ("low", 8, 2)
    assert config.operand_format == "fp16"
    assert Options(stalls=True).execution["stall_share"] > 0
    assert all(case.description for case in CASES.values())


@pytest.mark.long
def test_waves(seed):
    """A waveform and a save file that names only signals that are in it."""
    config = make_config(
        variant="baseline", preset="tiny", operand_format="int8", rows=2, columns=2
    )
    torch.manual_seed(seed)
    images = np.random.default_rng(seed).standard_normal((1, 3, 3, 4))
    workload = prepare("waves", nn.Sequential(nn.Conv2d(4, 3, 1)), config, images)
    execution = execute(workload, seed=seed, with_waves=True, repeat=1)
    assert execution.passed, execution.report()
    save_file = execution.waves_file
    lines = save_file.read_text().splitlines()
    paths = [line for line in lines if line.startswith(("TOP", "adagp_sim", "$root"))]
    groups = {line.removeprefix("-") for line in lines if line.startswith("-")}
    assert {"Clock", "Run", "Commands", "Core 0 events", "Core 0 matrix", "Memory bus"} <= groups
    header = save_file.with_suffix(".vcd").read_text().partition("$enddefinitions")[0]
    names = {line.split()[4] for line in header.splitlines() if "$var" in line}
    assert len(paths) > 40
    for path in paths:
        assert path.rpartition(".")[2].partition("[")[0] in names, path
