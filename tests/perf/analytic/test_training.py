"""Cycles by formulas: products, folds and batches, by hand and beside the paper.

Covers: perf/analytic/shapes.py, perf/analytic/flows.py, perf/analytic/command.py,
perf/analytic/evaluation.py, perf/analytic/picture.py.
"""

import json
import re

import pytest
import torch
from torch import nn

from algorithms.networks.network_facts import examine
from golden.prediction.schedule import ScheduleConfig
from perf.__main__ import main
from perf.analytic.evaluation import evaluate
from perf.analytic.flows import FLOWS, Array, cycles
from perf.analytic.shapes import Layer, Product, layers_of
from perf.analytic.training import Batches, Machine, batches

LAYER = Layer(
    name="conv", inputs=8, outputs=6, groups=2, kernel=(3, 1), in_size=(9, 8), out_size=(5, 8)
)


def test_products_do_what_torch_counts():
    """Multiplications of forward and backward products of a grouped convolution with a stride."""
    images = 4
    module = nn.Conv2d(8, 6, (3, 1), stride=(2, 1), padding=(1, 0), groups=2)
    output = module(torch.zeros(images, 8, 9, 8))
    assert tuple(output.shape[2:]) == LAYER.out_size
    macs = output.numel() * module.weight[0].numel()
    assert LAYER.forward(images).macs == macs == LAYER.weight_gradient(images).macs
    # The input gradient is counted at every pixel of the input, as if there were no stride.
    assert LAYER.input_gradient(images).macs == macs * 9 // 5
    for found in (LAYER.forward(images), LAYER.weight_gradient(images)):
        rows = found.pairs * found.filter_rows * found.output_rows * found.row_cycles
        assert rows == found.macs


def test_layers_are_those_of_the_network():
    found = layers_of("resnet18", (3, 32, 32), 10)
    facts = examine("resnet18", (3, 32, 32), 10)
    macs = {layer.name: layer.macs for layer in (*facts.layers, facts.head)}
    assert {layer.name: layer.forward(1).macs for layer in found} == macs
    assert [layer.head for layer in found] == [False] * (len(found) - 1) + [True]


def test_flows_by_hand():
    array = Array(4, 5)
    product = Product(rows=100, depth=10, columns=11, times=2, pairs=21, filter_rows=2,
                      output_rows=7, row_cycles=30)  # fmt: skip
    assert cycles("weight-stationary", product, array) == 2 * (3 * 3) * (8 + 5 + 100 - 2)
    assert cycles("input-stationary", product, array) == 2 * (3 * 20) * (8 + 5 + 11 - 2)
    # Two filters below each other, output rows in two folds.
    assert cycles("row-stationary", product, array) == 11 * (1 * 2) * 30


@pytest.mark.parametrize("flow", FLOWS)
def test_no_array_does_more_than_one_product_in_a_pe(flow, rng):
    array = Array(5, 7)
    for _ in range(50):
        inputs, outputs, rows, width = (int(n) for n in rng.integers(1, 30, size=4))
        kernel = tuple(int(n) for n in rng.integers(1, 4, size=2))
        layer = Layer(name="", inputs=inputs, outputs=outputs, groups=1, kernel=kernel,
                      in_size=(rows, width), out_size=(rows, width))  # fmt: skip
        for product in (layer.forward(3), layer.weight_gradient(3)):
            assert cycles(flow, product, array) * array.pes >= product.macs


def test_batches_by_hand():
    """Two layers whose cycles are known; the second one is the head."""
    first = Layer(name="a", inputs=3, outputs=4, groups=1, kernel=(1, 1), in_size=(2, 2),
                  out_size=(2, 2))  # fmt: skip
    head = Layer(name="b", inputs=16, outputs=2, groups=1, kernel=(1, 1), in_size=(1, 1),
                 out_size=(1, 1), head=True)  # fmt: skip
    machine = Machine(array=Array(4, 4), predictor_array=Array(2, 2), features=6)

    def one(depth, columns, streamed, rows=4):
        return -(-depth // rows) * -(-columns // rows) * (3 * rows + streamed - 2)

    f1, f2 = one(3, 4, 8), one(16, 2, 2)
    w1, w2, d2 = one(8, 4, 3), one(2, 2, 16), one(2, 16, 2)
    p, q = one(6, 3, 4), one(4, 3, 6) + one(3, 6, 4)
    found = batches([first, head], machine, "low", 2)
    assert found == Batches(
        plain=f1 + f2 + w1 + w2 + d2, learning=f1 + f2 + w1 + w2 + d2 + p + q,
        predicted=f1 + f2 + p + w2,
    )  # fmt: skip
    assert found == batches([first, head], machine, "efficient", 2)
    p, q = one(6, 3, 4, 2), one(4, 3, 6, 2) + one(3, 6, 4, 2)
    through = f1 + max(f2, p)
    assert batches([first, head], machine, "max", 2) == Batches(
        plain=f1 + f2 + w1 + w2 + d2, learning=through + w2 + d2 + w1 + q,
        predicted=through + w2,
    )  # fmt: skip


def test_schedules_of_an_ideal_machine():
    """Backward twice as long as forward, the predictor for nothing."""
    ideal = Batches(plain=3, learning=3, predicted=1)
    assert ideal.steady == 1.5
    assert ideal.training(ScheduleConfig(), 90) == pytest.approx(1.465, abs=0.001)


def test_means_are_near_the_paper():
    """Of networks that do not take long; the whole figure is in docs/paper.md."""
    rows = evaluate(["vgg13", "resnet50", "mobilenet-v2"], ["cifar10"], Machine())
    assert 1.4 < sum(row.speed_up("max", "B") for row in rows) / 3 < 1.55
    for row in rows:
        assert row.speed_up("low", "B") < row.speed_up("max", "B")
        assert row.speed_up("max", "A") < row.speed_up("max", "B")


def test_command(tmp_path, capsys):
    files = tmp_path / "a.json", tmp_path / "a.png"
    command = ["analytic", "--network", "vgg13", "--data", "cifar10", "--batch", "16", "64"]
    assert main([*command, "--json", str(files[0]), "--plot", str(files[1])]) == 0
    rows = json.loads(files[0].read_text())
    assert [row["images"] for row in rows] == [16, 64]
    assert rows[0]["max"]["speed_up_b"] < rows[1]["max"]["speed_up_b"]
    assert "Figure" not in capsys.readouterr().out
    assert files[1].read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--network", "vgg"], "network must be one of .* not 'vgg'"),
        (["--batch", "0"], "batch must be at least 1, not 0"),
        (["--features", "0"], "features must be at least 1, not 0"),
    ],
)
def test_messages(arguments, message, capsys):
    assert main(["analytic", *arguments]) == 2
    assert re.search(message, capsys.readouterr().err)
