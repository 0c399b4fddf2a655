"""Whole training steps against golden, bit for bit: in the functional model and on the RTL.

Covers: verif/networks/train_blocks.py, verif/networks/training_result.py,
compiler/kernels/maps/activations.py, compiler/kernels/maps/pointwise.py,
compiler/kernels/maps/smooth.py, compiler/kernels/maps/dropout.py,
compiler/kernels/normalization/scaling.py, compiler/training/parameter_steps.py,
compiler/training/transposed_steps.py,
compiler/kernels/updates/binary_loss.py.
"""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from compiler.frontend.example import ResidualCNN
from golden.layers.optimizer import SGD, Adam, AdamW
from hw.config import make_config
from verif.networks.train_blocks import BLOCKS, INPUT_SHAPE, block_run, random_model
from verif.networks.training_result import Batch
from verif.networks.training_run import TrainingRun

ARRAYS = {"4x4": {}, "5x3": {"rows": 5, "columns": 3}, "3x7": {"rows": 3, "columns": 7}}


def check(result):
    assert result.passed, "\n".join(map(str, result.differences[:5]))
    assert result.compared


#: Blocks that every array is tried with; others with one of them, but in the regression with all.
FIRST = ("residual", "depthwise", "strided")
BLOCKS_AND_ARRAYS = [
    (block, array)
    if block in FIRST or number % len(ARRAYS) == place
    else pytest.param(block, array, marks=pytest.mark.long)
    for number, block in enumerate(BLOCKS)
    for place, array in enumerate(ARRAYS)
]


@pytest.mark.parametrize(("network", "array"), BLOCKS_AND_ARRAYS)
def test_blocks_in_the_functional_model(network, array, rng, seed):
    config = make_config(variant="baseline", preset="tiny", **ARRAYS[array])
    size = {} if network in FIRST else {"batches": 2, "images": 2}
    check(block_run(network, config, rng, **size).interpret(seed))


def test_every_map_and_gradient(rng, seed):
    """Nothing shares memory, so everything that was stored can be looked at."""
    config = make_config(variant="baseline", preset="tiny")
    run = block_run("residual", config, rng, reuse=False)
    result = run.interpret(seed)
    check(result)
    names = set(run.actual(result.final))
    assert {"map linear", "gradient of conv1", "gradient of conv2.weight"} <= names


@pytest.mark.parametrize(
    ("network", "array"),
    [
        ("residual", "4x4"),
        ("strided", "4x4"),
        pytest.param("depthwise", "5x3", marks=pytest.mark.long),
        pytest.param("inception", "5x3", marks=pytest.mark.long),
        pytest.param("dense", "4x4", marks=pytest.mark.long),
        pytest.param("growing", "5x3", marks=pytest.mark.long),
        pytest.param("smooth", "4x4", marks=pytest.mark.long),
        pytest.param("same", "4x4", marks=pytest.mark.long),
        pytest.param("norms", "5x3", marks=pytest.mark.long),
        pytest.param("transposed", "5x3", marks=pytest.mark.long),
    ],
)
def test_blocks_on_the_accelerator(network, array, rng, seed):
    """Three batches on a memory that stalls."""
    config = make_config(variant="baseline", preset="tiny", **ARRAYS[array])
    run = block_run(network, config, rng)
    check(run.simulate(seed=seed, stall_share=0.3, latency=10, timeout_cycles=3_000_000))


def test_resume_in_a_fresh_simulation(rng, seed):
    """Training goes on from what was read out, as if nothing had happened."""
    config = make_config(variant="baseline", preset="tiny")
    run = block_run("strided", config, rng, batches=4)
    whole = run.simulate(seed=seed, timeout_cycles=3_000_000)
    check(whole)
    first, rest = run.part(0, 2), run.part(2, 4)
    stopped = first.simulate(seed=seed, timeout_cycles=3_000_000)
    state, velocities = (run.program.state(stopped.final, role) for role in ("master", "velocity"))
    memory = run.program.memory(state, {"velocity": velocities})
    resumed = rest.simulate(seed=seed, memory=memory, timeout_cycles=3_000_000)
    check(resumed)
    assert resumed.losses == whole.losses[2:]
    tensors = [t for p in run.program.parameters.values() for r, t in p.tensors.items()
               if r != "gradient"]  # fmt: skip
    for tensor in tensors:
        np.testing.assert_array_equal(
            tensor.unpack(resumed.final), tensor.unpack(whole.final), err_msg=tensor.name
        )


def test_guard(rng, seed):
    """A gradient that is not finite changes nothing but running statistics."""
    config = make_config(variant="baseline", preset="tiny")
    run = block_run("strided", config, rng, batches=1, guard=True)
    batch = run.batches[0]
    images = batch.images.copy()
    images[0] = np.inf
    run = TrainingRun(
        run.model, config, INPUT_SHAPE, [dataclasses.replace(batch, images=images)], guard=True
    )
    result = run.interpret(seed)
    check(result)
    before = run.model.state_dict()
    after = run.program.state(result.final)
    assert any(np.array_equal(after[name], before[name].numpy()) for name in run.golden.weights)


