"""Training steps with samples of images: every map, gradient and weight beside golden, in the
functional model, in random orders.

Covers: compiler/vcas/steps.py, compiler/kernels/sampling/draw.py,
compiler/kernels/sampling/copies.py, compiler/kernels/sampling/normalization.py,
verif/networks/methods/sampled_run.py.
"""

import pytest
import torch
from torch import nn

from compiler.errors import CompileError
from compiler.vcas import SampledProgram, compile_vcas
from compiler.vcas.compile import sampled_steps
from compiler.vcas.steps import image_counts
from golden.layers.optimizer import SGD
from golden.layers.row_sampling import row_counts
from hw.config import make_config
from hw.isa.encoding import Opcode
from hw.isa.rows import RowAction
from verif.networks.methods.sampled_run import SampledRun
from verif.networks.training_result import Batch

IMAGES, SHAPE = 5, (2, 6, 5)
CONFIGS = {
    "tiny": {"variant": "baseline"},
    # Words of five channels, pieces of images, more images than accumulators.
    "small": {"variant": "low", "rows": 5, "columns": 3, "accumulator_depth": 16,
              "buffer_banks": 3, "buffer_bank_depth": 128},
}  # fmt: skip


def config_of(name, **fields):
    return make_config(**{"preset": "tiny", "row_list_depth": IMAGES} | CONFIGS[name] | fields)


def network(seed=1):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
        nn.Conv2d(6, 7, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(28, 3),
    )  # fmt: skip


def pooled_network():
    """What is sampled goes through max pooling, and the normalisation has no parameters; a second
    one has a gradient from two layers, which is whole."""
    torch.manual_seed(1)

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(2, 5, 3, padding=1), nn.Conv2d(5, 4, 1, bias=False)
            self.c, self.head = nn.Conv2d(4, 4, 3, padding=1), nn.Linear(16, 3)
            self.norm, self.other = nn.BatchNorm2d(5, affine=False), nn.BatchNorm2d(4)
            self.pool, self.relu = nn.MaxPool2d(3, stride=2), nn.ReLU()

        def forward(self, x):
            x = self.other(self.b(self.pool(self.relu(self.norm(self.a(x))))))
            return self.head((x + self.c(x)).flatten(1))

    return Network()


def batches(rng, number, images=IMAGES):
    optimizer = SGD(learning_rate=0.1, momentum=0.9, weight_decay=1e-3)
    channels, *size = SHAPE
    return [
        Batch(images=rng.normal(size=(images, *size, channels)),
              targets=rng.integers(3, size=images), optimizer=optimizer)
        for _ in range(number)
    ]  # fmt: skip


def test_everything_equals_golden(rng, seed):
    """Ratios that the host changes, from a few images to all of them."""
    ratios = [{"0": 0.3, "3": 0.5}, {"0": 1.0, "3": 1.0}]
    run = SampledRun(network(), config_of("tiny"), SHAPE, batches(rng, 2), ratios=ratios,
                     counts=(1, 3, 5), reuse=False)  # fmt: skip
    result = run.interpret(seed=seed)
    assert not result.differences, "\n".join(map(str, result.differences[:5]))
    assert result.compared > 9000
    assert run.kept[-1] == {"0": IMAGES, "3": IMAGES}
    assert any(kept < IMAGES for kept in run.kept[0].values())


def test_pooling_and_sums(rng, seed):
    """More images than accumulators; every map that there is, and every gradient."""
    images = 17
    run = SampledRun(pooled_network(), config_of("small", row_list_depth=images), SHAPE,
                     batches(rng, 1, images), counts=(9, images), reuse=False,
                     ratios=[{"a": 0.4, "b": 0.3, "c": 0.2}])  # fmt: skip
    result = run.interpret(seed=seed)
    assert not result.differences, "\n".join(map(str, result.differences[:5]))
    assert run.kept[0]["b"] <= 9  # a sample, then
    # Of the sampled layers' inputs two have a gradient of the sample alone.
    assert {"relu", "pool"}.isdisjoint(run.program.gradients)
    assert {"norm", "other", "b"} & set(run.program.gradients)


