"""Training by gradient prediction against golden, bit for bit: functional model and RTL.

Covers: verif/networks/adagp_blocks.py.
"""

import dataclasses

import numpy as np
import pytest
from torch import nn

from emulator.batch_loop import BatchLoop
from golden.arithmetic.dot_product import decode
from golden.arithmetic.formats import FLOAT32
from golden.layers.optimizer import Adam, BrakedSGD
from golden.prediction.schedule import ScheduleConfig, Stage
from hw.config import make_config
from hw.isa.encoding import Opcode
from verif.networks.adagp_blocks import CASES, CLASSES, experienced, predicted_run


def check(result):
    assert result.passed, "\n".join(map(str, result.differences[:5]))
    assert result.compared


#: A predictor of NaN or noise moves nothing: tests of their own.
SOUND = [name for name, case in CASES.items() if case.prepare is experienced]


@pytest.mark.parametrize("case", SOUND)
def test_everything_in_the_functional_model(case, rng, seed):
    """Every intermediate tensor of Phase GP with old statistics, of backpropagation, and again."""
    config = make_config(preset="tiny", **CASES[case].settings)
    run = CASES[case].run(config, rng, "GBG", reuse=False)
    result = run.interpret(seed)
    check(result)
    assert set(result.gates[0]) == set(run.golden.layers)
    assert min(result.gates[0].values()) > 0.5
    for name in run.golden.layers:
        before, after = (run.expected[n][f"weights {name}.weight"] for n in (1, 2))
        changed = np.any(before != after)
        assert changed == (result.gates[1][name] > 0), name
    headless = run.golden.head is None
    assert [loss is None for loss in result.losses] == [headless, False, headless]
    # Nothing of golden's is left out but what is never stored: maps of layers that a ReLU is
    # computed with, what their gradient was before its mask, predictions times scale and gate.
    norms = {f"gradient of {n.name}" for n in run.golden.nodes if n.kind.endswith("_norm")}
    predicted = {f"gradient of {name}.weight" for name in run.golden.layers}
    for number, left_out in enumerate((predicted, set(), predicted)):
        names = set(run.expected[number]) - set(run.actual(result.final, number))
        names -= norms | {"rejected"}
        assert {name for name in names if not name.startswith("map ")} == left_out


def test_variants_agree(rng):
    """Where the predictor works makes no difference, with memory shared by tensors."""
    finals = {}
    seed = int(rng.integers(1 << 30))
    for variant in ("low", "efficient", "max"):
        rng = np.random.default_rng(seed)
        config = make_config(variant=variant, preset="tiny")
        run = predicted_run("headless", config, rng, "BG", prepare=experienced(rng))
        result = run.interpret(seed)
        check(result)
        finals[variant] = run.actual(result.final)
        # What is read out is what one can go on from.
        again = run.program.memory(
            run.program.first.state(result.final),
            {"velocity": run.program.first.state(result.final, "velocity")},
            run.program.predictor_state(result.final),
        )
        check_same(run.actual(again), finals[variant])
    for variant, found in finals.items():
        check_same(found, finals["low"], variant)


def check_same(actual, wanted, where=""):
    assert actual.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_array_equal(actual[name], values, err_msg=f"{where} {name}")


@pytest.mark.parametrize("groups", [1, CLASSES])
def test_a_last_convolution(groups, rng, seed):
    """Its map is float32, and it is predicted itself; a depthwise one, too."""

    def network():
        channels = 5 if groups == 1 else CLASSES
        return nn.Sequential(
            nn.Conv2d(2, channels, 3, stride=2), nn.ReLU(),
            nn.Conv2d(channels, CLASSES, (3, 2), groups=groups),
        )  # fmt: skip

    run = predicted_run(
        network, make_config(variant="low", preset="tiny"), rng, "BG", reuse=False,
        loss="mean_squared_error", targets=rng.standard_normal((3, 1, 1, CLASSES)),
        prepare=experienced(rng),
    )  # fmt: skip
    result = run.interpret(seed)
    check(result)
    assert list(result.gates[0]) == ["0", "2"]


@pytest.mark.long
@pytest.mark.parametrize("variant", ["low", "max"])
def test_adam(variant, rng, seed):
    """Moments and corrections of what is predicted go on in Phase GP, those of the rest do not."""
    optimizer = Adam(learning_rate=0.01, betas=(0.8, 0.99), epsilon=1e-6)
    config = make_config(variant=variant, preset="tiny")
    run = predicted_run(
        "ragged", config, rng, "BG", rate=0.01, optimizer=optimizer, prepare=experienced(rng)
    )
    check(run.interpret(seed))
    first, second = (run.expected[number] for number in (0, 1))
    assert (first["corrections 0.weight"] != second["corrections 0.weight"]).all()
    assert (first["corrections 0.bias"] == second["corrections 0.bias"]).all()