def test_squared_error(rng, seed):
    """Real targets instead of labels."""
    config = make_config(variant="baseline", preset="tiny", **ARRAYS["5x3"])
    run = block_run("strided", config, rng, batches=1)
    batch = dataclasses.replace(
        run.batches[0], targets=rng.standard_normal((5, 4)).astype(np.float32)
    )
    run = TrainingRun(run.model, config, INPUT_SHAPE, [batch] * 2, loss="mean_squared_error")
    result = run.interpret(seed)
    check(result)
    assert result.losses[1] < result.losses[0]


def binary_run(rng, config):
    """Two batches with a map of logits, of several parts, and targets from 0 to 1."""
    model = random_model(lambda: nn.Conv2d(3, 7, 3, padding=1), rng)
    batch = Batch(
        images=rng.standard_normal((3, 12, 9, 3)).astype(np.float32),
        targets=rng.choice([0.0, 1.0, 0.25], (3, 12, 9, 7)),
        optimizer=SGD(learning_rate=1.0, momentum=0.9),
    )
    model = nn.Sequential(model)
    return TrainingRun(model, config, (3, 12, 9), [batch] * 2, loss=nn.BCEWithLogitsLoss())


def test_binary_cross_entropy(rng, seed):
    config = make_config(variant="baseline", preset="tiny", **ARRAYS["5x3"])
    result = binary_run(rng, config).interpret(seed)
    check(result)
    assert result.losses[1] < result.losses[0]


@pytest.mark.long
def test_binary_cross_entropy_on_the_accelerator(rng, seed):
    config = make_config(variant="baseline", preset="tiny")
    check(binary_run(rng, config).simulate(seed=seed, timeout_cycles=5_000_000))


@pytest.mark.parametrize("options", [{"label_smoothing": 0.1, "ignore_index": None},
                                     {"ignore_index": 3}, {"label_smoothing": 0.2}])  # fmt: skip
@pytest.mark.parametrize("array", ["4x4", "5x3"])
def test_labels_that_are_smooth_or_do_not_count(options, array, rng, seed):
    """Label 3, or that of torch for none, does not count; the last layer's map is float32 or, with
    a pooling layer at the end, operands."""
    result = labelled_run(options, array, rng).interpret(seed)
    check(result)
    assert result.losses[1] < result.losses[0]


@pytest.mark.long
def test_labels_that_are_smooth_or_do_not_count_on_the_accelerator(rng, seed):
    run = labelled_run({"label_smoothing": 0.2}, "5x3", rng)
    check(run.simulate(seed=seed, timeout_cycles=3_000_000))


def labelled_run(options, array, rng):
    config = make_config(variant="baseline", preset="tiny", **ARRAYS[array])
    loss = nn.CrossEntropyLoss(**options)
    run = block_run(pooled_logits if array == "4x4" else "strided", config, rng, batches=1)
    labels = run.batches[0].targets.copy()
    if loss.ignore_index is not None:
        labels[:2] = 0, loss.ignore_index
    batch = dataclasses.replace(run.batches[0], targets=labels)
    return TrainingRun(run.model, config, INPUT_SHAPE, [batch] * 2, loss=loss, reuse=False)


def pooled_logits():
    """Logits that are means."""
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())


def one_tap():
    """A depthwise convolution whose product 1.0157 is no bf16 number."""
    model = nn.Sequential(nn.Conv2d(2, 2, 1, groups=2, bias=False))
    nn.init.constant_(model[0].weight, 1 + 2**-7)
    return model


def last_depthwise(model, config, images, targets):
    """Training whose last layer is depthwise."""
    optimizer = SGD(learning_rate=0.1, momentum=0.9)
    batch = Batch(images=images, targets=targets, optimizer=optimizer)
    shape = (images.shape[3], *images.shape[1:3])
    return TrainingRun(model, config, shape, [batch] * 2, loss="mean_squared_error", reuse=False)


@pytest.mark.parametrize("array", ARRAYS)
def test_a_last_depthwise_convolution_stays_float32(array, rng, seed):
    config = make_config(variant="baseline", preset="tiny", **ARRAYS[array])
    images = np.full((2, 1, 1, 2), 1 + 2**-7)
    run = last_depthwise(one_tap(), config, images, np.zeros((2, 1, 1, 2), np.float32))
    result = run.interpret(seed)
    check(result)
    output = run.program.tensors[run.program.maps["0"]]
    assert output.kind == "float32"
    first = run.expected[0]["map 0"].view(np.float32)
    np.testing.assert_array_equal(first, np.full((2, 1, 1, 2), (1 + 2**-7) ** 2, np.float32))


