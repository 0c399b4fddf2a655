"""Training through the host's API, beside golden, on the emulator; one run on the RTL.

Covers: runtime/checkpoint.py, runtime/check.py, runtime/data.py, runtime/optimizers.py,
runtime/programs.py, runtime/session.py, runtime/state.py.
"""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from algorithms.braking.optimizer import BrakedSGD
from compiler.errors import CompileError
from golden.prediction.schedule import ScheduleConfig, Stage
from hw.config import make_config
from runtime import Accelerator, DifferenceFound, Trainer
from runtime.connection import Connection
from runtime.data import with_following
from runtime.session import PredictionSession

CONFIG = make_config(variant="max", preset="tiny")
SCHEDULE = ScheduleConfig(warm_up=1, ladder=(Stage(gp=1, bp=1, epochs=None),))
IMAGES = 14  # three batches, the last one smaller


class Net(nn.Sequential):
    """A convolution with batch normalisation, and a linear layer of which each batch drops other
    inputs, on images of 2 x 4 x 4."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
            nn.Dropout(0.25), nn.Linear(64, 3),
        )  # fmt: skip


@pytest.fixture
def network(seed):
    torch.manual_seed(seed)
    return Net()


@pytest.fixture
def data(rng):
    images = torch.from_numpy(rng.normal(size=(IMAGES, 2, 4, 4)).astype(np.float32))
    return torch.utils.data.TensorDataset(images, torch.from_numpy(rng.integers(3, size=IMAGES)))


def loader(data, **options):
    return torch.utils.data.DataLoader(data, batch_size=5, **options)


def trainer(network, device="emulator", method="adagp", **options):
    if method == "adagp":
        options = {"schedule": SCHEDULE, **options}
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    accelerator = Accelerator(CONFIG, device=device)
    return Trainer(
        network, accelerator, method=method, **{"optimizer": optimizer, **options}
    )  # fmt: skip


def bits(trained):
    """Weights and statistics."""
    state = trained.state.weights
    return {name: values.view(np.uint32) for name, values in state.items()}


def same(one, other):
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name], err_msg=name)


@pytest.mark.parametrize("method", ["bp", "adagp"])
def test_beside_golden_with_a_scheduler(network, data, method):
    """Batches of two sizes, a rate that changes behind every batch, every number as golden's."""
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    rates = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    trained = trainer(
        network, method=method, check=True, optimizer=optimizer, scheduler=rates,
        scheduler_every="batch",
    )  # fmt: skip
    before = [values.clone() for values in network.parameters()]
    history = trained.fit(loader(data), 2, progress=False)
    assert [epoch.samples for epoch in history.epochs] == [IMAGES, IMAGES]
    assert history.epochs[1].phases == ({"BP": 3} if method == "bp" else {"GP": 2, "BP": 1})
    assert history.epochs[0].rate == 0.1 * 0.5**2
    assert history.epochs[1].rate == 0.1 * 0.5**5
    assert not any(map(torch.equal, before, network.parameters()))
    assert history.epochs[0].cycles is None


def test_rtl_equals_emulator(network, data):
    results = []
    for device in ("emulator", "rtl"):
        trained = trainer(copy.deepcopy(network), device)
        history = trained.fit(loader(data), 2, progress=False)
        results.append((bits(trained), history))
        trained.accelerator.close()
    (emulated, _), (simulated, history) = results
    same(simulated, emulated)
    second = history.epochs[1]
    assert second.phases == {"GP": 2, "BP": 1}
    assert 0 < second.counters["CORE0_VECTORS"] < second.cycles < history.epochs[0].cycles
    assert second.bytes == second.counters["READ_BYTES"] + second.counters["WRITE_BYTES"]


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.8, nesterov=True),
        lambda parameters: BrakedSGD(parameters, lr=0.1, momentum=0.8, rho=1.0),
    ],
    ids=["AdamW", "Nesterov", "braked"],
)
def test_optimizers_and_losses(network, data, optimizer):
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)
    trained = trainer(
        network, method="bp", check=True, loss=loss, optimizer=optimizer(network.parameters())
    )
    assert trained.fit(loader(data), 1, progress=False).epochs[0].loss > 0


