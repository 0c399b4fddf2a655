"""Networks of sequences against golden, bit for bit, and golden against torch.

Covers: compiler/kernels/normalization/channel_means.py,
compiler/kernels/normalization/layer_norm.py,
compiler/kernels/normalization/layer_norm_parameters.py,
compiler/kernels/attention/products.py, compiler/kernels/attention/softmax.py,
compiler/training/sequence_steps.py, golden/training/sequence_layers.py,
golden/training/step_result.py.
"""

import numpy as np
import pytest
import torch
from torch import nn

from golden.arithmetic.dot_product import decode
from golden.arithmetic.formats import FLOAT32
from golden.training.check import complaints
from hw.config import make_config
from verif.networks.train_sequences import NETWORKS, sequence_run

ARRAYS = {"4x4": {}, "5x3": {"rows": 5, "columns": 3}}


def configuration(array="4x4"):
    return make_config(variant="baseline", preset="tiny", **ARRAYS[array])


def check(result):
    assert result.passed, "\n".join(map(str, result.differences[:5]))
    assert result.compared


#: What takes long is tried with one array, or in the regression alone.
LONG = ("normalized mlp", "attention", "two sentences", "transformer", "paper's transformer")


@pytest.mark.parametrize(
    ("network", "array"),
    [
        (network, array)
        if network not in LONG or (array == "5x3" and network not in LONG[3:])
        else pytest.param(network, array, marks=pytest.mark.long)
        for network in NETWORKS
        for array in ARRAYS
    ],
)
def test_networks_in_the_functional_model(network, array, rng, seed):
    check(sequence_run(network, configuration(array), rng, reuse=False).interpret(seed))


@pytest.mark.long
@pytest.mark.parametrize("network", NETWORKS)
def test_networks_on_the_accelerator(network, rng, seed):
    run = sequence_run(network, configuration("5x3"), rng)
    check(run.simulate(seed=seed, stall_share=0.3, latency=10, timeout_cycles=3_000_000))


@pytest.mark.parametrize(
    ("network", "variant"),
    [
        ("token mlp", "low"),
        pytest.param("token mlp", "max", marks=pytest.mark.long),
        pytest.param("transformer", "low", marks=pytest.mark.long),
        pytest.param("paper's transformer", "max", marks=pytest.mark.long),
    ],
)
def test_gradients_of_linear_layers_are_predicted(network, variant, rng, seed):
    """Two batches of backpropagation, and one with predicted gradients."""
    config = make_config(variant=variant, preset="tiny")
    check(sequence_run(network, config, rng, images=2, phases="BBG").interpret(seed))


@pytest.mark.long
def test_predicted_on_the_accelerator(rng, seed):
    """An encoder and a decoder on two cores: a batch of each phase."""
    config = make_config(variant="max", preset="tiny")
    run = sequence_run("transformer", config, rng, images=2, phases="BG")
    check(run.simulate(seed=seed, timeout_cycles=20_000_000))


@pytest.mark.parametrize(
    "network",
    [pytest.param(name, marks=pytest.mark.long) if name == LONG[-1] else name for name in NETWORKS],
)
def test_layers_are_within_their_bounds_of_torch(network, rng, seed):
    run = sequence_run(network, configuration(), rng, batches=1)
    golden, batch = run.golden, run.batches[0]
    golden.restore(run.start)
    before = golden.state()
    assert complaints(golden, before, golden.step(batch.images, batch.targets)) == []


def test_padding_does_not_count(rng, seed):
    """Positions with the label ``ignore_index`` have no share of loss and gradient."""
    loss = nn.CrossEntropyLoss(ignore_index=0)
    run = sequence_run("token mlp", configuration(), rng, batches=1, loss=loss)
    check(run.interpret(seed))
    batch = run.batches[0]
    assert 0 < (batch.targets == 0).sum() < batch.targets.size
    run.golden.restore(run.start)
    logits = run.golden.predict(batch.images)
    found = run.golden.step(batch.images, batch.targets)
    labels = torch.from_numpy(batch.targets.reshape(-1))
    expected = loss(torch.from_numpy(logits.reshape(len(labels), -1)), labels)
    assert decode(FLOAT32, found.loss.value) == pytest.approx(expected.item(), rel=1e-5)
    gradient = found.gradients["head"][:, :, 0]
    assert not gradient[batch.targets == 0].any()
    assert gradient[batch.targets != 0].any(axis=-1).all()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros((3, 6), int), r"labels must have shape \(images, length\) = \(3, 7\)"),
        (np.full((3, 7), 5), r"labels\[0, 0\] is 5; it must be from 0 to 4"),
    ],
)
def test_messages(labels, message, rng):
    run = sequence_run("token mlp", configuration(), rng, batches=1)
    with pytest.raises(ValueError, match=message):
        run.program.batch(run.batches[0].images, labels)
