"""What a step's function is given for a name, a product, a function, or nothing."""

from compiler.kernels.convolution.conv_geometry import Convolution
from compiler.tensors.tensor import Tensor
from compiler.training.named_tensors import NamedConvolution, resolve

TENSORS = {
    name: Tensor.dense(name, shape, kind="bf16", pitch=8, offset=offset)
    for offset, (name, shape) in enumerate(
        {"x": (1, 6, 7, 3), "y": (1, 2, 3, 5), "w": (3, 3, 3, 5), "b": (1, 1, 2, 4)}.items()
    )
}
NAMES = {"x": "x", "y": "y", "weights": "w", "bias": "b"}
SIZES = {"stride": (2, 3), "padding": (1, 2), "dilation": (1, 2), "groups": 1}


def test_a_name_is_its_tensor():
    assert resolve("y", TENSORS) is TENSORS["y"]


def test_nothing_stays_nothing():
    assert resolve(None, TENSORS) is None


def test_a_function_gets_all_tensors():
    assert resolve(dict, TENSORS) == TENSORS
    assert resolve(lambda tensors: tensors["w"].pitch, TENSORS) == 8


def test_a_product_gets_its_tensors_and_keeps_its_sizes():
    product = resolve(NamedConvolution(name="conv", **NAMES, **SIZES), TENSORS)
    places = {member: TENSORS[name] for member, name in NAMES.items()}
    assert product == Convolution(name="conv", **places, **SIZES)


def test_a_product_without_a_bias():
    product = resolve(NamedConvolution(name="conv", **(NAMES | {"bias": None})), TENSORS)
    assert product.bias is None
    assert (product.stride, product.padding, product.dilation) == ((1, 1), (0, 0), (1, 1))
