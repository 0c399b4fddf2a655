"""Compares the memory after a run with what golden says, and names the first wrong value."""

from dataclasses import dataclass

import numpy as np

from hw.isa.encoding import Opcode
from verif.system.accelerator import Outcome

from .workload import Workload

__all__ = ["Comparison", "Mismatch", "compare"]


@dataclass(frozen=True, kw_only=True)
class Mismatch:
    """One wrong value; ``str`` gives the whole report.

    Members
    -------
    stage, layers : the stage and the layers in it
    position : (n, h, w, channel); a channel behind the last one is padding that must be zero
    core, column_tile, column : where its sum was computed
    row : lane of the value in its buffer word, and row of the array that reads it next
    tile : number of the STORE of this stage that wrote it, and of how many
    command : index of that STORE in the program
    address : absolute DRAM address in bytes
    cycle : cycle of its last write, counted from the start of the run; None if there was none
    simulation_cycle : the same, counted from the reset
    expected, actual : codes; ``expected_value``, ``actual_value``: what they mean
    digits : hexadecimal digits of a code
    """

    stage: str
    layers: str
    position: tuple
    channels: int
    core: int
    column_tile: int
    column: int
    row: int
    tile: tuple
    command: int | None
    address: int
    cycle: int | None
    simulation_cycle: int | None
    expected: int
    actual: int
    expected_value: float
    actual_value: float
    digits: int

    def __str__(self):
        n, h, w, channel = self.position
        padding = " (padding)" if channel >= self.channels else ""
        when = "never written in this run"
        if self.cycle is not None:
            when = f"{self.cycle} of the run, {self.simulation_cycle} of the simulation"
        stored = "no STORE covers it"
        if self.command is not None:
            stored = f"{self.tile[0]} of {self.tile[1]}, STORE is command {self.command}"
        return "\n".join(
            [
                f"layer       {self.stage} ({self.layers})",
                f"element     n {n}, h {h}, w {w}, channel {channel}{padding}",
                f"tile        {stored}; column tile {self.column_tile}",
                f"row         {self.row} (lane of the buffer word)",
                f"column      {self.column} of core {self.core}",
                f"address     {self.address:#x}",
                f"cycle       {when}",
                f"expected    0x{self.expected:0{self.digits}x} = {self.expected_value!r}",
                f"actual      0x{self.actual:0{self.digits}x} = {self.actual_value!r}",
            ]
        )


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Result of :func:`compare`.

    Members
    -------
    checked, wrong : per stage the number of values, and of wrong ones (padding included)
    first : the first :class:`Mismatch`, or None
    stray : addresses (absolute) of bytes outside the outputs that the run has changed
    problems : everything else that is wrong, as text
    """

    checked: list
    wrong: list
    first: Mismatch | None
    stray: list
    problems: list

    @property
    def passed(self) -> bool:
        """Whether everything is as it must be."""
        return not (any(self.wrong) or self.stray or self.problems)

    def report(self) -> str:
        """What is wrong, as text; empty if nothing is."""
        parts = list(self.problems)
        if self.first is not None:
            parts.append(
                f"{sum(self.wrong)} of {sum(self.checked)} values are wrong; the first:\n"
                + "\n".join(f"  {line}" for line in str(self.first).splitlines())
            )
        if self.stray:
            parts.append(
                f"{len(self.stray)} bytes outside the outputs were changed, the first at "
                f"{self.stray[0]:#x}"
            )
        return "\n".join(parts)


def compare(workload: Workload, outcome: Outcome, *, base: int, image=None) -> Comparison:
    """Compare everything that the run has stored, bit for bit.

    Parameters
    ----------
    base : start of the memory window
    image : what was loaded, if not the workload's own image
    """
    checked, wrong, first = [], [], None
    before = np.frombuffer(workload.image if image is None else image, np.uint8)
    after = np.frombuffer(outcome.memory, np.uint8)
    changed = before != after
    for index, tensor in enumerate(workload.program.outputs):
        shape = (*tensor.shape[:3], tensor.pitch)
        expected = np.frombuffer(tensor.pack(workload.expected[index]), tensor.dtype)
        part = outcome.memory[tensor.offset : tensor.offset + tensor.size]
        actual = np.frombuffer(part, tensor.dtype)
        bad = expected != actual
        checked.append(expected.size)
        wrong.append(int(bad.sum()))
        if wrong[-1] and first is None:
            place = int(np.argmax(bad))
            first = _mismatch(
                workload, outcome, base, index, place, shape, expected[place], actual[place]
            )
        changed[tensor.offset : tensor.offset + tensor.size] = False
    return Comparison(
        checked=checked,
        wrong=wrong,
        first=first,
        stray=[base + int(place) for place in np.flatnonzero(changed)],
        problems=_problems(outcome.record),
    )


def _problems(record):
    problems = []
    if record.error or not record.done:
        problems.append(
            f"the run ended with error {record.code} of unit {record.unit} at {record.address:#x}"
        )
    if record.protocol_errors:
        problems.append(f"the AXI master broke the protocol {record.protocol_errors} times")
    return problems


def _mismatch(workload, outcome, base, index, place, shape, expected, actual):
    program, info = workload.program, workload.program.stages[index]
    tensor = program.outputs[index]
    n, h, w, channel = (int(i) for i in np.unravel_index(place, shape))
    run = next(r for r in info.runs if r["images"][0] <= n < r["images"][1])
    offset = tensor.offset + place * tensor.dtype.itemsize
    command, tile = _store(program, tensor, offset)
    beat = offset // workload.config.beat_bytes
    written = int(outcome.written[beat])
    in_run = written > outcome.record.start_cycle
    return Mismatch(
        stage=info.name,
        layers=", ".join(info.layers),
        position=(n, h, w, channel),
        channels=tensor.shape[3],
        core=run["core"],
        column_tile=channel // run["columns"],
        column=channel % run["columns"],
        row=channel % run["rows"],
        tile=tile,
        command=command,
        address=base + offset,
        cycle=written - outcome.record.start_cycle if in_run else None,
        simulation_cycle=written if in_run else None,
        expected=int(expected),
        actual=int(actual),
        expected_value=float(tensor.values(np.array([expected]))[0]),
        actual_value=float(tensor.values(np.array([actual]))[0]),
        digits=2 * tensor.dtype.itemsize,
    )


def _store(program, tensor, offset):
    """Index of the STORE command that writes ``offset``, and (number, how many) of the tensor."""
    stores = []
    for index, (opcode, fields) in enumerate(program.command_list):
        if opcode is Opcode.STORE and (0 <= fields["dram_address"] - tensor.offset < tensor.size):
            stores.append((index, fields))
    for number, (index, fields) in enumerate(stores):
        distance = offset - fields["dram_address"]
        run = min(max(distance, 0) // max(fields["run_stride"], 1), fields["run_count"] - 1)
        if 0 <= distance - run * fields["run_stride"] < fields["run_bytes"]:
            return index, (number, len(stores))
    return None, (0, len(stores))
