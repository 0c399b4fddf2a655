"""ADA-GP's trainer on small networks: each phase against plain torch and plain formulas."""

import io
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from algorithms.adagp.reorganize import reorganize
from algorithms.adagp.trainer import AdaGPTrainer, Phase, PredictorConfig, ScheduleConfig
from golden.prediction.schedule import Stage

RATE, MOMENTUM = 0.05, 0.9
#: One batch of Phase BP, one of Phase GP, over and over.
ALTERNATE = ScheduleConfig(warm_up=1, ladder=(Stage(gp=1, epochs=None),))
ALWAYS_GP = ScheduleConfig(warm_up=0, ladder=(Stage(gp=1000, epochs=None),))


class Small(nn.Module):
    """A residual connection, a grouped convolution, batch normalisation, two linear layers."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 6, 3, padding=1)
        self.normalize = nn.BatchNorm2d(6)
        self.second = nn.Conv2d(6, 6, (1, 3), padding=(0, 1), groups=3, bias=False)
        self.hidden = nn.Linear(6 * 4, 7)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(7, 3)

    def forward(self, x):
        x = self.relu(self.normalize(self.first(x)))
        x = functional.avg_pool2d(x + self.second(x), 3)
        return self.head(self.relu(self.hidden(x.flatten(1))))


PREDICTED = ("first", "second", "hidden")


def make(seed, *, rate=RATE, optimizer=None, **options):
    torch.manual_seed(seed)
    model = Small()
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=rate, momentum=MOMENTUM)
    return model, AdaGPTrainer(model, optimizer, **options)


def batches(rng, count, size=5):
    return [
        (
            torch.from_numpy(rng.standard_normal((size, 2, 6, 6)).astype(np.float32)),
            torch.from_numpy(rng.integers(0, 3, size)),
        )
        for _ in range(count)
    ]


def snapshot(model):
    return {key: value.detach().clone() for key, value in model.state_dict().items()}


def assert_same(actual, expected):
    """Bit for bit; names the first element that differs."""
    assert actual.keys() == expected.keys()
    for key, value in expected.items():
        got, value = actual[key].numpy(), value.numpy()
        wrong = np.argwhere(got != value)
        assert not len(wrong), (key, *wrong[0], got[tuple(wrong[0])], value[tuple(wrong[0])])


def train(trainer, data, epochs=1):
    for _ in range(epochs):
        results = [trainer.step(*batch) for batch in data]
        trainer.end_epoch()
    return results


@pytest.mark.parametrize(
    "predictor", [None, PredictorConfig(), PredictorConfig.paper(), PredictorConfig(source="mean")]
)
def test_backpropagation_is_plain_torch(rng, seed, predictor):
    """The predictor learns beside the model and changes no bit of it."""
    data = batches(rng, 6)
    model, trainer = make(seed, predictor=predictor, schedule=ScheduleConfig())
    results = train(trainer, data)

    torch.manual_seed(seed)
    plain = Small()
    optimizer = torch.optim.SGD(plain.parameters(), lr=RATE, momentum=MOMENTUM)
    for (images, labels), result in zip(data, results):
        optimizer.zero_grad()
        loss = functional.cross_entropy(plain(images), labels)
        loss.backward()
        optimizer.step()
        assert result.phase is Phase.WARM_UP and result.loss == loss.item()
        names = () if predictor is None else ("hidden", "second", "first")  # the last one first
        head = predictor is not None and predictor.head == "predicted"
        assert tuple(result.layers) == (("head", *names) if head else names)
    assert_same(snapshot(model), snapshot(plain))


def test_phase_gp_makes_no_backward_pass(rng, seed):
    """Backward hooks of all layers count; in Phase BP they do run."""
    model, trainer = make(seed, schedule=ALTERNATE)
    model.relu.inplace = False  # torch's hooks allow nothing else
    calls = []
    for name, module in model.named_modules():
        if not list(module.children()) and not isinstance(module, nn.ReLU):
            module.register_full_backward_hook(lambda *_, name=name: calls.append(name))
    data = batches(rng, 4)
    for images, _ in data:
        images.requires_grad_()  # or torch warns that the first layer's hook has nothing to pass on
    train(trainer, data[:2])
    assert len(calls) == 2 * 5
    for batch, expected in zip(data, ("GP", "BP", "GP", "BP")):
        calls.clear()
        result = trainer.step(*batch)
        assert result.phase.name == expected
        assert len(calls) == (5 if expected == "BP" else 0), (expected, calls)
        assert (result.loss is None) == (expected == "GP") and not result.outputs.requires_grad


def predicted_gradient(trainer, name, outputs):
    """The formula of docs/algorithm.md, from the trainer's numbers, in float64 where it can be."""
    layer = next(layer for layer in trainer.layers if layer.name == name)
    source, values = trainer.source, trainer.source.statistics[layer.number]
    maps = reorganize(layer.maps(outputs), bias=layer.module.bias, map_size=4)
    maps = (maps - values["mean"]) / math.sqrt(values["variance"] + 1e-8)
    with torch.no_grad():
        guess = source.predictor(maps, layer.shape[1])
    return (guess * math.sqrt(values["square"]) * layer.gate.value).reshape(
        layer.module.weight.shape
    )