@pytest.mark.long
def test_a_last_depthwise_convolution_on_the_accelerator(rng, seed):
    """With a bias, strides and padding, after another layer."""
    config = make_config(variant="baseline", preset="tiny", **ARRAYS["5x3"])

    def network():
        return nn.Sequential(
            nn.Conv2d(2, 7, 1), nn.ReLU(), nn.Conv2d(7, 7, 3, stride=2, padding=1, groups=7)
        )

    images = rng.standard_normal((2, 4, 5, 2))
    targets = np.full((2, 2, 3, 7), 0.5, np.float32)
    run = last_depthwise(random_model(network, rng), config, images, targets)
    check(run.interpret(seed))
    check(run.simulate(seed=seed, stall_share=0.3, latency=10, timeout_cycles=3_000_000))


def test_example_network(rng, seed):
    config = make_config(variant="efficient", preset="tiny")
    shape = ResidualCNN.INPUT_SHAPE
    check(block_run(ResidualCNN, config, rng, batches=1, shape=shape, classes=10).interpret(seed))


def test_other_optimizers_are_refused():
    images, targets = np.zeros((1, 6, 5, 3)), np.zeros(1, int)
    with pytest.raises(
        ValueError, match=r"optimizer must be golden\S*.SGD\(...\) or .*, not torch"
    ):
        Batch(
            images=images,
            targets=targets,
            optimizer=torch.optim.SGD([torch.zeros(1)], lr=0.1),
        )


#: With numbers that are not the usual ones.
RULES = {
    "nesterov": SGD(learning_rate=0.1, momentum=0.8, weight_decay=1e-3, nesterov=True),
    "adam": Adam(learning_rate=0.02, betas=(0.8, 0.99), epsilon=1e-6, weight_decay=1e-3),
    "adamw": AdamW(learning_rate=0.02, weight_decay=0.1),
}


@pytest.mark.parametrize("name", RULES)
def test_optimizers(name, rng, seed):
    """Groups, biases in column tiles, normalisation; state goes on from what was read out."""
    config = make_config(variant="baseline", preset="tiny", **ARRAYS["5x3"])
    run = block_run(network_with_groups, config, rng, images=2, optimizer=RULES[name])
    result = run.interpret(seed)
    check(result)
    roles = ["master", *RULES[name].slots]
    state, *slots = (run.program.state(result.final, role) for role in roles)
    again = run.program.memory(state, dict(zip(roles[1:], slots, strict=True)))
    for parameter in run.program.parameters.values():
        for role, tensor in parameter.tensors.items():
            if role != "gradient":
                np.testing.assert_array_equal(tensor.unpack(again), tensor.unpack(result.final))


@pytest.mark.long
@pytest.mark.parametrize("name", RULES)
def test_optimizers_on_the_accelerator(name, rng, seed):
    config = make_config(variant="baseline", preset="tiny")
    run = block_run(network_with_groups, config, rng, images=2, optimizer=RULES[name])
    check(run.simulate(seed=seed, timeout_cycles=5_000_000))


def test_the_guard_and_adam(rng, seed):
    """A first batch that is rejected leaves moments and corrections at 0; the next one counts."""
    config = make_config(variant="baseline", preset="tiny")
    run = block_run("strided", config, rng, batches=2, images=2, optimizer=RULES["adam"])
    images = run.batches[0].images.copy()
    images[0] = np.inf
    batches = [dataclasses.replace(run.batches[0], images=images), run.batches[1]]
    run = TrainingRun(run.model, config, INPUT_SHAPE, batches)
    result = run.interpret(seed)
    check(result)
    assert result.rejected[0] and not result.rejected[1]
    assert not run.expected[0]["corrections 0.weight"].any()


def network_with_groups():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 6, 2, groups=2),
        nn.ReLU(), nn.Flatten(), nn.Linear(36, 4),
    )  # fmt: skip


def test_the_comparison_can_fail(rng, seed):
    config = make_config(variant="baseline", preset="tiny")
    run = block_run("strided", config, rng, batches=1)
    memory = bytearray(run.interpret(seed).final)
    memory[run.program.parameters["0.weight"].tensors["velocity"].offset] ^= 1
    differences, _ = run.compare(0, bytes(memory))
    assert [str(d).partition(" is ")[0] for d in differences] == [
        "batch 0: velocity 0.weight[0, 0, 0, 0]"
    ]


@pytest.mark.long
def test_a_network_in_a_very_small_buffer(rng, seed):
    """Products in blocks, normalisation in bands, gathered pixels, the loss of single pixels."""

    def network():
        return nn.Sequential(
            nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(),
            nn.MaxPool2d(2), nn.Conv2d(6, 9, 3, padding=1, stride=2),
        )  # fmt: skip

    config = make_config(variant="baseline", preset="tiny", rows=5, columns=3, buffer_bank_depth=32)
    batch = Batch(
        images=rng.standard_normal((2, 9, 13, 3)).astype(np.float32),
        targets=rng.standard_normal((2, 2, 3, 9)).astype(np.float32),
        optimizer=SGD(learning_rate=0.1, momentum=0.9),
    )
    model = random_model(network, rng)
    run = TrainingRun(model, config, (3, 9, 13), [batch] * 2, loss="mean_squared_error")
    check(run.interpret(seed))
