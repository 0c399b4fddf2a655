"""What a proof consists of, and the mutants that must break it."""

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Mutant", "MutantError", "Proof", "design_module"]


class MutantError(Exception):
    """The text that a mutant changes is not there any more."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change of the design's text, which the proof must notice.

    Members
    -------
    name : what is wrong with it
    old, new : text of the proof's module, which must occur exactly once, and what replaces it
    cycles : behind a reset, after which a claim is broken at the earliest; 0 where that is too far
        to search: then only what the induction finds counts
    """

    name: str
    old: str
    new: str
    cycles: int = 0


@dataclass(frozen=True, kw_only=True)
class Proof:
    """A harness around a block, for several configurations of it.

    Members
    -------
    name : on the command line
    what : what is proven, in a line
    module : the block's Python module, of which mutants are made
    build : ``build(harness, module, **configuration)`` fills the harness
    configurations : by name, the arguments of ``build``; the first one is the one that the fast
        tests prove and that mutants break
    derived : gives further configurations, which take a while to find out
    mutants : each must break it
    """

    name: str
    what: str
    module: str
    build: Callable[..., None]
    configurations: Mapping[str, dict[str, Any]] = field(default_factory=lambda: {"only": {}})
    derived: Callable[[], Mapping[str, dict[str, Any]]] | None = None
    mutants: tuple[Mutant, ...] = ()


def design_module(name: str, mutant: Mutant | None = None) -> types.ModuleType:
    """The module ``name`` of the hardware, or a copy with ``mutant``'s change.

    Raises :class:`MutantError` where the text of the mutant does not occur exactly once.
    """
    if mutant is None:
        return importlib.import_module(name)
    spec = importlib.util.find_spec(name)
    text = Path(spec.origin).read_text()
    if (count := text.count(mutant.old)) != 1:
        raise MutantError(f"{mutant.old!r} must occur once in {name}, not {count} times")
    changed = types.ModuleType(name)
    changed.__package__ = spec.parent
    changed.__file__ = spec.origin
    original = sys.modules.get(name)
    sys.modules[name] = changed  # classes look their module up while they are made
    try:
        exec(compile(text.replace(mutant.old, mutant.new), spec.origin, "exec"), changed.__dict__)
    finally:
        if original is None:
            del sys.modules[name]
        else:
            sys.modules[name] = original
    return changed
