"""One step of training: a layer in one direction."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from compiler.codegen.core_builder import CoreProgram
from compiler.tensors.tensor import Tensor

__all__ = ["ARRAY", "VECTOR", "Step"]

#: Units of steps.
ARRAY, VECTOR = "array", "vector"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One layer in one direction.

    Members
    -------
    layer : name
    direction : "forward", "loss", "input gradient", "weight gradient", "backward", "update", or
        "sample": what a backward pass of a part of the images takes besides
    reads, writes : names of tensors
    write : function of (CoreProgram, tensors by name) that emits the commands
    predictor : it is work of the predictor, which may have a core or a memory of its own
    core : which core does it, unless it is the predictor's
    background : it may fall behind steps that follow, see
        :meth:`~compiler.codegen.dependencies.Recorder.background`
    unit : :data:`ARRAY` of a product, :data:`VECTOR` of what has LOAD, VECTOR and STORE alone:
        these may run beside each other; "" of all that have the core for themselves
    cycles : that it takes, roughly
    """

    layer: str
    direction: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    write: Callable[[CoreProgram, Mapping[str, Tensor]], None]
    core: int = 0
    predictor: bool = False
    background: bool = False
    unit: str = ""
    cycles: int = 0

    @property
    def name(self) -> str:
        return f"{self.layer} {self.direction}"
