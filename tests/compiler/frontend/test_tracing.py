"""What torch.fx cannot trace, and what it would not see: one message that says where.

Covers: compiler/frontend/torch_errors.py, golden/frontend/tracing.py.
"""

import threading

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm

from compiler.errors import CompileError
from compiler.frontend.torch_graph import trace
from golden.frontend import torch_graph as golden
from tests.compiler.frontend.forward import Forward

SHAPE = (2, 4, 4)


def refusal(model, shape=SHAPE):
    """The message of a refusal, and what caused it."""
    with pytest.raises(CompileError) as caught:
        trace(model, shape)
    assert "\n" not in str(caught.value)
    return str(caught.value), caught.value.__cause__


def assigned(self, x):
    x[:, 0] = 0
    return x


def counted(self, x):
    for _ in range(x.shape[1]):
        x = x.relu()
    return x


#: What a forward does, the line that is named, what was raised.
UNTRACEABLE = {
    "a tensor of a size": (
        lambda self, x: x + torch.zeros(x.shape[2], x.shape[3]),
        "torch.zeros(x.shape[2], x.shape[3])",
        TypeError,
    ),
    "an assignment": (assigned, "x[:, 0] = 0", TypeError),
    "a loop": (counted, "for _ in range(x.shape[1]):", TypeError),
    "a number": (lambda self, x: x * int(x.shape[1]), "int(x.shape[1])", TypeError),
    "a length": (lambda self, x: x * len(x), "len(x)", RuntimeError),
}  # fmt: skip


@pytest.mark.parametrize("name", UNTRACEABLE)
def test_the_line_is_named(name):
    forward, code, kind = UNTRACEABLE[name]
    message, cause = refusal(Forward(forward))
    start = f"the model Forward cannot be traced by torch.fx: {kind.__name__}: "
    assert message.startswith(start) and type(cause) is kind
    assert " of test_tracing.py: " in message and code in message
    assert "sizes go to view, reshape, slices and arithmetic, not to range, int or len" in message


def test_what_a_model_raises_itself():
    def forward(self, x):
        return self.missing(x)

    message, cause = refusal(Forward(forward))
    assert "AttributeError: 'Forward' object has no attribute 'missing' (line " in message
    assert message.endswith(" of test_tracing.py: return self.missing(x))")
    assert isinstance(cause, AttributeError)
    message, _ = refusal(Forward(lambda self, x: x if x.sum() > 0 else -x))
    assert "its forward must not depend on data: " in message and "test_tracing.py" in message


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda self, x: x * x.shape[7], r"layer getitem (getitem): tuple index out of range"),
        (lambda self, x: x * x.size(7), r"layer size (size): Dimension out of range"),
        (lambda self, x: x.nothing(), "layer nothing (nothing): 'Tensor' object has no attribute"),
        (lambda self, x: x + self.own.view(3), "layer view (view): shape '[3]' is invalid"),
    ],
)
def test_steps_that_torch_refuses(forward, message):
    model = Forward(forward)
    model.register_buffer("own", torch.ones(4))
    found, cause = refusal(model)
    assert found.startswith(message) and isinstance(cause, Exception)


def test_what_cannot_be_copied():
    """The innermost module that has it is named."""
    inner = nn.Sequential(nn.ReLU())
    inner[0].lock = threading.Lock()
    message, cause = refusal(nn.Sequential(nn.Conv2d(2, 2, 1), inner))
    assert isinstance(cause, TypeError)
    assert (
        "copy.deepcopy can copy, but layer 1.0 (ReLU) is none: TypeError: cannot pickle" in message
    )


def with_hook(register):
    """A network of two layers, the second with a hook."""
    model = nn.Sequential(nn.Conv2d(2, 2, 1), nn.Conv2d(2, 2, 1))
    getattr(model[1], register)(lambda *_: None)
    return model


