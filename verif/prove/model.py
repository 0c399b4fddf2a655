"""From a harness to the transition relation that a solver reads: Yosys."""

import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Model", "ModelError", "build_model"]

#: Memories become registers: those of the proofs are small, and :meth:`Harness.inner` reaches
#: single words. Resets and enables become multiplexers before the registers.
_BEFORE = "hierarchy -top top; proc; flatten; opt_expr"
_MEMORIES = "memory_map; opt_clean"
_BEHIND = "opt_clean; opt_expr -full; dffunmap; opt_expr; opt_clean; check -assert"


class ModelError(Exception):
    """Yosys cannot make a model of the harness."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """A design as SMT-LIB text.

    Members
    -------
    text : declares the sort ``|top_s|`` of a state with its inputs, a function ``|top_n NAME|`` of
        it for every named signal, and the relation ``|top_t|`` of two successive ones
    widths : dict, name of a signal to its bits
    register_bits : bits of all registers
    """

    text: str
    widths: dict[str, int]
    register_bits: int


def build_model(harness) -> Model:
    """Raises :class:`ModelError` where a name of :meth:`Harness.inner` or :meth:`Harness.cut` does
    not exist."""
    text = harness.rtlil()
    with tempfile.TemporaryDirectory(prefix="adagp-prove-") as folder:
        design = Path(folder) / "design.il"
        model = Path(folder) / "model.smt2"
        design.write_text(text)
        with _quiet(Path(folder) / "log"):
            _run_yosys(harness, design, model)
        lines = model.read_text()
    widths, bits = {}, 0
    for line in lines.splitlines():
        words = line.split()
        if line.startswith("; yosys-smt2-wire "):
            widths[words[2]] = int(words[3])
        elif line.startswith("; yosys-smt2-register "):
            bits += int(words[3])
    return Model(text=lines, widths=widths, register_bits=bits)


def _run_yosys(harness, source, model):
    from pyosys import libyosys as yosys

    design = yosys.Design()
    yosys.run_pass(f"read_rtlil {source}", design)
    yosys.run_pass(_BEFORE, design)
    top = design.top_module()
    wires = _wires(top)
    for path in harness.cuts:
        if "\\" + path not in wires:
            raise _missing(path, wires)
        yosys.run_pass(f"cutpoint w:{path}", design)
    yosys.run_pass(_MEMORIES, design)
    wires = _wires(top)
    for name, path in harness.inner_paths.items():
        inner, port = wires.get("\\" + path), wires["\\" + name]
        if inner is None:
            raise _missing(path, wires)
        if inner.width != port.width:
            raise ModelError(f"{path!r} has {inner.width} bits, not {port.width}")
        port.port_input = False
        top.connect(yosys.SigSpec(port), yosys.SigSpec(inner))
    top.fixup_ports()
    yosys.run_pass(_BEHIND, design)
    yosys.run_pass(f"write_smt2 -stbv -wires {model}", design)


def _wires(top):
    return {str(wire.name): wire for wire in top.wires_.values()}


def _missing(path, wires):
    scope = path.rpartition(".")[0]
    names = sorted(name[1:] for name in wires if name.startswith("\\" + scope))
    there = f"in {scope} there are {', '.join(names)}" if names else f"there is no {scope} either"
    return ModelError(f"The design has no signal {path!r}; {there}")


@contextlib.contextmanager
def _quiet(log):
    """Yosys writes to the process's standard output; it goes into a file that is dropped."""
    saved = os.dup(1)
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        try:
            yield
        finally:
            os.dup2(saved, 1)
            os.close(saved)
