"""What is asked of a ``torch.nn.Module``, and its copy without numbers."""

import copy
import operator

import torch
from torch import fx, nn

from .network_inputs import attribute

__all__ = ["Tracer", "require_module", "without_data"]

#: Python's operators in place.
_IN_PLACE = (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor",
    "lshift", "rshift",
)  # fmt: skip
_HOOKS = ("forward", "forward_pre", "backward", "backward_pre")


class Tracer(fx.Tracer):
    """Sees ``+=`` and the like as operations in place; torch.fx takes ``x += y`` for ``x = x + y``,
    which other names of ``x`` would not notice."""

    proxy_buffer_attributes = True

    def proxy(self, node):
        return _Proxy(node, self)


class _Proxy(fx.Proxy):
    pass


def _operator(name):
    function = getattr(operator, f"i{name}")

    def call(self, other):
        return self.tracer.create_proxy("call_function", function, (self, other), {}, name)

    return call


for _name in _IN_PLACE:
    setattr(_Proxy, f"__i{_name}__", _operator(_name))


def require_module(model):
    """A module that torch.fx can look into."""
    if not isinstance(model, nn.Module):
        raise ValueError(f"The model must be a torch.nn.Module, not {type(model).__name__}")
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(
                f"{f'Layer {name}' if name else 'The model'} is scripted or traced "
                f"({type(module).__name__}); torch.fx needs the torch.nn.Module it was made of"
            )
        hooked = any(p._backward_hooks for p in module.parameters(recurse=False))
        hooked |= "forward" in vars(module) and Tracer().is_leaf_module(module, "")
        if hooked or any(getattr(module, f"_{kind}_hooks") for kind in _HOOKS):
            raise ValueError(
                f"{f'Layer {name}' if name else 'The model'} has hooks or a forward that nothing "
                "would call"
            )


def without_data(model, graph):
    """A copy of the model whose tensors have shapes only."""
    known = {}
    own = [attribute(model, step.target) for step in graph.nodes if step.op == "get_attr"]
    for tensor in (*model.parameters(), *model.buffers(), *own):
        empty = tensor.detach().to("meta")
        known[id(tensor)] = nn.Parameter(empty) if isinstance(tensor, nn.Parameter) else empty
    return fx.GraphModule(copy.deepcopy(model, known), graph)