def pruned():
    model = nn.Sequential(nn.ReLU(), nn.Conv2d(2, 2, 1))
    prune.l1_unstructured(model[1], "weight", 2)
    return model


HOOKED = {
    "forward": (lambda: with_hook("register_forward_hook"), "a forward hook, <lambda>"),
    "pre": (lambda: with_hook("register_forward_pre_hook"), "a forward pre-hook, <lambda>"),
    "backward": (lambda: with_hook("register_full_backward_hook"), "a backward hook, <lambda>"),
    "backward pre": (
        lambda: with_hook("register_full_backward_pre_hook"), "a backward pre-hook, <lambda>",
    ),
    "pruned": (pruned, "a forward pre-hook, L1Unstructured"),
    "spectral": (
        lambda: nn.Sequential(nn.ReLU(), spectral_norm(nn.Conv2d(2, 2, 1))),
        "a forward pre-hook, SpectralNorm",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOOKED)
def test_hooks(name):
    """The accelerator would not call them, nor would golden."""
    build, what = HOOKED[name]
    model = build()
    message, _ = refusal(model)
    assert message.startswith(f"layer 1 (Conv2d): it has {what}, which the accelerator would not")
    assert "remove it first" in message
    with pytest.raises(ValueError, match="Layer 1 has hooks"):
        golden.trace(model, SHAPE)


def with_weight_hook():
    model = nn.Sequential(nn.ReLU(), nn.Conv2d(2, 2, 1))
    model[1].weight.register_hook(lambda gradient: 2 * gradient)
    return model


def with_another_forward():
    model = nn.Sequential(nn.ReLU(), nn.Conv2d(2, 2, 1))
    model[1].forward = lambda x: x
    return model


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (with_weight_hook, "its weight has a hook, which the accelerator would not call"),
        (with_another_forward, "its forward has been replaced"),
    ],
)
def test_what_torch_fx_would_not_see(make, reason):
    message, _ = refusal(make())
    assert message.startswith(f"layer 1 (Conv2d): {reason}")
    with pytest.raises(ValueError, match="Layer 1 has hooks"):
        golden.trace(make(), SHAPE)


def test_a_forward_that_torch_fx_sees():
    """Of a module that is no layer of torch.nn."""
    model = Forward(lambda self, x: self.inner(x), inner=Forward(lambda self, x: x))
    model.inner.forward = torch.relu
    assert [layer.kind for layer in trace(model, SHAPE)] == ["input", "relu"]


def test_a_hook_of_the_whole_model():
    model = nn.Sequential(nn.ReLU())
    handle = model.register_forward_hook(lambda *_: None)
    assert refusal(model)[0].startswith("the model Sequential: it has a forward hook")
    handle.remove()
    assert len(trace(model, SHAPE)) == 2


def test_parameters_that_are_computed():
    model = nn.Sequential(parametrizations.weight_norm(nn.Conv2d(2, 2, 1)))
    message, _ = refusal(model)
    assert message.startswith("layer 0 (ParametrizedConv2d): it has parametrizations, of weight,")
    nn.utils.parametrize.remove_parametrizations(model[0], "weight")
    assert trace(model, SHAPE)[1].kind == "convolution"


def test_lazy_modules():
    model = nn.Sequential(nn.ReLU(), nn.LazyConv2d(3, 1))
    message, _ = refusal(model)
    assert message.startswith("layer 1 (LazyConv2d): its parameters have no shape before")
    assert "call the model once" in message
    model(torch.zeros(1, *SHAPE))
    assert trace(model, SHAPE)[2].shape == (3, 4, 4)


def test_compiled_modules():
    """torch.compile makes a module around the one that it is given, under this name."""

    class OptimizedModule(nn.Module):
        def __init__(self, model):
            super().__init__()
            self._orig_mod = model

    message, _ = refusal(nn.Sequential(OptimizedModule(nn.ReLU())))
    assert message.startswith("layer 0 (OptimizedModule): it was made by torch.compile; torch.fx ")
