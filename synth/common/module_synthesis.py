"""Each module of a design mapped once and alone, whatever else the design has.

Equal modules, in one design or in several, are then equal netlists: one entry of the result cache.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .cache import Busy, cached_and_dated, text_hash
from .errors import ToolError
from .hierarchy import plain_name
from .yosys import run_yosys

__all__ = [
    "Module",
    "canonical_name",
    "lone_modules",
    "map_each",
    "real_name",
    "split_modules",
    "yosys_netlist",
]

#: Stands for the name of the top in names of modules.
_ANY_TOP = "adagp_top"

_INSTANCE = re.compile(
    r"^[ \t]*(\\\S+|[A-Za-z_]\w*)[ \t]+(?:\\\S+[ \t]+|[A-Za-z_]\w*[ \t]*)\(", re.MULTILINE
)


@dataclass(frozen=True, kw_only=True)
class Module:
    """One module as it is mapped.

    Members
    -------
    name : without the name of the design's top
    text : Verilog of it and of all that is flattened into it
    stubs : Verilog of what it instantiates and what is mapped apart: ports only
    """

    name: str
    text: str
    stubs: str

    @property
    def file(self) -> str:
        """Its name as the name of a file."""
        return re.sub(r"\W", "_", self.name)


def split_modules(verilog: str) -> dict[str, str]:
    """Module name -> text."""
    found = {}
    for match in re.finditer(r"^module\s+(\\\S+|\w+).*?\bendmodule\b", verilog, re.M | re.S):
        found[plain_name(match[1])] = match[0]
    if not found and (name := re.search(r"^module\s+(\\\S+|\w+)", verilog, re.M)):
        found[plain_name(name[1])] = verilog
    return found


def lone_modules(texts: dict[str, str], top: str, kept, boxes=()) -> dict[str, Module]:
    """Name -> :class:`Module`, for ``top`` and those of ``kept`` that are somewhere below it.

    Parameters
    ----------
    texts : from :func:`split_modules`
    kept : names of modules that stay modules; what is below them is flattened into them
    boxes : names of modules that are stubs wherever they are, and not mapped

    Raises :class:`ToolError` if there is no module ``top``.
    """
    if top not in texts:
        raise ToolError(f"The Verilog has no module {top}")
    border = {top, *kept, *boxes}
    found, pending = {}, [top]
    while pending:
        name = pending.pop()
        if name in found or name in boxes:
            continue
        inside, below = _below(texts, name, border)
        found[name] = Module(
            name=canonical_name(name, top),
            text="\n".join(_canonical(texts[n], top) for n in sorted(inside)),
            stubs="\n".join(_canonical(_stub(texts[n]), top) for n in sorted(below)),
        )
        pending += sorted(below)
    return found


def map_each(
    modules: dict[str, Module],
    *,
    step: str,
    key: dict,
    compute: Callable[[Module], dict],
    refresh: bool = False,
    progress=lambda text: None,
) -> dict[str, dict]:
    """Name -> what ``compute`` returns for the module, and its ``date``, through the result cache.

    Parameters
    ----------
    modules : from :func:`lone_modules`
    step : of :func:`~synth.common.cache.cached`
    key : all that the result depends on besides the module

    Another thread may map the same modules at the same time, for another design: what it is busy
    with is left for last, so that the two share the work.
    """
    found, pending, busy = {}, list(modules), []
    while pending or busy:
        wait = not pending
        name = (busy if wait else pending).pop(0)
        module = modules[name]
        whole_key = {
            "verilog": text_hash(module.text),
            "stubs": text_hash(module.stubs),
            "name": module.name,
            **key,
        }
        progress(f"mapping {name}")
        try:
            found[name] = cached_and_dated(
                step, whole_key, partial(compute, module), refresh=refresh, wait=wait
            )
        except Busy:
            busy.append(name)
    return found


def canonical_name(name: str, top: str) -> str:
    """Of a module, in a :class:`Module` and in netlists of it: without the name of the top."""
    return name.replace(f"{top}.", f"{_ANY_TOP}.")


def real_name(name: str, top: str) -> str:
    """The inverse of :func:`canonical_name`."""
    return name.replace(f"{_ANY_TOP}.", f"{top}.")


def yosys_netlist(module: Module, passes, *, directory: Path, before=()) -> dict:
    """Netlist of a module as in Yosys's JSON, after it was read and ``passes`` were run.

    ``before`` runs before the module is read. Writes Verilog, script, log and netlist into
    ``directory``. Raises :class:`ToolError`.
    """
    (directory / f"{module.file}.in.v").write_text(f"{module.text}\n{module.stubs}\n")
    commands = (
        *before,
        f"read_verilog {module.file}.in.v",
        f"hierarchy -top {module.name}",
        *passes,
        f"write_json {module.file}.json",
    )
    run_yosys(commands, name=module.file, directory=directory)
    try:
        return json.loads((directory / f"{module.file}.json").read_text())["modules"][module.name]
    except (OSError, ValueError, KeyError) as error:
        raise ToolError(f"The netlist of Yosys cannot be read: {error!r}") from None


def _below(texts, name, border):
    """Modules that are flattened into ``name``, with itself, and those of ``border`` it has."""
    inside, boxes, pending = set(), set(), [name]
    while pending:
        current = pending.pop()
        inside.add(current)
        for match in _INSTANCE.finditer(texts[current]):
            child = plain_name(match[1])
            if child in border:
                boxes.add(child)
            elif child in texts and child not in inside:
                pending.append(child)
    return inside, boxes


def _stub(text):
    """The ports of a module, as a module that holds nothing."""
    header = re.match(r"module.*?;", text, re.S)[0]
    ports = re.findall(r"^\s*(input|output|inout)\b\s*(?:reg\b|wire\b)?([^;=]*)", text, re.M)
    lines = "".join(f"  {direction} {rest.strip()} ;\n" for direction, rest in ports)
    return f"(* blackbox *)\n{header}\n{lines}endmodule"


def _canonical(text, top):
    """Text that does not depend on what else the design has: no name of the top, no counters."""
    return re.sub(r"(dump_module)\$\d+", r"\1$", text).replace(f"{top}.", f"{_ANY_TOP}.")
