"""Networks as torch.fx sees them: what it can trace, and what is refused before it does."""

import copy
import operator
import traceback
from collections.abc import Callable, Iterable, Iterator
from os import sep
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize

from compiler.errors import CompileError

from .network_inputs import own_tensor
from .torch_errors import first_line

__all__ = ["graph_of", "require_module", "without_data"]

#: Where torch keeps what a module calls besides its ``forward``, and what it is.
_HOOKS = {
    "_forward_pre_hooks": "forward pre-hook",
    "_forward_hooks": "forward hook",
    "_backward_pre_hooks": "backward pre-hook",
    "_backward_hooks": "backward hook",
}
_SIZES = (
    "; while torch.fx traces, maps and their sizes have no values: sizes go to view, reshape, "
    "slices and arithmetic, not to range, int or len, and no part of a map can be assigned to"
)


def require_module(model: object) -> None:
    """Raise a :class:`CompileError` unless torch.fx can look into ``model``, and sees in it all
    that it computes."""
    if not isinstance(model, nn.Module):
        raise CompileError(f"the model must be a torch.nn.Module, not {type(model).__name__}")
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise CompileError(
                f"{f'layer {name}' if name else 'the model'} is scripted or traced "
                f"({type(module).__name__}); torch.fx needs the torch.nn.Module it was made of"
            )
        kind = type(module).__name__
        for reason in _reasons(module):
            raise CompileError(
                f"layer {name} ({kind}): {reason}" if name else f"the model {kind}: {reason}"
            )


def _reasons(module: nn.Module) -> Iterator[str]:
    """Why a module cannot be compiled whatever its ``forward`` is."""
    if isinstance(getattr(module, "_orig_mod", None), nn.Module):
        yield (
            "it was made by torch.compile; torch.fx needs the torch.nn.Module that torch.compile "
            "was given"
        )
    if isinstance(module, LazyModuleMixin):
        yield (
            "its parameters have no shape before it is called for the first time; call the model "
            "once with a batch, then compile it"
        )
    if parametrize.is_parametrized(module):
        names = ", ".join(module.parametrizations)
        yield (
            f"it has parametrizations, of {names}, which are not supported; "
            "torch.nn.utils.parametrize.remove_parametrizations makes a parameter of each"
        )
    leaf = fx.Tracer().is_leaf_module(module, "")
    if leaf and "forward" in vars(module):
        yield "its forward has been replaced, which torch.fx does not see in a layer of torch.nn"
    for name, parameter in module.named_parameters(recurse=False):
        if getattr(parameter, "_backward_hooks", None):
            yield f"its {name} has a hook, which the accelerator would not call; remove it first"
    for place, what in _HOOKS.items():
        for hook in getattr(module, place).values():
            own = getattr(hook, "__name__", type(hook).__name__)
            yield (
                f"it has a {what}, {own}, which the accelerator would not call; a module must have "
                "none: remove it first (handle.remove(), torch.nn.utils.remove_weight_norm, "
                "remove_spectral_norm, prune.remove)"
            )


class _Proxy(fx.Proxy):
    """What ``forward`` gets in place of a map. torch.fx takes ``x += y`` for ``x = x + y``; in
    torch it changes what other names of ``x`` mean, too."""


def _in_place(name: str) -> Callable[[fx.Proxy, Any], fx.Proxy]:
    function = getattr(operator, name)
    return lambda self, other: self.tracer.create_proxy(
        "call_function", function, (self, other), {}, name.removeprefix("i")
    )


for _name in (
    "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul", "iand", "ior",
    "ixor", "ilshift", "irshift",
):  # fmt: skip
    setattr(_Proxy, f"__{_name}__", _in_place(_name))


class _Tracer(fx.Tracer):
    proxy_buffer_attributes = True

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)


def graph_of(model: nn.Module) -> fx.Graph:
    """The steps of ``model``, which :func:`require_module` has seen.

    Raises
    ------
    CompileError
        for whatever its ``forward`` raises, with the line.
    """
    tracer = _Tracer()
    start = f"the model {type(model).__name__} cannot be traced by torch.fx"
    try:
        return tracer.trace(model)
    except fx.proxy.TraceError as error:
        raise CompileError(
            f"{start}, its forward must not depend on data: {first_line(error)}{_place_of(error)}"
        ) from error
    except Exception as error:  # whatever a model's own code raises
        hint = _SIZES if isinstance(error, TypeError | RuntimeError) else ""
        raise CompileError(
            f"{start}: {type(error).__name__}: {first_line(error)}{_place_of(error)}{hint}"
        ) from error


def _place_of(error: Exception) -> str:
    """The line of the model's own code in which ``error`` was raised."""
    others = f"{Path(torch.__file__).parent}{sep}", __file__
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(others):
            code = f": {frame.line}" if frame.line else ""
            return f" (line {frame.lineno} of {Path(frame.filename).name}{code})"
    return ""


def without_data(model: nn.Module, graph: fx.Graph) -> fx.GraphModule:
    """The same whose tensors have shapes only, with the steps ``graph``; ``model`` is not changed.

    Raises
    ------
    CompileError
        for what cannot be copied, with the module that has it.
    """
    own = [
        own_tensor(step.name, model, str(step.target), read=False)
        for step in graph.nodes
        if step.op == "get_attr"
    ]
    empty = {
        id(tensor): tensor.detach().to("meta")
        for tensor in [*model.parameters(), *model.buffers(), *own]
    }
    for parameter in model.parameters():
        empty[id(parameter)] = nn.Parameter(empty[id(parameter)])
    try:
        return fx.GraphModule(copy.deepcopy(model, dict(empty)), graph)
    except Exception as error:  # whatever a model's own objects raise
        where = _not_copied(model.named_modules(), empty)
        raise CompileError(
            f"the model {type(model).__name__} must be one that copy.deepcopy can copy{where}: "
            f"{type(error).__name__}: {first_line(error)}"
        ) from error


def _not_copied(modules: Iterable[tuple[str, nn.Module]], empty: dict[int, torch.Tensor]) -> str:
    """The innermost module that cannot be copied."""
    for name, module in reversed(list(modules)):
        try:
            copy.deepcopy(module, dict(empty))
        except Exception:
            return f", but layer {name} ({type(module).__name__}) is none" if name else ""
    return ""
