"""The digits task: data, training, its cache, accuracy in float32 and on bit patterns.

Covers: algorithms/common/float_training.py.
"""

import numpy as np
import pytest
import torch

from algorithms.__main__ import main
from algorithms.common.float_training import Recipe
from algorithms.networks import digits_cnn
from golden.inference.network import Network


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("weights") / "digits.npz"


@pytest.fixture(scope="module")
def model(request, cache):
    return digits_cnn.trained_model(request.config.getoption("seed"), path=cache)


def weights_of(model):
    return {key: value.numpy().copy() for key, value in model.state_dict().items()}


def assert_same_weights(a, b):
    for key, expected in weights_of(a).items():
        assert (weights_of(b)[key].view(np.uint32) == expected.view(np.uint32)).all(), key


def test_split(seed):
    data, again, other = digits_cnn.load(seed), digits_cnn.load(seed), digits_cnn.load(seed + 1)
    assert data.test_images.shape == (digits_cnn.TEST_IMAGES, 8, 8, 1)
    assert len(data.train_images) == len(data.train_labels) == 1797 - digits_cnn.TEST_IMAGES
    assert data.train_images.dtype == data.test_images.dtype == np.float32
    assert data.train_images.min() == 0 and data.train_images.max() == 1
    assert (data.test_images == again.test_images).all()
    assert (data.test_images != other.test_images).any()
    every = np.concatenate([data.train_images, data.test_images]).reshape(1797, 64)
    reference = digits_cnn.load_digits().data.astype(np.float32) / 16
    assert (every[np.lexsort(every.T)] == reference[np.lexsort(reference.T)]).all()
    assert set(data.test_labels) == set(range(10))


def test_size_of_the_network():
    network = Network(digits_cnn.DigitsCNN(), input_shape=digits_cnn.INPUT_SHAPE, rows=4)
    products = network.products.values()
    assert sum(product.macs for product in products) == 58736
    assert [product.output_shape[0] for product in products] == [6, 10, 14, 10]


@pytest.mark.parametrize("operand_format", ["bf16", "int8"])
def test_accuracy(model, seed, operand_format):
    """The task is learnt, and the operand format costs at most two images in a hundred."""
    data = digits_cnn.load(seed)
    with torch.no_grad():
        reference = model(digits_cnn.to_torch(data.test_images)).numpy()
    own = Network(
        model,
        input_shape=digits_cnn.INPUT_SHAPE,
        rows=4,
        operand_format=operand_format,
        calibration=data.calibration_images,
    ).predict(data.test_images)
    accuracies = [digits_cnn.accuracy(x, data.test_labels) for x in (reference, own)]
    assert accuracies[0] >= 0.97
    assert abs(accuracies[1] - accuracies[0]) <= 0.02


def test_cache_is_read(model, cache, seed):
    lines = []
    again = digits_cnn.trained_model(seed, path=cache, report=lines.append)
    assert lines == []
    assert_same_weights(model, again)
    assert not again.training


def test_training_is_reproducible_and_leaves_no_trace(tmp_path, seed):
    state = torch.get_rng_state()
    lines = []
    first = digits_cnn.trained_model(seed, epochs=2, path=tmp_path / "a", report=lines.append)
    assert torch.equal(state, torch.get_rng_state())
    assert len(lines) == 2 and lines[1].startswith("epoch   2/2  loss ")
    torch.rand(3)
    second = digits_cnn.trained_model(seed, epochs=2, path=tmp_path / "b")
    assert_same_weights(first, second)
    other = digits_cnn.trained_model(seed + 1, epochs=2, path=tmp_path / "c")
    assert (weights_of(other)["0.weight"] != weights_of(first)["0.weight"]).any()


@pytest.mark.parametrize("damage", ["other recipe", "cut", "rubbish", "empty"])
def test_useless_cache_is_replaced(tmp_path, seed, damage):
    path = tmp_path / "weights.npz"
    digits_cnn.trained_model(seed + (damage == "other recipe"), epochs=1, path=path)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    elif damage == "rubbish":
        path.write_text("not weights")
    elif damage == "empty":
        path.write_bytes(b"")
    lines = []
    digits_cnn.trained_model(seed, epochs=1, path=path, report=lines.append)
    assert len(lines) == 1
    digits_cnn.trained_model(seed, epochs=1, path=path, report=lines.append)
    assert len(lines) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_recipe_messages():
    with pytest.raises(ValueError, match="epochs must be a positive integer, not 0; batch must"):
        Recipe(epochs=0, batch=-1)
    with pytest.raises(ValueError, match="seed must be a non-negative integer, not -1"):
        Recipe(seed=-1)


def test_accuracy_counts_first_maxima():
    assert digits_cnn.accuracy([[0, 1, 1], [2, 0, 0], [0, 0, 3]], [1, 0, 0]) == pytest.approx(2 / 3)


def test_command_line(tmp_path, seed, capsys):
    path = tmp_path / "weights.npz"
    arguments = ["digits", "--seed", str(seed), "--epochs", "1", "--output", str(path)]
    assert main(arguments) == 0
    output = capsys.readouterr().out
    assert "torch float32" in output and "bit-exact bf16" in output and path.exists()
    assert main(["digits", "--epochs", "0"]) == 2
    assert capsys.readouterr().err == "algorithms: epochs must be a positive integer, not 0\n"
    (tmp_path / "file").touch()
    arguments[-1] = str(tmp_path / "file" / "weights.npz")
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("algorithms: ")