def test_phase_gp_by_the_formula(rng, seed):
    """v = 0.9 v + c s o; W = W - lr v; exact head; everything else but running statistics rests."""
    data = batches(rng, 2)
    model, trainer = make(
        seed, schedule=ALTERNATE, rate=RATE / 50, predictor=PredictorConfig(learning_rate=0.02)
    )
    for _ in range(40):  # the same batch, so that the gates open
        trainer.step(*data[0])
    trainer.end_epoch()
    assert all(layer.gate.value > 0 for layer in trainer.layers)
    images, labels = data[1]
    before = snapshot(model)
    velocity = {
        name: trainer.optimizer.state[value]["momentum_buffer"].clone()
        for name, value in model.named_parameters()
    }
    outputs = {}
    for name in (*PREDICTED, "head"):
        model.get_submodule(name).register_forward_hook(
            lambda module, inputs, result, name=name: outputs.update(
                {name: (inputs[0].clone(), result.clone())}
            )
        )
    source = {key: value.clone() for key, value in trainer.source.predictor.state_dict().items()}
    result = trainer.step(images, labels)
    assert result.phase is Phase.GP and result.held == () and result.layers == {}
    assert torch.equal(result.outputs, outputs["head"][1])
    assert_same(trainer.source.predictor.state_dict(), source)

    after = snapshot(model)
    gradients = {
        f"{name}.weight": predicted_gradient(trainer, name, outputs[name][1]) for name in PREDICTED
    }
    features, logits = outputs["head"]
    hot = functional.one_hot(labels, 3)
    delta = (torch.softmax(logits.detach(), 1) - hot) / len(labels)
    gradients["head.weight"], gradients["head.bias"] = delta.T @ features, delta.sum(0)
    for name, value in before.items():
        if name in gradients:
            step = RATE / 50 * (MOMENTUM * velocity[name] + gradients[name])
            assert gradients[name].any(), name
            # Some roundings of a step and one of the weight.
            bound = 2**-18 * step.abs().max() + 2**-23 * value.abs().max()
            assert torch.allclose(after[name], value - step, rtol=0, atol=bound), name
            assert not torch.equal(after[name], value), name
        elif "running" in name or "num_batches" in name:
            assert not torch.equal(after[name], value), name
        else:
            assert torch.equal(after[name], value), name


@pytest.mark.parametrize("source", ["last", "mean"])
def test_remembered_gradients(rng, seed, source):
    """Without momentum Phase GP moves a weight by the rate times what is remembered."""
    data = batches(rng, 4)
    torch.manual_seed(seed)
    model = Small()
    trainer = AdaGPTrainer(
        model,
        torch.optim.SGD(model.parameters(), lr=1.0),
        predictor=PredictorConfig(source=source, gate=False, running=0.75),
        schedule=ALTERNATE,
    )
    seen = []
    for batch in data[:3]:
        trainer.step(*batch)
        seen.append(model.second.weight.grad.clone())
    trainer.end_epoch()
    mean = 0.75 * (0.75 * seen[0] + 0.25 * seen[1]) + 0.25 * seen[2]
    before = model.second.weight.detach().clone()
    trainer.step(*data[3])
    expected = before - (seen[2] if source == "last" else mean)
    assert torch.equal(model.second.weight, expected)