@pytest.mark.parametrize("variant", ["low", "max"])
def test_braked(variant, rng, seed):
    """Predicted gradients are braked by the velocity, too: without it Phase GP ends elsewhere."""
    finals = []
    for braking in (1.5, 0.0):
        optimizer = BrakedSGD(learning_rate=0.05, momentum=0.9, braking=braking)
        config = make_config(variant=variant, preset="tiny")
        generator = np.random.default_rng([seed, 3])
        run = predicted_run(
            "ragged", config, generator, "GG", rate=0.05, optimizer=optimizer,
            prepare=experienced(generator),
        )  # fmt: skip
        check(run.interpret(seed))
        finals.append(run.expected[1]["weights 0.weight"])
    assert (finals[0] != finals[1]).any()


#: Both phases in even and odd batches: W W, G G B, G.
LOOP = BatchLoop(
    schedule=ScheduleConfig(warm_up=1, ladder=(Stage(gp=2, bp=1, epochs=None),)),
    batches=6,
    epoch_batches=3,
    epoch_batch=1,
)


def looped_run(loop, config, rng, **options):
    letters = "".join(phase.value for phase in loop.phases())
    return predicted_run(
        small, config, rng, letters, images=2, shape=(2, 8, 8), prepare=experienced(rng), **options
    )


def test_one_run_of_many_batches(rng, seed):
    """Inputs in two places; in the functional model the next but one comes early."""
    loop = dataclasses.replace(LOOP, batches=4)
    run = looped_run(loop, make_config(variant="max", preset="tiny"), rng)
    check(run.interpret_loop(loop, seed))
    with pytest.raises(ValueError, match="the schedule has"):
        run.interpret_loop(LOOP, seed)


@pytest.mark.long
def test_a_run_whose_labels_are_smooth_or_do_not_count(rng, seed):
    """What goes with the labels has two places as well."""
    loop = dataclasses.replace(LOOP, batches=4)
    loss = nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=2)
    config = make_config(variant="low", preset="tiny")
    run = looped_run(loop, config, rng, loss=loss, targets=np.array([0, 2]))
    check(run.interpret_loop(loop, seed))


def test_a_learning_rate_for_each_batch_of_a_run(rng, seed):
    """The host writes coefficients while a BATCH waits for it."""
    loop = dataclasses.replace(LOOP, batches=4)
    config = make_config(variant="max", preset="tiny")
    run = looped_run(loop, config, rng, rate=[0.1, 0.05, 0.2, 0.01])
    check(run.interpret_loop(loop, seed))


def test_two_runs_have_two_learning_rates(rng, seed):
    """The second run goes on where the first one ends."""
    config = make_config(variant="low", preset="tiny")
    letters = "".join(phase.value for phase in LOOP.phases())[:4]
    run = predicted_run(
        small, config, rng, letters, images=2, shape=(2, 8, 8), rate=[0.1, 0.1, 0.02, 0.02],
        prepare=experienced(rng),
    )  # fmt: skip
    loops = dataclasses.replace(LOOP, batches=2), dataclasses.replace(LOOP, batches=4).after(2)
    first = run.part(0, 2).interpret_loop(loops[0], seed)
    check(first)
    check(run.part(2, 4).interpret_loop(loops[1], seed, memory=first.final))


def _floats(codes):
    return decode(FLOAT32, codes)


def test_a_predictor_of_nan_does_no_harm(rng, seed):
    """The guard keeps everything that NaN would get into, and counts it."""

    config = make_config(variant="max", preset="tiny")
    run = CASES["max, a predictor of NaN"].run(config, rng, "BGB")
    result = run.interpret(seed)
    check(result)
    layers = list(run.golden.layers)
    # Gradient statistics, weights and taps of every layer; then the predicted updates.
    assert result.rejected == [3 * len(layers), len(layers), 3 * len(layers)]
    assert all(gate == 0 for gates in result.gates for gate in gates.values())
    for name in layers:
        first, held, last = (run.expected[n][f"weights {name}.weight"] for n in range(3))
        np.testing.assert_array_equal(held, first, err_msg=name)
        assert np.any(last != held)
    for name, values in run.actual(result.final).items():
        if name.startswith(("weights", "velocity", "statistics", "loss")):
            assert np.isfinite(_floats(values)).all(), name


