"""Compiler: a ``torch.nn.Module`` into a command stream, a DRAM image and a memory map.

Programs that were saved are read without torch; networks are trained by
:func:`compiler.training.compile_training` and :func:`compiler.adagp.compile_adagp`.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from compiler.adagp.program import AdaGPProgram
    from compiler.codegen.program import CompiledProgram, ProgramError, StageInfo
    from compiler.tensors.tensor import Tensor
    from compiler.training.program import TrainingProgram
    from hw.config import AdaGPConfig

    from .errors import CompileError

__all__ = [
    "AdaGPProgram",
    "CompileError",
    "CompiledProgram",
    "ProgramError",
    "StageInfo",
    "Tensor",
    "TrainingProgram",
    "compile",
]


def __getattr__(name: str) -> Any:
    """Import what is exported when it is asked for, so that the command line starts at once."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from compiler.adagp.program import AdaGPProgram
    from compiler.codegen.program import CompiledProgram, ProgramError, StageInfo
    from compiler.tensors.tensor import Tensor
    from compiler.training.program import TrainingProgram

    from .errors import CompileError

    found = (
        AdaGPProgram, CompileError, CompiledProgram, ProgramError, StageInfo, Tensor,
        TrainingProgram,
    )  # fmt: skip
    globals().update({cls.__name__: cls for cls in found})
    return globals()[name]


def compile(
    model: "nn.Module",
    config: "AdaGPConfig",
    input_shape: Sequence[int] | Sequence[Sequence[int]],
    *,
    placement: str | Sequence[int] | None = None,
    parameters: Sequence[Any] | None = None,
    predictor_memory: Iterable[int] | None = None,
    reuse: bool = True,
) -> "CompiledProgram":
    """Compile ``model`` for ``config``.

    Parameters
    ----------
    model : torch.nn.Module
        any network that can be trained, in evaluation mode; without the vector engine, as with
        integer formats, of convolutions, linear layers, ReLU, pooling and flattening
    config : AdaGPConfig
    input_shape : tuple, or a list of them
        (N, C, H, W), (N, F) for a network that begins with a linear layer, (N, T, C) for sequences
        or (N, T) for tokens; a list of these for a network with several inputs
    placement : str, list or None
        which core computes what, see :func:`compiler.inference.placement.place`
    parameters : list or None
        numbers of every fused product instead of the model's own, and required for integer formats:
        an object or dictionary with ``weights_bits`` (Co, C, Kh, Kw) operand codes, ``bias_bits``
        (Co,) float32 or int32 bits, or None, and ``scale_field``, the command field
    predictor_memory : list or None
        indices of fused products whose weights core 0 keeps in the predictor memory; None: those
        of the last one where core 0 reaches one (variant ``efficient``)
    reuse : bool
        maps that are not needed at the same time share memory; False keeps all of them

    Returns
    -------
    CompiledProgram

    Raises
    ------
    CompileError
        naming the layer, why it cannot be compiled and what can.
    """
    # PyTorch takes seconds to import; whoever only reads programs does without.
    from compiler.inference.compile import compile_network

    return compile_network(
        model,
        config,
        input_shape,
        placement=placement,
        parameters=parameters,
        predictor_memory=predictor_memory,
        reuse=reuse,
    )
