"""The compiled loops as plain Python: for programs too short to be worth compiling them.

The same source runs, in modules of their own in which nothing is compiled, on objects whose
attributes lie in the same memory. It is about 200 times as slow, and begins at once.
"""

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np

__all__ = ["plain_kernel", "plain_records"]

_COMPILED, _PLAIN = "perf.machine.kernels", "perf.machine.plain_kernels"


@functools.cache
def _plain_compilation() -> None:
    """In the plain package, what compiles does nothing."""
    package = ModuleType(_PLAIN)
    package.__path__ = []
    sys.modules[_PLAIN] = package
    compilation = ModuleType(f"{_PLAIN}.compilation")
    vars(compilation).update(kernel=lambda function: function, inline=lambda function: function)
    sys.modules[compilation.__name__] = compilation


@functools.cache
def plain_kernel(module: str, name: str) -> Callable[..., Any]:
    """A kernel of a module of :mod:`perf.machine.kernels`, not compiled."""
    _plain_compilation()
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        found: Callable[..., Any] = getattr(import_module(f"{_PLAIN}.{module}"), name)
    finally:
        sys.meta_path.remove(finder)
    return found


class _Finder:
    """Finds the modules of the plain package where those of the compiled one are."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not name.startswith(f"{_PLAIN}."):
            return None
        found = find_spec(name.replace(_PLAIN, _COMPILED))
        assert found is not None and found.loader is not None
        loader = type(found.loader)(name, found.origin)  # type: ignore[call-arg]
        return ModuleSpec(name, loader, origin=found.origin)


@functools.cache
def _record_class(kind: np.dtype[Any]) -> type:
    """A class whose attributes are the fields of a record of 64-bit numbers."""

    def scalar(place):
        def get(self):
            return self._memory[self._first + place]

        def put(self, value):
            self._memory[self._first + place] = value

        return property(get, put)

    def array(name):
        return property(lambda self: self._arrays[name])

    members: dict[str, Any] = {"__slots__": ("_arrays", "_first", "_memory")}
    shapes = {}
    assert kind.names is not None and kind.fields is not None
    for name in kind.names:
        field, offset = kind.fields[name][:2]
        if field.shape:
            shapes[name] = (offset // 8, field.shape)
            members[name] = array(name)
        else:
            members[name] = scalar(offset // 8)

    def begin(self, memory, first):
        self._memory, self._first = memory, first
        self._arrays = {
            name: _parts(memory, first + place, shape) for name, (place, shape) in shapes.items()
        }

    members["__init__"] = begin
    return type("Record", (), members)


def _parts(memory, first, shape):
    if len(shape) == 1:
        return memory[first : first + shape[0]]
    step = int(np.prod(shape[1:]))
    return [_parts(memory, first + number * step, shape[1:]) for number in range(shape[0])]


def plain_records(records: np.ndarray[Any, Any]) -> list[Any]:
    """Objects for records of 64-bit numbers, in the same memory."""
    numbers = memoryview(records.view(np.int64))  # type: ignore[arg-type]
    size, kind = records.dtype.itemsize // 8, _record_class(records.dtype)
    return [kind(numbers, number * size) for number in range(len(records))]
