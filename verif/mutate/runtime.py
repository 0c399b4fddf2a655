"""What the calls in a rewritten file do: original, mutant, or both with a multiplexer.

Two modes:

- *single*: the design holds the selected mutant and no other; number 0 selects the original.
- *all*: the design holds every mutant. A multiplexer behind each takes it if its number is the one
  that the simulation is given as ``+mutant=N``. One compiled simulation serves all mutants of a
  file. What is not hardware (sizes, loops of the generator) cannot be multiplexed and stays as it
  is.

Either way a mutant has the shape of the original. Numbers come from :mod:`verif.mutate.rewrite`.
"""

import enum
import operator
import sys
import weakref

from amaranth.hdl import (
    Cat,
    Const,
    Instance,
    Module,
    Mux,
    ResetInserter,
    ResetSignal,
    Signal,
    Value,
    ValueCastable,
)
from amaranth.hdl._ast import Switch

__all__ = [
    "GENERATOR", "HARDWARE", "SELECTOR", "arithmetic", "assign", "choice", "comparison",
    "NOTHING", "condition", "configure", "inverse", "keep", "logic", "observe",
]  # fmt: skip

#: A mutant of something that the design holds.
HARDWARE = "hardware"
#: A mutant of a number that the generator computes.
GENERATOR = "generator"

#: None at all: a signal of one bit has no top bit to lose.
NOTHING = "nothing"

#: Verilog of the module that says which mutant is selected.
SELECTOR = """\
module adagp_mutant(output reg [15:0] number);
  initial if (!$value$plusargs("mutant=%d", number)) number = 0;
endmodule
"""