def test_echo(network, data, tmp_path):
    """Two more steps of the head behind every batch, every number as golden's."""
    trained = trainer(network, method="bp", check=True, echo=2)
    plain = trainer(copy.deepcopy(network), method="bp")
    for one in (trained, plain):
        one.fit(loader(data), 1, progress=False, checkpoint=tmp_path / "one.pt")
    assert not np.array_equal(bits(trained)["5.weight"], bits(plain)["5.weight"])
    with pytest.raises(ValueError, match="method bp, the trainer has bp with an echo of 2"):
        trained.resume(tmp_path / "one.pt")


class Interrupted(Exception):
    """Something has ended the host's process."""


class Interrupting:
    """A loader in random order whose second epoch ends behind its first batch."""

    def __init__(self, data):
        self._data, self._epochs = data, 0

    def __iter__(self):
        self._epochs += 1
        for number, batch in enumerate(loader(self._data, shuffle=True)):
            if (self._epochs, number) == (2, 1):
                raise Interrupted
            yield batch


@pytest.mark.parametrize(("method", "device"), [("bp", "emulator"), ("adagp", "rtl")])
def test_interrupted_training_goes_on(network, data, method, device, tmp_path, seed):
    """On the device where it was interrupted, or on another one."""
    whole, half = (trainer(copy.deepcopy(network), method=method) for _ in range(2))
    torch.manual_seed(seed)
    whole.fit(loader(data, shuffle=True), 2, progress=False)
    torch.manual_seed(seed)
    path = tmp_path / "half.pt"
    with pytest.raises(Interrupted):
        half.fit(Interrupting(data), 2, checkpoint=path, checkpoint_every=1, progress=False)
    resumed = trainer(network, device, method=method, check=True)
    resumed.resume(path)
    assert (resumed.epoch, resumed.batch) == (1, 1)
    history = resumed.fit(loader(data, shuffle=True), 2, progress=False)
    same(bits(resumed), bits(whole))
    assert [epoch.loss for epoch in history.epochs] == [e.loss for e in whole.history.epochs]
    resumed.accelerator.close()
    other = trainer(network, method="bp" if method == "adagp" else "adagp")
    with pytest.raises(ValueError, match=f"was written with method {method}, the trainer has"):
        other.resume(path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match="is no checkpoint of this version"):
        resumed.resume(path)


def test_a_deliberate_difference_is_found(network, data):
    """A weight in the accelerator's memory changes behind golden's back."""
    trained = trainer(network, method="bp", check=True)
    images, labels = next(iter(loader(data)))
    trained.step(images, labels)
    session = trained.session
    tensor = session.program.parameters["5.weight"].tensors["master"]
    value = trained.accelerator.get(session.window, tensor.offset, 4)
    trained.accelerator.put(session.window, tensor.offset, bytes([value[0] ^ 0x40, *value[1:]]))
    with pytest.raises(DifferenceFound, match=r"batch 1: weights 5.weight\[0, 0\] is 0x") as found:
        trained.step(images, labels)
    actual, expected = found.value.differences[0].codes
    assert expected != actual


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"method": "bpp"}, ValueError, "method must be one of bp, adagp, not 'bpp'"),
        ({"method": "bp", "schedule": SCHEDULE}, ValueError, "schedule is for method 'adagp'"),
        ({"echo": 2}, ValueError, "echo is for method 'bp', not for 'adagp'"),
        ({"method": "bp", "echo": -1}, ValueError, "echo must be an integer of at least 0, not -1"),
        ({"loss": "hinge"}, CompileError, "loss must be one of"),
        ({"scheduler_every": "step"}, ValueError, "scheduler_every must be epoch or batch"),
    ],
)
def test_wrong_arguments(network, data, change, error, message):
    with pytest.raises(error, match=message):
        trainer(network, **change).fit(loader(data), 1, progress=False)


