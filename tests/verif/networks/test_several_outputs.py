"""Networks that return several maps, with a loss for each: golden, the programs, messages.

Covers: golden/training/batch_loss.py, compiler/training/batch_input.py.
"""

import numpy as np
import pytest
import torch
from torch import nn

from compiler.adagp.compile import compile_adagp
from compiler.errors import CompileError
from compiler.networks.summary import summarize
from compiler.training.compile import compile_training
from compiler.training.program import TrainingProgram
from golden.arithmetic.dot_product import decode
from golden.arithmetic.formats import FLOAT32
from golden.layers.optimizer import SGD
from golden.prediction.schedule import Phase
from golden.training.check import complaints
from golden.training.step import Training
from hw.config import make_config
from verif.networks.adagp_blocks import experienced
from verif.networks.adagp_run import AdaGPRun
from verif.networks.train_blocks import random_model
from verif.networks.training_result import Batch, in_phases
from verif.networks.training_run import TrainingRun

SHAPE, LOSSES = (3, 6, 4), ["mean_squared_error", "cross_entropy", "mean_squared_error"]


class Detector(nn.Module):
    """A coarse map, a vector, and a fine map that is made of what the coarse one is made of."""

    def __init__(self):
        super().__init__()
        self.stem, self.down = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 8, 3, 2, 1)
        self.coarse, self.classes = nn.Conv2d(8, 5, 1), nn.Linear(8, 3)
        self.up, self.fine = nn.Upsample(scale_factor=2), nn.Conv2d(12, 5, 3, padding=1)

    def forward(self, x):
        early = torch.relu(self.stem(x))
        late = nn.functional.leaky_relu(self.down(early), 0.1)
        fine = self.fine(torch.cat([self.up(late), early], 1))
        return self.coarse(late), self.classes(late.mean((2, 3))), fine


def batch_of(rng, images=2):
    normal = rng.standard_normal
    targets = [normal((images, 3, 2, 5)), rng.integers(0, 3, images), normal((images, 6, 4, 5))]
    return Batch(
        images=normal((images, 6, 4, 3)).astype(np.float32),
        targets=targets,
        optimizer=SGD(learning_rate=0.1, momentum=0.9),
    )


def test_golden_beside_torch(rng):
    """Every layer within its bound; values and gradients are those of the sum of the losses."""
    model, batch = random_model(Detector, rng), batch_of(rng)
    training = Training(
        model, input_shape=SHAPE, optimizer=batch.optimizer, rows=4, columns=4, loss=LOSSES
    )
    before = training.state()
    result = training.step(batch.images, batch.targets)
    assert complaints(training, before, result) == []
    assert [node.name for node in training.outputs] == ["coarse", "classes", "fine"]
    values = [decode(FLOAT32, loss.value) for loss in result.losses]
    expected = np.float32(np.float32(values[0] + values[1]) + values[2])
    assert decode(FLOAT32, result.loss.value) == expected

    def maps(values):
        return torch.from_numpy(np.moveaxis(values, 3, 1)).float()

    coarse, labels, fine = batch.targets
    outputs = model(maps(batch.images))
    squared, cross = nn.functional.mse_loss, nn.functional.cross_entropy
    loss = squared(outputs[0], maps(coarse)) + squared(outputs[2], maps(fine))
    loss = loss + cross(outputs[1], torch.from_numpy(labels))
    loss.backward()
    assert abs(loss.item() - expected) < 0.02
    for name, parameter in model.named_parameters():
        own = decode(FLOAT32, result.parameter_gradients[name])
        scale = parameter.grad.abs().max().item()
        np.testing.assert_allclose(own, parameter.grad, atol=0.05 * scale, err_msg=name)


@pytest.mark.parametrize("predicted", [False, True])
def test_programs(predicted, rng, seed, tmp_path):
    """Every map and gradient, or Phase GP without a head; and from a file."""
    config = make_config(variant="max", preset="tiny", rows=5, columns=3)
    model, batches = random_model(Detector, rng), [batch_of(rng), batch_of(rng)]
    if predicted:
        batches = in_phases(batches, map(Phase, "BG"))
        run = AdaGPRun(model, config, SHAPE, batches, loss=LOSSES, prepare=experienced(rng))
        assert run.program.head is None and "classes" in run.golden.layers
    else:
        run = TrainingRun(model, config, SHAPE, batches, loss=LOSSES, reuse=False)
    result = run.interpret(seed)
    assert result.passed, "\n".join(map(str, result.differences[:5]))
    assert {"loss", "loss.1", "loss.2"} <= set(run.actual(result.final, 0))
    parts = [run.expected[0][name].view(np.float32)[0] for name in ("loss", "loss.1", "loss.2")]
    assert result.losses[0] == float((parts[0] + parts[1]) + parts[2])
    assert 0 <= result.correct[0] <= 2
    if not predicted:
        path = tmp_path / "program.bin"
        run.program.save(path)
        loaded = TrainingProgram.load(path, config)
        assert loaded.outputs == run.program.outputs
        assert loaded.losses_of(result.final) == run.program.losses_of(result.final)
        batch = batches[0]
        assert loaded.batch(batch.images, batch.targets) == run.program.batch(
            batch.images, batch.targets
        )


