"""Headers of waveforms, and GTKWave save files with the signals one wants to see first."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["Variable", "signal_groups", "variables", "write_save_file"]

_TOP = "adagp_sim"
_ACCELERATOR = "accelerator"

#: Group -> regular expressions on paths below the accelerator; ``{core}`` is a core's instance.
_GROUPS = {
    "Run": [r"sequencer\.(start|finish|clear|stop|begin)", r"sequencer\.error__\w+"],
    "Batches": [r"batches\.(offered|drained|waiting|jump|batch|phase|epoch|epoch_batch)"],
    "Commands": [r"sequencer\.command__(valid|ready)", r"sequencer\.(address|empty|blocked)"],
}
_CORE_GROUPS = {
    "events": [
        r"{core}\.(vectors|tiles|stall_\w+|\w+_busy|\w+_stall|vector_rejected)",
        r"{core}\.flags",
    ],
    "matrix": [
        r"{core}\.(\w+\.)?matmul\.(command__valid|command__ready|done|x_valid|x_bank)",
        r"{core}\.(\w+\.)?matmul\.(read__\w+|write_address|write_bank)",
        r"{core}\.(\w+\.)?weights\.(w_valid|w_column|tile_loaded)",
    ],
    "post-processing": [
        r"{core}\.post\.(command__valid|command__ready|done|busy)",
        r"{core}\.post\.(accumulator__\w+|write__\w+)",
    ],
    "vector": [
        r"{core}\.vector\.(command__valid|command__ready|done|busy)",
        r"{core}\.vector\.([xyz]_read|write)__(valid|ready|address)",
    ],
    "loss": [
        r"{core}\.loss\.(command__valid|command__ready|done|busy)",
        r"{core}\.loss\.(read|write)__(valid|ready|address)",
    ],
    "buffer": [r"{core}\.buffer\.(read|write)__\d+__(valid|ready|address)"],
    "errors": [r"{core}\.error__\w+"],
}
_BUS = ["awvalid", "awready", "awaddr", "awlen", "wvalid", "wready", "wlast", "bvalid", "bresp"]
_BUS += ["arvalid", "arready", "araddr", "arlen", "rvalid", "rready", "rlast", "rresp", "rdata"]


class Variable(NamedTuple):
    """A declaration: full ``path``, ``key`` of its values, ``width`` in bits, ``range`` in text."""

    path: str
    key: str
    width: int
    range: str


def variables(lines: Iterable[str]) -> Iterator[Variable]:
    """What the header of a VCD file declares; takes no line behind the header from ``lines``."""
    scopes = []
    for line in lines:
        words = line.split()
        if not words:
            continue
        if words[0] == "$scope":
            scopes.append(words[2])
        elif words[0] == "$upscope":
            scopes.pop()
        elif words[0] == "$var":
            path = ".".join([*scopes, words[4]])
            yield Variable(path, words[3], int(words[2]), "".join(words[5:-1]))
        elif words[0] == "$enddefinitions":
            return


def signal_groups(vcd: Path, config) -> dict[str, list[str]]:
    """Group -> GTKWave signal names (path and range) that exist in ``vcd``."""
    with open(vcd) as file:
        signals = {variable.path: variable.range for variable in variables(file)}
    at = next((path for path in signals if path.endswith(f"{_TOP}.clk")), None)
    if at is None:
        raise ValueError(f"{vcd} holds no module {_TOP}")
    top = at.removesuffix("clk")

    def find(pattern):
        compiled = re.compile(re.escape(f"{top}{_ACCELERATOR}.") + pattern + "$")
        return [path + bits for path, bits in signals.items() if compiled.match(path)]

    def ports(names):
        return [top + name + signals[top + name] for name in names if top + name in signals]

    groups = {"Clock": ports(["clk", "rst", "irq", "cycle"])}
    for group, patterns in _GROUPS.items():
        groups[group] = [path for pattern in patterns for path in find(pattern)]
    for core in config.cores:
        for group, patterns in _CORE_GROUPS.items():
            name = f"core{core.index}"
            paths = [path for p in patterns for path in find(p.replace("{core}", name))]
            groups[f"Core {core.index} {group}"] = paths
    groups["Memory bus"] = ports([f"m_axi_{name}" for name in _BUS])
    groups["Register bus"] = ports(
        [f"s_axil_{n}" for n in ("awvalid", "awaddr", "wdata", "arvalid", "araddr", "rdata")]
    )
    return {group: paths for group, paths in groups.items() if paths}


def write_save_file(vcd: Path, config) -> Path:
    """Write a GTKWave save file beside ``vcd``; open it with ``gtkwave -a FILE``."""
    lines = [f'[dumpfile] "{vcd}"', f'[savefile] "{vcd.with_suffix(".gtkw")}"', "[timestart] 0"]
    for group, paths in signal_groups(vcd, config).items():
        lines += ["@c00200", f"-{group}"]
        for path in paths:
            lines += ["@22" if path.endswith("]") else "@28", path]
        lines += ["@1401200", f"-{group}"]
    save_file = vcd.with_suffix(".gtkw")
    save_file.write_text("\n".join(lines) + "\n")
    return save_file