def test_wrong_optimizers(network):
    with pytest.raises(CompileError, match="optimizer must be one of .* not RMSprop"):
        trainer(network, optimizer=torch.optim.RMSprop(network.parameters()))
    optimizer = torch.optim.SGD(list(network.parameters())[1:], lr=0.1)
    with pytest.raises(ValueError, match=r"the optimizer has no 0\.weight"):
        trainer(network, optimizer=optimizer)
    groups = [{"params": [p], "lr": 0.1 * n} for n, p in enumerate(network.parameters(), 1)]
    with pytest.raises(ValueError, match="all parameters must have the same lr, not 0.1 and 0.2"):
        trainer(network, optimizer=torch.optim.SGD(groups))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x, y: (x[0], y[0]), "images must be .N, C, H, W. or vectors"),
        (lambda x, y: (x.permute(0, 2, 3, 1), y), r"images must be of shape .N, 2, 4, 4.*permute"),
        (lambda x, y: (x, y[1:]), "5 images come with 4 labels"),
        (lambda x, y: (x, y + 3), r"labels\[\d\] is \d; it must be from 0 to 2"),
        (lambda x, y: (x * torch.nan, y), r"images\[0, 0, 0, 0\] is nan, which is not finite"),
        (lambda x, y: (x[:0], y[:0]), "a batch must have at least one image"),
        (lambda x, y: x, "a loader must yield pairs .images, labels., not Tensor"),
    ],
)
def test_wrong_batches(network, data, spoil, message):
    trained = trainer(network, method="bp")
    first = next(iter(loader(data)))
    with pytest.raises(ValueError, match=message):
        trained.fit([first, spoil(*first)], 1, progress=False)
    with pytest.raises(ValueError, match="the loader yields no batch"):
        trainer(Net(), method="bp").fit([], 1, progress=False)


def test_two_trainers_share_an_accelerator(network, data):
    """Each ends the other's open run; so does a device that is opened again with more memory."""
    alone = trainer(copy.deepcopy(network), check=True)
    alone.fit(loader(data), 1, progress=False)
    first = trainer(network, check=True)
    second = trainer(copy.deepcopy(network), check=True)
    second.accelerator = first.accelerator
    for batch in loader(data):
        first.step(*batch)
        second.step(*batch)
        first.accelerator.window(2 * first.accelerator.device.memory_bytes)
    same(bits(first), bits(alone))
    same(bits(second), bits(alone))


def test_inputs_of_the_next_batch_are_written_early(network, data, monkeypatch):
    """While a batch is computed, if the next one has the same program and is in order; the bits are
    those of batches that come one by one."""
    said = []

    def recorded(owner, name, say):
        before = getattr(owner, name)

        def call(self, *arguments):
            said.append(say(*arguments))
            return before(self, *arguments)

        monkeypatch.setattr(owner, name, call)

    other = trainer(copy.deepcopy(network))
    batches = [*list(loader(data))[:2], *loader(data)]
    for images, labels in batches:
        other.step(images, labels)
    recorded(PredictionSession, "_supply", lambda number, *_: number)
    recorded(Connection, "wait", lambda: "wait")
    early = trainer(network)
    early.fit(batches, 1, progress=False)
    assert said[:8] == [0, 1, "wait", 2, "wait", 3, "wait", "wait"]
    same(bits(early), bits(other))
    # A label that is no class is refused when it is the turn of its batch.
    bad = [batches[0], (batches[0][0], batches[0][1] + 9)]
    said.clear()
    with pytest.raises(ValueError, match="labels"):
        early.fit(bad, 2, progress=False)
    assert said.count("wait") >= 1 and early.batch == 1


def test_with_following():
    def failing():
        yield 1
        yield 2
        raise KeyError

    seen = []
    with pytest.raises(KeyError):
        seen.extend(with_following(failing()))
    assert list(with_following([])) == []
    assert list(with_following("ab")) == [("a", "b"), ("b", None)]