def test_coasting_is_momentum_alone_and_what_a_shut_gate_does(rng, seed):
    """A predictor that has never been right leaves the bits that no prediction leaves."""
    data = batches(rng, 2)
    after = []
    for config in (PredictorConfig(source="coast"), PredictorConfig()):
        model, trainer = make(seed, predictor=config, schedule=ALTERNATE)
        trainer.step(*data[0])
        trainer.end_epoch()
        weight = model.first.weight.detach().clone()
        velocity = trainer.optimizer.state[model.first.weight]["momentum_buffer"].clone()
        trainer.step(*data[1])
        step = RATE * MOMENTUM * velocity
        bound = 2**-22 * step.abs().max() + 2**-23 * weight.abs().max()
        assert torch.allclose(model.first.weight, weight - step, rtol=0, atol=bound)
        after.append(snapshot(model))
    assert_same(*after)


@pytest.mark.parametrize("rate", [3.0, 100.0])
def test_a_predictor_that_diverges_does_no_harm(rng, seed, rate):
    """Its layers coast, or rest where a guess is infinite."""
    data = batches(rng, 30)
    model, trainer = make(seed, predictor=PredictorConfig(learning_rate=rate), schedule=ALTERNATE)
    results = train(trainer, data)
    assert min(result.mse for result in results[-1].layers.values()) > 1e6
    before = snapshot(model)
    velocity = {
        name: trainer.optimizer.state[model.get_submodule(name).weight]["momentum_buffer"].clone()
        for name in PREDICTED
    }
    held = trainer.step(*data[0]).held
    for name in PREDICTED:
        old, new = before[f"{name}.weight"], model.get_submodule(name).weight
        step = 0 * velocity[name] if name in held else RATE * MOMENTUM * velocity[name]
        bound = 2**-22 * step.abs().max() + 2**-23 * old.abs().max()
        assert torch.allclose(new, old - step, rtol=0, atol=bound), name


@pytest.mark.parametrize("head", ["exact", "held", "predicted"])
def test_head(rng, seed, head):
    model, trainer = make(seed, predictor=PredictorConfig(head=head), schedule=ALTERNATE)
    data = batches(rng, 3)
    train(trainer, data[:2])
    before = snapshot(model)
    trainer.step(*data[2])
    moved = {key for key, value in snapshot(model).items() if not torch.equal(value, before[key])}
    expected = {
        "exact": {"head.weight", "head.bias"}, "held": set(), "predicted": {"head.weight"}
    }[head]  # fmt: skip
    assert {key for key in moved if key.startswith("head")} == expected


@pytest.mark.parametrize("frozen", ["weight", "bias"])
def test_a_frozen_parameter_of_the_head_stays(rng, seed, frozen):
    model, trainer = make(seed, schedule=ALWAYS_GP)
    getattr(model.head, frozen).requires_grad_(False)
    before = snapshot(model)
    for images, labels in batches(rng, 4):
        trainer.step(images, labels)
    for name, values in model.head.named_parameters():
        assert torch.equal(values, before[f"head.{name}"]) == (name == frozen), name


def test_without_a_predictor_phase_gp_is_skipped(rng, seed):
    model, trainer = make(seed, predictor=None, schedule=ALWAYS_GP)
    before = snapshot(model)
    result = trainer.step(*batches(rng, 1)[0])
    assert result.phase is Phase.GP and result.outputs is None and trainer.batch == 1
    assert_same(snapshot(model), before)


def test_no_guess_holds_the_layers(rng, seed):
    """Phase GP before the first true gradient: the head learns, the rest is left as it is."""
    model, trainer = make(seed, schedule=ALWAYS_GP)
    before = snapshot(model)
    result = trainer.step(*batches(rng, 1)[0])
    assert result.held == PREDICTED
    for name in PREDICTED:
        assert torch.equal(model.get_submodule(name).weight, before[f"{name}.weight"]), name
    assert not torch.equal(model.head.weight, before["head.weight"])


def test_a_guess_that_is_not_finite_holds_its_layer(rng, seed):
    model, trainer = make(seed, schedule=ALTERNATE)
    data = batches(rng, 3)
    train(trainer, data[:2])
    trainer.source.statistics[1]["mean"] = math.nan
    before = snapshot(model)
    result = trainer.step(*data[2])
    assert result.held == ("second",)
    assert torch.equal(model.second.weight, before["second.weight"])
    assert not torch.equal(model.first.weight, before["first.weight"])