class TwoLabels(nn.Module):
    """Two vectors of classes."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 5, 3)
        self.kind, self.color = nn.Linear(5, 3), nn.Linear(5, 4)

    def forward(self, x):
        x = torch.relu(self.stem(x)).mean((2, 3))
        return self.kind(x), self.color(x)


def test_labels_of_one_output(rng, seed, tmp_path):
    """Of two cross-entropies only the second has smooth labels, of which one does not count."""
    config = make_config(variant="baseline", preset="tiny", rows=5, columns=3)
    model = random_model(TwoLabels, rng)
    losses = ["cross_entropy", nn.CrossEntropyLoss(label_smoothing=0.25, ignore_index=0)]
    labels = [np.array([0, 2, 0]), np.array([3, 0, 1])]
    batch = Batch(
        images=rng.standard_normal((3, 6, 4, 3)).astype(np.float32),
        targets=labels,
        optimizer=SGD(learning_rate=0.1, momentum=0.9),
    )
    run = TrainingRun(model, config, SHAPE, [batch] * 2, loss=losses, reuse=False)
    result = run.interpret(seed)
    assert result.passed, "\n".join(map(str, result.differences[:5]))
    assert {"loss", "correct", "loss.1", "correct.1"} <= set(run.actual(result.final))
    program = run.program
    assert "targets.factors" not in program.tensors and "loss.products" not in program.tensors
    factors = program.tensors["targets.1.factors"].unpack(result.final).view(np.float32)
    assert (factors[:, 0, 0, 0] == [0.5, 0, 0.5]).all()

    images = torch.from_numpy(np.moveaxis(batch.images, 3, 1).copy())
    outputs, wanted = model(images), [torch.from_numpy(own) for own in labels]
    total = nn.CrossEntropyLoss()(outputs[0], wanted[0]) + losses[1](outputs[1], wanted[1])
    assert abs(result.losses[0] - total.item()) < 0.02 and result.losses[1] < result.losses[0]
    places = [layer.argmax(1) == own for layer, own in zip(outputs, wanted, strict=True)]
    assert result.correct[0] == sum(places[0]) + sum(places[1] & (wanted[1] != 0))

    program.save(tmp_path / "program.bin")
    loaded = TrainingProgram.load(tmp_path / "program.bin", config)
    assert loaded.outputs == program.outputs
    assert loaded.loss_of(result.final) == (result.losses[1], result.correct[1])
    assert loaded.batch(batch.images, labels) == program.batch(batch.images, labels)
    rows = {layer.name: (layer.kind, layer.shape) for layer in summarize(program)[0]}
    assert rows["loss"] == ("cross_entropy", (3, 1, 1))
    assert rows["loss.1"] == ("cross_entropy", (4, 1, 1))
    with pytest.raises(ValueError, match="output color: all labels are 0; at least one must count"):
        program.batch(batch.images, [labels[0], np.zeros(3, int)])
    predicted = compile_adagp(model, config, SHAPE, images=3, loss=losses)
    own = {f"targets.1.{name}" for name in ("factors", "summary", "shift")}
    assert set(predicted.odd) == {program.maps["x"], "targets", "targets.1", *own}


def changed(forward):
    """The detector with another forward."""
    return type("Changed", (Detector,), {"forward": forward})()


FORWARDS = {
    "none": (lambda self, x: (), "an empty one|returns one map or a tuple"),
    "a number": (lambda self, x: (self.stem(x), 3), "a tuple of maps"),
    "twice": (lambda self, x: (self.stem(x),) * 2, "two outputs|returned twice"),
    "read": (lambda self, x: [y := self.stem(x), self.down(y)], "nothing else may read"),
    "input": (lambda self, x: (self.stem(x), x), "an output must be"),
}


@pytest.mark.parametrize(("forward", "message"), FORWARDS.values(), ids=FORWARDS)
def test_what_cannot_be_returned(forward, message):
    options = {"input_shape": SHAPE, "rows": 4, "columns": 4, "optimizer": SGD(learning_rate=0.1)}
    with pytest.raises(ValueError, match=message):
        Training(changed(forward), loss="mean_squared_error", **options)
    config = make_config(variant="baseline", preset="tiny")
    with pytest.raises(CompileError, match=message):
        compile_training(changed(forward), config, SHAPE, images=2, loss="mean_squared_error")


def test_messages(rng):
    config, batch = make_config(variant="baseline", preset="tiny"), batch_of(rng)
    with pytest.raises(CompileError, match="loss: 2 losses for 3 outputs, coarse, classes, fine"):
        compile_training(Detector(), config, SHAPE, images=2, loss=LOSSES[:2])
    program = compile_training(Detector(), config, SHAPE, images=2, loss=LOSSES)
    wanted = r"targets must be a list of 3 arrays, one for each output \(coarse, classes, fine\)"
    for targets in (batch.targets[:2], batch.targets[0]):
        with pytest.raises(ValueError, match=wanted):
            program.batch(batch.images, targets)
    batch.targets[1][1] = 3
    with pytest.raises(ValueError, match=r"output classes: labels\[1\] is 3; it must be from 0"):
        program.batch(batch.images, batch.targets)