_NUMBER_WIDTH = 16
_OPERATIONS = {
    "+": operator.add, "-": operator.sub, "&": operator.and_, "|": operator.or_,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_OTHER = {
    "&": "|", "|": "&", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
}  # fmt: skip


class _State:
    """Of this process: which mutant, and what was met."""

    selected = 0
    all = False
    met: dict[int, str] = {}
    selectors = weakref.WeakKeyDictionary()
    gates: dict[int, tuple] = {}  # id of a signal -> the signal, and when it is reset


def configure(*, selected: int = 0, all: bool = False) -> None:
    """Choose mode and mutant for everything that is elaborated from now on."""
    _State.selected, _State.all = selected, all
    _State.selectors.clear()
    _State.gates.clear()
    if all and ResetInserter._insert_control is not _insert_gated_reset:
        ResetInserter._insert_control = _insert_gated_reset


def observe() -> dict[int, str]:
    """Mutants that were elaborated since the last call, and what each is part of."""
    met, _State.met = _State.met, {}
    return met


def _note(number, kind):
    """A mutant is elaborated; of several kinds the first in this order counts."""
    order = (HARDWARE, GENERATOR, NOTHING)
    known = _State.met.get(number, NOTHING)
    _State.met[number] = min(kind, known, key=order.index)


# What the rewritten code calls ---------------------------------------------------------------


def arithmetic(numbers, symbol, left, right):
    """``left + right``, ``left - right``: one more, operands swapped."""
    result = original = _OPERATIONS[symbol](left, right)
    if "off" in numbers:
        result = _either(numbers["off"], result, original, lambda: original + 1)
    if "swap" in numbers:
        result = _either(numbers["swap"], result, original, lambda: right - left)
    return result


def logic(numbers, symbol, left, right):
    """``left & right``, ``left | right``: the other of the two."""
    original = _OPERATIONS[symbol](left, right)
    changed = _OPERATIONS[_OTHER[symbol]]
    return _either(numbers["swap"], original, original, lambda: changed(left, right))


def comparison(numbers, symbol, left, right):
    """An order with the boundary on the other side; an equality with one more, or inverted."""
    result = original = _OPERATIONS[symbol](left, right)
    if symbol not in ("==", "!="):
        changed = _OPERATIONS[_OTHER[symbol]]
        return _either(numbers["off"], original, original, lambda: changed(left, right))
    bit = isinstance(left, Value) and len(left) == 1
    if bit or not isinstance(right, (int, Value)) or isinstance(right, (bool, enum.Enum)):
        _note(numbers["off"], NOTHING)
    else:
        same = _OPERATIONS[symbol]
        result = _either(numbers["off"], result, original, lambda: same(left, right + 1))
    if "invert" in numbers:
        opposite = _OPERATIONS[_OTHER[symbol]]
        result = _either(numbers["invert"], result, original, lambda: opposite(left, right))
    return result


def inverse(numbers, operand):
    """``~operand``: without the ~."""
    original = ~operand
    if isinstance(operand, int):
        _note(numbers["invert"], NOTHING)
        return original
    return _either(numbers["invert"], original, original, lambda: operand)


def condition(numbers, test):
    """The test of an ``m.If``: its opposite."""
    number = numbers["invert"]
    _note(number, HARDWARE)
    if not _State.all:
        return ~Value.cast(test).bool() if _State.selected == number else test
    return Value.cast(test).bool() ^ (_number() == number)


def choice(numbers, test, high, low):
    """``Mux(test, high, low)``: the choices swapped."""
    original = Mux(test, high, low)
    return _either(numbers["swap"], original, original, lambda: Mux(test, low, high))


def assign(numbers, target, value):
    """``target.eq(value)``: top bit 0; left out; or the target without a reset."""
    if not isinstance(target, Value):
        for name in ("narrow", "clear"):
            if name in numbers:
                _note(numbers[name], NOTHING)
        keep(numbers, target)
        return target.eq(value)
    width = len(target)
    if "narrow" in numbers and width < 2:
        _note(numbers["narrow"], NOTHING)
    elif "narrow" in numbers:
        whole = _whole(value, width)
        if whole is not None:
            narrow = Cat(whole[: width - 1], Const(0, 1))
            value = _either(numbers["narrow"], value, whole, lambda: narrow)
        else:
            _note(numbers["narrow"], NOTHING)
    if "clear" in numbers:
        value = _either(numbers["clear"], value, Const(0, target.shape()), lambda: target)
    keep(numbers, target)
    return target.eq(value)


def keep(numbers, target):
    """A register that is part of a mutant: it is not reset."""
    number = numbers.get("reset")
    signal = target if isinstance(target, (Value, type(None))) else Value.cast(target)
    if number is None:
        return
    if not isinstance(signal, Signal):
        _note(number, NOTHING)
        return
    if signal.reset_less and id(signal) not in _State.gates and _State.selected != number:
        _note(number, NOTHING)
        return
    _note(number, HARDWARE)
    if not _State.all:
        if _State.selected == number:
            signal._reset_less = True
        return
    if id(signal) not in _State.gates and (module := _module()) is not None:
        # Reset explicitly, so that the mutant can go without.
        signal._reset_less = True
        _State.gates[id(signal)] = signal, number, _number()
        _reset_at_the_end(module, signal, _number() != number)


# How they do it ------------------------------------------------------------------------------


def _whole(value, width):
    """``value`` as it is assigned to ``width`` bits; None if its top bit is 0 anyway."""
    if isinstance(value, (int, enum.Enum)):
        number = int(getattr(value, "value", value))
        return Const(number, width) if number >> (width - 1) & 1 else None
    value = Value.cast(value)
    if isinstance(value, Const):
        return _whole(value.value, width)
    return _fit(value, width, signed=False)


def _fit(value, width, *, signed):
    """``value`` in ``width`` bits, extended as its sign demands."""
    if len(value) < width:
        missing = width - len(value)
        top = value[-1].replicate(missing) if value.shape().signed else Const(0, missing)
        value = Cat(value, top)
    value = value[:width]
    return value.as_signed() if signed else value


def _either(number, so_far, original, mutated):
    """``so_far``, or the mutant ``mutated()`` in the shape of ``original``."""
    if isinstance(original, (Value, ValueCastable)):
        if _State.all and _module() is None:
            _note(number, GENERATOR)
            return so_far
        _note(number, HARDWARE)
        if not _State.all and _State.selected != number:
            return so_far
        shape = Value.cast(original).shape()
        changed = _fit(Value.cast(mutated()), shape.width, signed=shape.signed)
        if not _State.all:
            return changed
        return Mux(_number() == number, changed, so_far)
    if isinstance(original, int):
        _note(number, GENERATOR)
        if not _State.all and _State.selected == number:
            return mutated()
    else:
        _note(number, NOTHING)
    return so_far


def _module():
    """The Amaranth module that is being filled: variable ``m`` of the nearest caller with one."""
    frame = sys._getframe(1)
    while frame is not None:
        m = frame.f_locals.get("m")
        if isinstance(m, Module):
            return m
        frame = frame.f_back
    return None


def _number():
    """Number of the selected mutant in the current module."""
    module = _module()
    if module not in _State.selectors:
        number = _State.selectors[module] = Signal(_NUMBER_WIDTH, name="mutant")
        module.submodules += Instance("adagp_mutant", o_number=number)
    return _State.selectors[module]


def _reset_at_the_end(module, signal, wanted):
    """The reset of a domain, behind all other assignments of the module."""
    elaborate = module.elaborate

    def with_reset(platform):
        module.elaborate = elaborate
        with module.If(ResetSignal("sync", allow_reset_less=True) & wanted):
            module.d.sync += signal.eq(Const(signal.init, signal.shape()))
        return module.elaborate(platform)

    module.elaborate = with_reset


def _insert_gated_reset(self, fragment, domain, lhs_masks, plain=ResetInserter._insert_control):
    """Amaranth's ``ResetInserter``, of registers whose reset is part of a mutant as well."""
    plain(self, fragment, domain, lhs_masks)
    for signal, _, _ in lhs_masks.chunks():
        if id(signal) in _State.gates and _State.gates[id(signal)][0] is signal:
            _, number, selector = _State.gates[id(signal)]
            reset = [signal.eq(Const(signal.init, signal.shape()))]
            when = self.controls[domain] & (selector != number)
            fragment.add_statements(domain, Switch(when, [(1, reset, None)], src_loc=self.src_loc))