def test_batches_that_are_not_finite_teach_nothing(rng, seed):
    model, trainer = make(seed)
    data = batches(rng, 2)
    trainer.step(*data[0])
    state = trainer.state_dict()["source"]
    predictor = {key: value.clone() for key, value in state.items() if "extra" not in key}
    statistics = [dict(values) for values in trainer.source.statistics]
    gates = [(layer.gate.product, layer.gate.square) for layer in trainer.layers]
    data[1][0][0, 0, 0, 0] = math.nan
    trainer.step(*data[1])
    assert torch.isnan(model.first.weight).any(), "torch's own step is not ours to guard"
    assert trainer.source.statistics == statistics
    assert [(layer.gate.product, layer.gate.square) for layer in trainer.layers] == gates
    after = trainer.state_dict()["source"]
    assert_same({key: after[key] for key in predictor}, predictor)


def test_predictor_learns_what_can_be_learnt(rng, seed):
    """The same batch and a rate of next to nothing: the gradient is always the same."""
    _, trainer = make(seed, rate=1e-9, predictor=PredictorConfig(learning_rate=0.02))
    batch = batches(rng, 1)[0]
    results = [trainer.step(*batch).layers for _ in range(300)]
    # Some of the hidden layer's ReLUs are shut: their channels look alike and learn slowly.
    for name, cosine in (("first", 0.95), ("second", 0.95), ("hidden", 0.25)):
        first, last = results[0][name], results[-1][name]
        assert first.cosine == first.gate == 0 and first.mape == 100, name
        assert last.cosine > cosine and last.gate > 0.8, (name, last)
        assert last.mse < (1 - cosine**2) * first.mse, (name, last)


@pytest.mark.parametrize(
    "predictor",
    [
        PredictorConfig(),
        PredictorConfig(source="mean", gate=False),
        PredictorConfig.paper(milestones=(1, 2)),
        None,
    ],
)
def test_resuming_changes_no_bit(rng, seed, predictor):
    data, schedule = batches(rng, 5), ScheduleConfig(warm_up=1)
    model, trainer = make(seed, predictor=predictor, schedule=schedule)
    train(trainer, data)
    trainer.step(*data[0])
    file = io.BytesIO()
    torch.save(trainer.state_dict(), file)
    file.seek(0)
    again, resumed = make(seed + 1, predictor=predictor, schedule=schedule)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    for part in (trainer, resumed):
        for batch in data[1:]:
            part.step(*batch)
        part.end_epoch()
        train(part, data)
    assert (resumed.epoch, resumed.batch) == (trainer.epoch, trainer.batch) == (3, 0)
    assert_same(snapshot(again), snapshot(model))
    if predictor is not None and predictor.source == "predictor":
        assert_same(*(part.source.predictor.state_dict() for part in (resumed, trainer)))
        assert trainer.source.statistics == resumed.source.statistics


def test_hooks_leave_no_trace(rng, seed):
    model, trainer = make(seed, schedule=ALTERNATE)
    train(trainer, batches(rng, 1), epochs=2)
    assert not any(module._forward_hooks for module in model.modules())


def test_chosen_layers(rng, seed):
    _, trainer = make(seed, layers=("second", "head"))
    assert [layer.name for layer in trainer.layers] == ["second"] and trainer.head[0] == "head"
    assert set(trainer.step(*batches(rng, 1)[0]).layers) == {"second"}


def test_messages(rng, seed):
    with pytest.raises(ValueError, match="layers: none, normalize must be Conv2d or Linear with a"):
        make(seed, layers=("normalize", "first", "none"))
    with pytest.raises(ValueError, match="no Conv2d or Linear to predict besides its head"):
        make(seed, layers=("head",))
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    inputs, labels = torch.ones(2, 4), torch.zeros(2, dtype=torch.int64)
    softmax = nn.Sequential(model, nn.LogSoftmax(1))
    with pytest.raises(ValueError, match="head='exact' needs the output of the last .* 0.2, to be"):
        AdaGPTrainer(softmax, optimizer, loss=functional.nll_loss).step(inputs, labels)
    shut = nn.Sequential(model, nn.ReLU(inplace=True))
    with pytest.raises(ValueError, match="head='exact' needs the output"):
        AdaGPTrainer(shut, optimizer).step(inputs, labels)
    model[1].weight = model[0].weight
    with pytest.raises(ValueError, match="layers: 0 and 1 share a weight; leave both out"):
        AdaGPTrainer(model, optimizer)
    model[1] = model[0]
    with pytest.raises(ValueError, match="layer 0 runs twice in a forward pass; leave it out"):
        AdaGPTrainer(model, optimizer).step(inputs, labels)
