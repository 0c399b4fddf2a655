"""Cycle simulation of a flat netlist, zero delay: how often every net changes.

One pass over all gates in topological order for every clock cycle, in C. A net changes at most
once in a cycle; glitches are not seen.
"""

import ctypes
import functools
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from synth.asic.liberty.truth_table import truth_table
from synth.common.errors import ToolError

from .flat_netlist import ONE, FlatNetlist
from .levelize import levelise

__all__ = ["Counts", "Mismatch", "simulate"]

_INPUTS = 6

_SOURCE = r"""
#include <stdint.h>

/* Returns the first mismatch as cycle * expected + index, or -1. */
int64_t run(int64_t cycles, int64_t counted_from, int64_t counted_to, int64_t checked_from,
            int64_t gates, const uint64_t *table, const int32_t *in, const int32_t *out,
            int64_t registers, const int32_t *d, const int32_t *q, const int32_t *qn,
            int64_t sources, const int32_t *source, const uint8_t *stimulus,
            int64_t checks, const int32_t *check, const uint8_t *expected,
            uint8_t *value, uint8_t *next, uint32_t *changes, uint32_t *ones, uint32_t *states)
{
    for (int64_t cycle = 0; cycle < cycles; cycle++) {
        const int count = cycle >= counted_from && cycle < counted_to;
#define SET(net, v) do { \
        const int32_t n_ = (net); const uint8_t v_ = (v); \
        if (count) { changes[n_] += v_ ^ value[n_]; ones[n_] += v_; } \
        value[n_] = v_; } while (0)
        for (int64_t i = 0; i < sources; i++)
            SET(source[i], stimulus[cycle * sources + i]);
        for (int64_t i = 0; i < registers; i++) {
            SET(q[i], next[i]);
            if (qn[i] >= 0) SET(qn[i], !next[i]);
        }
        for (int64_t i = 0; i < gates; i++) {
            const int32_t *a = in + 6 * i;
            const int index = value[a[0]] | value[a[1]] << 1 | value[a[2]] << 2
                | value[a[3]] << 3 | value[a[4]] << 4 | value[a[5]] << 5;
            SET(out[i], table[i] >> index & 1);
        }
        for (int64_t i = 0; i < checks && cycle >= checked_from; i++)
            if (value[check[i]] != expected[cycle * checks + i]) return cycle * checks + i;
        for (int64_t i = 0; i < registers; i++) {
            if (count) states[4 * i + 2 * value[d[i]] + value[q[i]]]++;
            next[i] = value[d[i]];
        }
    }
    return -1;
}
"""


