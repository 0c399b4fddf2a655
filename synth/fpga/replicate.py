"""Copies of cells that drive many inputs: in all columns of PEs, or anywhere.

What takes weights over goes to every weight of an array at once: a net with a thousand inputs, as
long as the device is wide, and its slowest branch is longer still. With a copy of the flip-flop
for each column, which has a stripe of the device (:mod:`synth.fpga.floorplan`), each net is as long
as a stripe, and the one behind the copies has an input in each. Yosys would merge copies that the
hardware has.

A reset has thousands of inputs all over the device. Cells next to each other have neighbouring
names, as these begin with the blocks that they are in; so a copy for every few hundred names has
its inputs near it.
"""

__all__ = ["replicate", "split"]


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


def split(top: dict, *, outputs: dict[str, str], limit: int, share: int) -> int:
    """Copy cells that drive more than ``limit`` inputs, so that each drives about ``share``.

    Parameters
    ----------
    top : as for :func:`replicate`
    outputs : type of the cells to copy, with one output -> its name

    Inputs are dealt out in the order of the names of their cells. Returns how many copies there
    are; they, too, drive no more than ``limit``, nor does what drives them.
    """
    cells, copies = top["cells"], 0
    free = 1 + max(bit for cell in cells.values() for bit in _numbers(cell))
    while True:
        drivers, found = {}, {}
        for name, cell in sorted(cells.items()):
            if output := outputs.get(cell["type"]):
                drivers[cell["connections"][output][0]] = name
            for port, index, bit in _inputs(cell):
                found.setdefault(bit, []).append((cell, port, index))
        crowded = [bit for bit, links in found.items() if bit in drivers and len(links) > limit]
        if not crowded:
            return copies
        for bit in sorted(crowded):
            original, links = cells[drivers[bit]], found[bit]
            output, parts = outputs[original["type"]], -(-len(links) // share)
            for part in range(1, parts):
                name = f"{drivers[bit]}_part{copies}"
                inputs = {port: list(bits) for port, bits in original["connections"].items()}
                cells[name] = original | {"connections": inputs | {output: [free]}}
                top["netnames"][f"{name}_{output}"] = {
                    "hide_name": 0, "bits": [free], "attributes": {},
                }  # fmt: skip
                for cell, port, index in links[
                    part * len(links) // parts : (part + 1) * len(links) // parts
                ]:
                    cell["connections"][port][index] = free
                copies, free = copies + 1, free + 1


def _inputs(cell):
    for port, bits in cell["connections"].items():
        if cell["port_directions"][port] == "input":
            for index, bit in enumerate(bits):
                yield port, index, bit


def _numbers(cell):
    """Nets of a cell; constants are strings."""
    return (bit for bits in cell["connections"].values() for bit in bits if isinstance(bit, int))