def test_loops_and_a_plan(rng, seed):
    """Commands that come again are written once, tensors share memory; the lists' counter is none
    of a loop's."""
    run = SampledRun(network(), config_of("tiny"), SHAPE, batches(rng, 2), loops=True,
                     counts=(3, 5), ratios=[{"3": 0.4}] * 2)  # fmt: skip
    assert not run.interpret(seed=seed).differences
    larger = compile_vcas(network(), config_of("tiny", row_list_depth=40), SHAPE, images=40,
                          sampled=["3"], counts=(20, 40), loops=True)  # fmt: skip
    loops = [fields["level"] for opcode, fields in larger.command_list if opcode is Opcode.REPEAT]
    assert loops and 3 not in loops
    commands = run.program.command_list
    actions = [fields["action"] for opcode, fields in commands if opcode is Opcode.ROWS]
    assert actions.count(RowAction.BEGIN) == actions.count(RowAction.BRANCH) == 1
    # A table for every number of images, and an end of each of two backward passes.
    assert actions.count(RowAction.JOIN) == IMAGES + 1 + 2


def test_steps_of_a_batch():
    graph, _ = sampled_steps(
        network(), config_of("tiny"), SHAPE, images=IMAGES, sampled=["3", "0"], counts=(2, 5),
        loss="cross_entropy", optimizer="sgd",
    )  # fmt: skip
    assert graph.numbers == {"0": 0, "3": 1}
    names = [step.name for step in graph.taken({"0": 1, "3": 3})]
    some = names.index("3 input gradient")
    assert names[some - 3 : some + 4] == [
        "3 sample", "3 sample", "3 sample", "3 input gradient", "3 sample", "3 weight gradient",
        "1 sample",
    ]  # fmt: skip
    assert names.count("0 weight gradient") == 1 and "0 input gradient" not in names
    written = [step.writes for step in graph.taken({"0": 1, "3": 3}) if step.layer == "3"]
    assert ("3.gradient.3.5",) in written and ("3.gradient.3.2",) not in written


def test_a_file(tmp_path, rng):
    program = compile_vcas(network(), config_of("tiny"), SHAPE, images=IMAGES, sampled=["3"])
    program.save(tmp_path / "program")
    found = SampledProgram.load(tmp_path / "program")
    assert found.commands == program.commands and found.shares_of({"3": 0.5}) == (
        program.shares_of({"3": 0.5})
    )


def test_counts():
    assert image_counts(16, None) == row_counts(16)
    assert image_counts(5, [2, 5]) == (2, 5)
    for wrong in ((), (2,), (0, 5), (3, 3, 5)):
        with pytest.raises(CompileError, match="up to the batch of 5, not"):
            image_counts(5, wrong)


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        ({}, {"sampled": ["6"]}, "layer 6 cannot be sampled; convolutions that can: 0, 3"),
        ({}, {"sampled": "3"}, "must be a list of names of layers, not '3'"),
        ({"row_list_depth": 4}, {}, r"from 2 to row_list_depth \(4\) images, not 5"),
        ({"operand_format": "fp16"}, {}, "8 bits of exponent, not fp16"),
        ({"training": False, "row_list_depth": 0}, {}, "no engines for training"),
    ],
)
def test_messages(fields, options, message):
    with pytest.raises(CompileError, match=message):
        compile_vcas(network(), config_of("tiny", **fields), SHAPE,
                     **{"images": IMAGES, "sampled": ["3"]} | options)  # fmt: skip
    if not fields:
        program = compile_vcas(network(), config_of("tiny"), SHAPE, images=IMAGES, sampled=["3"])
        with pytest.raises(ValueError, match="layer 0 is not sampled; layers are 3"):
            program.shares_of({"0": 0.5})
        with pytest.raises(ValueError, match="layer 3: the ratio must be above 0, not 0"):
            program.shares_of({"3": 0})
