"""Copies of flip-flops that drive all columns of PEs.

What takes weights over goes to every weight of an array at once: a net with a thousand inputs, as
long as the device is wide, and its slowest branch is longer still. With a copy of the flip-flop
for each column, which has a stripe of the device (:mod:`synth.fpga.floorplan`), each net is as long
as a stripe, and the one behind the copies has an input in each. Yosys would merge copies that the
hardware has.
"""

__all__ = ["replicate"]


def replicate(top: dict, *, flip_flop: str, column, limit: int) -> int:
    """Copy flip-flops that drive more than ``limit`` inputs in columns, one for each column.

    Parameters
    ----------
    top : a flat module of a netlist that Yosys wrote, which is changed
    flip_flop : type of the cells to copy, whose output is ``Q``
    column : name of a cell -> its column, or None
    limit : inputs in columns, all together

    Returns how many copies there are. A copy has the inputs of its original, so both have the same
    value in every cycle. The original keeps what is outside of the columns.
    """
    cells, found = top["cells"], {}
    drivers = {c["connections"]["Q"][0]: n for n, c in cells.items() if c["type"] == flip_flop}
    for name, cell in sorted(cells.items()):
        key = column(name)
        if key is not None:
            for port, index, bit in _inputs(cell):
                if bit in drivers:
                    found.setdefault(bit, {}).setdefault(key, []).append((cell, port, index))
    free = 1 + max(bit for cell in cells.values() for bit in _numbers(cell))
    copies = 0
    for bit, columns in sorted(found.items()):
        if sum(map(len, columns.values())) <= limit:
            continue
        original = drivers[bit]
        for key in sorted(columns):
            name, output = f"{original}_copy{copies}", free + copies
            links = cells[original]["connections"] | {"Q": [output]}
            cells[name] = cells[original] | {"connections": links}
            top["netnames"][f"{name}_Q"] = {"hide_name": 0, "bits": [output], "attributes": {}}
            for cell, port, index in columns[key]:
                cell["connections"][port][index] = output
            copies += 1
    return copies


def _inputs(cell):
    for port, bits in cell["connections"].items():
        if cell["port_directions"][port] == "input":
            for index, bit in enumerate(bits):
                yield port, index, bit


def _numbers(cell):
    """Nets of a cell; constants are strings."""
    return (bit for bits in cell["connections"].values() for bit in bits if isinstance(bit, int))