def test_a_predictor_of_noise_does_no_harm(rng, seed):
    """Random predictions several times larger than gradients: gates all but close."""
    config = make_config(variant="efficient", preset="tiny")
    run = CASES["efficient, a predictor of noise"].run(config, rng, "BGBG")
    result = run.interpret(seed)
    check(result)
    for name, values in run.actual(result.final).items():
        if name.startswith(("weights", "velocity")):
            assert np.isfinite(_floats(values)).all(), name
            assert np.abs(_floats(values)).max() < 10, name


def test_the_comparison_can_fail(rng, seed):
    """One wrong bit in any tensor of the predictor is found and named."""
    config = make_config(variant="low", preset="tiny")
    run = predicted_run("headless", config, rng, "B", images=2, reuse=False)
    final, program = run.interpret(seed).final, run.program
    own = program.predictor.layers["0"]
    names = {tensor.name: f"{what} of 0" for what, tensor in vars(own).items()
             if tensor in own.tensors}  # fmt: skip
    names |= {name: name for name in program.predictor.kept if name.startswith("predictor.")}
    names |= {f"predictor.{what}.gradient": f"predictor.{what}.gradient"
              for what in ("full", "taps", "toeplitz")}  # fmt: skip
    del names["predictor.ones"]
    # In long batches alone; the statistics that are made of them are compared.
    del names[own.gradient_sums.name]
    for tensor, name in names.items():
        memory = bytearray(final)
        memory[program.first.tensors[tensor].offset] ^= 1
        differences, _ = run.compare(0, bytes(memory))
        assert [str(d).partition("[")[0] for d in differences] == [f"batch 0: {name}"]
    (difference,), _ = run.compare(0, final, rejected=1)
    assert str(difference).startswith("batch 0: rejected[0] is 0x1 (1), expected 0x0 (0)")


def small():
    """Two convolutions and a linear layer, for images of 8 x 8; what it drops depends on the
    number of the batch."""
    return nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU(),
        nn.Conv2d(5, 6, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Dropout(0.3),
        nn.Linear(54, CLASSES),
    )  # fmt: skip


@pytest.mark.long
def test_batches_alone_on_the_accelerator(rng, seed):
    """Each phase as a program of its own, on a memory that stalls."""
    config = make_config(variant="low", preset="tiny")
    run = predicted_run(
        small, config, rng, "BG", images=2, shape=(2, 8, 8), prepare=experienced(rng)
    )
    check(run.simulate(seed=seed, stall_share=0.3, latency=10, timeout_cycles=3_000_000))


@pytest.mark.parametrize(
    "variant", ["low", pytest.param("efficient", marks=pytest.mark.long), "max"]
)
def test_phases_on_the_accelerator(variant, rng, seed):
    """One run of many batches, each with its own learning rate, on a memory that stalls."""
    sizes = {"rows": 5, "columns": 3} if variant == "low" else {}
    config = make_config(variant=variant, preset="tiny", **sizes)
    run = looped_run(LOOP, config, rng, rate=[0.1, 0.05, 0.2, 0.01, 0.1, 0.02])
    result = run.simulate_loop(
        LOOP, seed=seed, stall_share=0.3, latency=10, timeout_cycles=3_000_000
    )
    check(result)
    assert any(result.gates[1].values())
    assert any(result.gates[4].values())


@pytest.mark.long
@pytest.mark.parametrize("variant", ["efficient", "max"])
def test_loops_of_two_threads_on_the_accelerator(variant, rng, seed):
    """A run with a batch of each kind, the odd one of Phase GP, with loops of the main thread
    beside commands of the other one, on a memory that stalls."""
    config = make_config(variant=variant, preset="tiny")
    loop = dataclasses.replace(LOOP, batches=2, epoch_batches=2)
    run = predicted_run(
        looping, config, rng, "WG", images=40, shape=(2, 8, 8), prepare=experienced(rng), loops=True
    )
    for part in run.program.parts.values():
        assert any(opcode is Opcode.REPEAT for opcode, _ in part.command_list)
    check(
        run.simulate_loop(loop, seed=seed, stall_share=0.3, latency=10, timeout_cycles=12_000_000)
    )


def looping():
    """Layers whose commands come again for every image or two."""
    return nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1), nn.BatchNorm2d(5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(5, 6, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(6, CLASSES),
    )  # fmt: skip
