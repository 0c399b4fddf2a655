"""The memories of a configuration, read from the Verilog that it emits.

Two kinds: *macros*, the block RAM modules of :mod:`hw.primitives.ram`, which a chip would build
from SRAM, and small arrays (FIFOs, counters), which a standard-cell flow builds from flip-flops.
"""

import re
from collections import Counter
from dataclasses import asdict, dataclass

from rtl_gen.generate import top_name

from .emitted_verilog import emitted_verilog
from .errors import ToolError
from .hierarchy import plain_name

__all__ = ["Memory", "list_memories", "macro_bits", "macro_size", "memories_of"]

_MODULE = re.compile(r"^module (\\?[^\s(]+) ?\(")
_INSTANCE = re.compile(r"^  (\\?\S+)\s+(\\?\S+)\s*\($")
_ARRAY = re.compile(r"^  reg \[(\d+):0\] (\S+) \[(\d+):0\];$")
#: Memory id of the configuration -> what it is called.
_MEMORY_NAMES = {0: "global buffer", 1: "predictor memory"}
_MACRO = re.compile(r"adagp_ram_(\d+)x(\d+)_(\d+)")


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Equal memories that serve the same purpose.

    Members
    -------
    purpose : what they hold
    core : which core they belong to; None outside of the cores
    words, width : of one memory, in entries and bits
    granularity : bits that one write enable covers
    read_ports, write_ports : each can be used in every cycle
    macro : whether it is a block RAM (else the logic holds it)
    instances : names within the hierarchy, below the top module
    """

    purpose: str
    core: int | None
    words: int
    width: int
    granularity: int
    macro: bool
    instances: tuple[str, ...]
    read_ports: int = 1
    write_ports: int = 1

    @property
    def count(self) -> int:
        return len(self.instances)

    @property
    def bits(self) -> int:
        """Of all of them together."""
        return self.words * self.width * self.count

    def as_json(self) -> dict:
        return {
            **asdict(self),
            "instances": list(self.instances),
            "count": self.count,
            "bits": self.bits,
        }


def memories_of(config, verilog: str | None = None) -> list[Memory]:
    """Memories of an accelerator; macros first, the largest first.

    ``verilog`` is its text where it is at hand already. Raises :class:`ToolError` when the buffers
    are not as large as the configuration says: the text belongs to another one.
    """
    if verilog is None:
        verilog = emitted_verilog(config)
    found = list_memories(verilog, top=top_name(config), purpose=_purposes(config))
    bits = macro_bits(found)
    for memory, words in config.memory_depth.items():
        expected = words * config.memory_core[memory].word_width
        if bits[_MEMORY_NAMES[memory]] != expected:
            raise ToolError(
                f"The {_MEMORY_NAMES[memory]} in the Verilog holds {bits[_MEMORY_NAMES[memory]]} "
                f"bits; the configuration asks for {expected}"
            )
    return found


def list_memories(verilog: str, *, top: str, purpose=lambda path: path) -> list[Memory]:
    """Memories below module ``top``, grouped by size and by ``purpose(path)``.

    ``path`` is the name of an instance, elements joined by dots, without the top module.
    """
    children, arrays = _read(verilog)
    if top not in children:
        raise ToolError(f"The Verilog has no module {top}")
    groups: dict = {}

    def visit(module, path):
        macro = _MACRO.fullmatch(module)
        for name, words, width in arrays[module]:
            granularity = int(macro[3]) if macro else width
            if macro and (words, width) != (int(macro[1]), int(macro[2])):
                raise ToolError(f"Module {module} holds {words} words of {width} bits")
            where = path if macro else (*path, name)
            key = (purpose(".".join(path)), _core(path), words, width, granularity, bool(macro))
            groups.setdefault(key, []).append(".".join(where))
        for instance, child in children[module]:
            visit(child, (*path, instance))

    visit(top, ())
    memories = [
        Memory(
            purpose=key[0],
            core=key[1],
            words=key[2],
            width=key[3],
            granularity=key[4],
            macro=key[5],
            instances=tuple(instances),
        )
        for key, instances in groups.items()
    ]
    return sorted(memories, key=lambda memory: (not memory.macro, -memory.bits, memory.purpose))


def _read(verilog):
    """Module -> its (instance, module) pairs, and module -> its arrays (name, words, width)."""
    lines = verilog.splitlines()
    modules = {plain_name(match[1]) for match in map(_MODULE.match, lines) if match}
    children, arrays = {name: [] for name in modules}, {name: [] for name in modules}
    current = None
    for line in lines:
        if match := _MODULE.match(line):
            current = plain_name(match[1])
        elif match := _ARRAY.match(line):
            arrays[current].append((match[2], int(match[3]) + 1, int(match[1]) + 1))
        elif (match := _INSTANCE.match(line)) and plain_name(match[1]) in modules:
            children[current].append((plain_name(match[2]), plain_name(match[1])))
    return children, arrays


def _core(path) -> int | None:
    match = re.fullmatch(r"core(\d+)", path[0]) if path else None
    return int(match[1]) if match else None


def _purposes(config):
    """Words for the macros of ``config``; the path itself for small arrays."""

    def purpose(path):
        if match := re.fullmatch(r"core(\d+)\.\w+_queue\.commands", path):
            return f"command queues, core {match[1]}"
        if path == "fetch.ring.ram":
            return "last commands"
        if match := re.fullmatch(r"core(\d+)\.loss\.arithmetic\.registers", path):
            return f"registers of LOSS, core {match[1]}"
        match = re.fullmatch(r"core(\d+)\.(buffer|matrix\.accumulators)\.bank(\d+)", path)
        if not match:
            return path
        core = config.cores[int(match[1])]
        if match[2] != "buffer":
            return f"accumulators, core {core.index}"
        banks = [memory for memory in core.memories for _bank in config.memory_banks[memory]]
        # A bank too many counts as the last memory's, whose size is then seen to be wrong.
        return _MEMORY_NAMES[banks[min(int(match[3]), len(banks) - 1)]]

    return purpose


def macro_bits(memories) -> Counter:
    """Bits of the macros for each purpose."""
    bits = Counter()
    for memory in memories:
        if memory.macro:
            bits[memory.purpose] += memory.bits
    return bits


def macro_size(module: str) -> tuple[int, int]:
    """Words and width of the memory module of that name, ``adagp_ram_<words>x<width>_<bits>``."""
    words, width, _granularity = map(int, _MACRO.fullmatch(module).groups())
    return words, width