class Mismatch(ToolError):
    """The netlist does something else than the RTL."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Counts:
    """What was counted in ``cycles`` cycles.

    Members
    -------
    changes, ones : for every net, how often it changed and in how many cycles it was 1
    states : cell name -> (instances, 4): how often a register met the clock edge in the state
        2 * D + Q
    """

    cycles: int
    changes: np.ndarray
    ones: np.ndarray
    states: dict[str, np.ndarray]


def simulate(
    netlist: FlatNetlist,
    values: dict[str, np.ndarray],
    *,
    window: tuple[int, int] | None = None,
    compare_from: int = 0,
    progress=lambda text: None,
) -> Counts:
    """Run the netlist on recorded values.

    Parameters
    ----------
    values : path -> bits (cycles, bits): every input of the top but the clock, every output of a
        memory; and, for comparison, outputs of the top and inputs of memories that are there
    window : first cycle that counts, first that does not; by default all
    compare_from : first cycle in which the comparison is made

    Raises
    ------
    Mismatch
        naming the first place and cycle that differs.
    ToolError
        where a value is missing, there is no C compiler, or a cell is not understood.
    """
    library = _library()
    table, inputs, outputs = _gates(netlist)
    registers, d, q, qn = _registers(netlist)
    sources, stimulus = _stimulus(netlist, values)
    places, checks, expected = _checks(netlist, values)
    cycles = len(stimulus)
    window = (0, cycles) if window is None else window
    value = np.zeros(netlist.nets, np.uint8)
    value[ONE] = 1
    state = netlist.initial[q].astype(np.uint8)
    inverted = qn >= 0
    value[q] = state
    value[qn[inverted]] = 1 - state[inverted]
    changes, ones = (np.zeros(netlist.nets, np.uint32) for _ in range(2))
    states = np.zeros((len(d), 4), np.uint32)
    step = max(1, min(500, cycles))
    for begin in range(0, cycles, step):
        progress(f"simulating the netlist, cycle {begin} of {cycles}")
        part = slice(begin, min(begin + step, cycles))
        count = part.stop - begin
        at = library.run(
            count, window[0] - begin, window[1] - begin, compare_from - begin,
            len(outputs), _pointer(table), _pointer(inputs), _pointer(outputs),
            len(d), _pointer(d), _pointer(q), _pointer(qn),
            len(sources), _pointer(sources), _pointer(stimulus[part]),
            len(checks), _pointer(checks), _pointer(expected[part]),
            _pointer(value), _pointer(state), _pointer(changes), _pointer(ones),
            _pointer(states),
        )  # fmt: skip
        if at >= 0:
            cycle, index = divmod(at, len(checks))
            place, bit = places[index]
            wanted = expected[begin + cycle, index]
            raise Mismatch(
                f"The netlist differs from the RTL in cycle {begin + cycle}: {place}[{bit}] is "
                f"{1 - wanted}, not {wanted}"
            )
    first = 0
    by_cell = {}
    for group in registers:
        by_cell[group.cell.name] = states[first : first + len(group.block)]
        first += len(group.block)
    counted = max(0, min(window[1], cycles) - max(window[0], 0))
    return Counts(cycles=counted, changes=changes, ones=ones, states=by_cell)


def _pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


@functools.cache
def _library():
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise ToolError("There is no C compiler (cc); the gate-level simulation needs one")
    with tempfile.TemporaryDirectory(prefix="synth-gates-") as directory:
        source, target = Path(directory) / "gates.c", Path(directory) / "gates.so"
        source.write_text(_SOURCE)
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(target), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no message"])[0]
            raise ToolError(f"The gate-level simulation cannot be compiled: {reason}")
        library = ctypes.CDLL(str(target))
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    library.run.restype = number
    library.run.argtypes = [
        *[number] * 4, number, *[pointer] * 3, number, *[pointer] * 3, number, *[pointer] * 2,
        number, *[pointer] * 2, *[pointer] * 5,
    ]  # fmt: skip
    return library


def _gates(netlist):
    """Truth tables, inputs (padded with constant zero) and outputs in topological order."""
    tables, inputs, outputs = [], [], []
    for group in netlist.groups.values():
        if group.cell.kind not in ("combinational", "tie"):
            continue
        pins = group.cell.inputs
        if len(pins) > _INPUTS:
            raise ToolError(f"{group.cell.name} has more than {_INPUTS} inputs")
        nets = np.zeros((len(group.block), _INPUTS), np.int32)
        nets[:, : len(pins)] = group.nets[:, : len(pins)]
        for name in group.cell.outputs:
            table = truth_table(group.cell.pins[name].function, pins)
            tables.append(np.full(len(nets), table, np.uint64))
            inputs.append(nets)
            outputs.append(group.pin(name).astype(np.int32))
    if not outputs:
        return np.zeros(0, np.uint64), np.zeros((0, _INPUTS), np.int32), np.zeros(0, np.int32)
    table, nets, out = np.concatenate(tables), np.concatenate(inputs), np.concatenate(outputs)
    source, target = nets.reshape(-1), np.repeat(out, _INPUTS)
    keep = source > ONE
    level = levelise(netlist.nets, source[keep], target[keep])[out]
    if np.any(level < 0):
        raise ToolError("Gates form a loop")
    order = np.argsort(level, kind="stable")
    return table[order], np.ascontiguousarray(nets[order]), out[order]


def _registers(netlist):
    groups, d, q, qn = [], [], [], []
    for group in netlist.registers():
        cell = group.cell
        if cell.next_state.strip(" ()") not in cell.inputs:
            raise ToolError(f"{cell.name}: its next state {cell.next_state!r} is no input")
        state = {pin: cell.pins[pin].function for pin in cell.outputs}
        plain = [pin for pin, function in state.items() if function == cell.state[0]]
        inverse = [pin for pin, function in state.items() if function == cell.state[1]]
        if not plain or len(plain) + len(inverse) != len(state):
            raise ToolError(f"{cell.name}: outputs {state} are not its state and its complement")
        groups.append(group)
        d.append(group.pin(cell.next_state.strip(" ()")))
        q.append(group.pin(plain[0]))
        qn.append(group.pin(inverse[0]) if inverse else np.full(len(group.block), -1))
    joined = [np.concatenate(part).astype(np.int32) if part else np.zeros(0, np.int32)
              for part in (d, q, qn)]  # fmt: skip
    return groups, *joined


def _stimulus(netlist, values):
    nets, bits = [], []
    wanted = {port: net for port, net in netlist.inputs.items() if port != "clk"}
    for macro in netlist.macros:
        path = netlist.blocks[macro.block].name
        wanted |= {f"{path}.{port}": net for port, net in macro.outputs.items()}
    for path, net in wanted.items():
        if path not in values:
            raise ToolError(f"The recording has no values of {path}")
        if values[path].shape[1] < len(net):
            raise ToolError(f"The recording has too few bits of {path}")
        nets.append(net)
        bits.append(values[path][:, : len(net)])
    if not nets:
        raise ToolError("The netlist has no input")
    return np.concatenate(nets).astype(np.int32), np.ascontiguousarray(np.concatenate(bits, axis=1))


def _checks(netlist, values):
    places, nets, bits = [], [], []
    cycles = len(next(iter(values.values()))) if values else 0
    wanted = dict(netlist.outputs)
    for macro in netlist.macros:
        path = netlist.blocks[macro.block].name
        ports = {p: n for p, n in macro.inputs.items() if p not in ("clk", "rst")}
        wanted |= {f"{path}.{port}": net for port, net in ports.items()}
    for path, net in wanted.items():
        if path in values:
            places += [(path, bit) for bit in range(len(net))]
            nets.append(net)
            bits.append(values[path][:, : len(net)])
    if not nets:
        return [], np.zeros(0, np.int32), np.zeros((max(cycles, 1), 0), np.uint8)
    expected = np.ascontiguousarray(np.concatenate(bits, axis=1))
    return places, np.concatenate(nets).astype(np.int32), expected
