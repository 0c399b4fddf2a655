"""Networks with frozen parameters train as golden says, bit for bit: functional model and RTL.

It goes with compiler/kernels/convolution/depthwise.py,
compiler/kernels/normalization/batch_norm.py,
compiler/kernels/convolution/conv_weight_gradient.py and the steps of training; golden is compared
with torch in tests/golden/training/test_freezing.py.

Covers: verif/networks/training_run.py.
"""

import numpy as np
import pytest

from golden.prediction.schedule import Phase
from hw.config import make_config
from tests.freezing import CLASSES, FROZEN, SHAPE, network
from verif.networks.adagp_blocks import experienced
from verif.networks.adagp_run import AdaGPRun
from verif.networks.train_blocks import random_batches
from verif.networks.training_result import in_phases
from verif.networks.training_run import TrainingRun

#: Small: a buffer in which maps do not fit as a whole.
ARRAYS = {"4x4": {}, "5x3": {"rows": 5, "columns": 3}, "small": {"buffer_bank_depth": 64}}
ARRAYS["small 5x3"] = ARRAYS["5x3"] | ARRAYS["small"]


def config_of(array="4x4", variant="baseline"):
    return make_config(variant=variant, preset="tiny", **ARRAYS[array])


def batches(rng, count, images=3):
    return random_batches(rng, [0.1] * count, images=images, shape=SHAPE, classes=CLASSES)


def check(result):
    assert result.passed, "\n".join(map(str, result.differences[:5]))
    assert result.compared


#: Everything on one array; on the others what takes commands of its own.
CASES = [("4x4", name) for name in FROZEN if name != "nothing"]
CASES += [("5x3", name) for name in ("weights", "all but a bias")]
CASES += [("small", name) for name in ("weights", "all but a scale", "all but a shift")]


@pytest.mark.parametrize(("array", "frozen"), CASES)
def test_every_map_and_gradient(frozen, array, rng, seed):
    model = network(seed, frozen)
    run = TrainingRun(model, config_of(array), SHAPE, batches(rng, 2), reuse=False)
    result = run.interpret(seed)
    check(result)
    before, after = model.state_dict(), run.program.state(result.final)
    for name, parameter in model.named_parameters():
        same = np.array_equal(after[name], before[name].numpy())
        assert same == (not parameter.requires_grad), name


def test_memory_is_shared(rng, seed):
    run = TrainingRun(network(seed, "a branch"), config_of(), SHAPE, batches(rng, 2, images=2))
    check(run.interpret(seed))


@pytest.mark.long
@pytest.mark.parametrize("frozen", ["weights", "a scale and a shift"])
def test_on_the_accelerator(frozen, rng, seed):
    """Gradients of biases alone, and of a scale or a shift alone, on a memory that stalls."""
    config = config_of("small 5x3")
    run = TrainingRun(network(seed, frozen), config, SHAPE, batches(rng, 2, images=2))
    check(run.simulate(seed=seed, stall_share=0.3, latency=10, timeout_cycles=3_000_000))


@pytest.mark.parametrize(
    ("variant", "frozen"),
    [("low", "the first layers"), ("efficient", "biases"), ("max", "the head"),
     ("max", "the first layers")],
)  # fmt: skip
def test_predicted_gradients(variant, frozen, rng, seed):
    """Phase GP, backpropagation, and again."""
    phases = in_phases(batches(rng, 3), (Phase.GP, Phase.BP, Phase.GP))
    run = AdaGPRun(
        network(seed, frozen), config_of(variant=variant), SHAPE, phases, reuse=False,
        prepare=experienced(rng),
    )  # fmt: skip
    check(run.interpret(seed))
