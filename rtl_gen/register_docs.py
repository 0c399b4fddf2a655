"""SystemRDL and Markdown of the registers, from their description in hw/.

``python -m rtl_gen.register_docs`` writes docs/registers.md for the default configuration.
"""

import tempfile
from enum import IntEnum
from pathlib import Path

from peakrdl_markdown import MarkdownExporter
from systemrdl import RDLCompiler

from hw.config import AdaGPConfig, make_config
from hw.registers.map import register_map
from hw.registers.model import Access, Register, RegisterField

__all__ = ["page", "register_markdown", "register_rdl"]

_INTRODUCTION = """\
# Registers

Configuration {hash} (variant {variant}). This page is generated from the register description, as
are the hardware, the C header and `adagp.rdl`; do not edit it.

- All registers have 32 bits, little endian; 64-bit values are a pair `_LO`, `_HI`.
- An offset means the same in all configurations. Registers of a core that does not exist, and
  those for VECTOR and BATCH where these do not exist, are undefined addresses; a counter of
  something that does not exist stays 0.
- Bits without a field read as zero and ignore writes; byte strobes are honoured.
- An undefined address answers DECERR (a read returns 0), a write to a read-only register SLVERR.
- Locked registers keep their value during a run (STATUS.BUSY is set): a write answers SLVERR. So
  does a write of 1 to CONTROL.START, without any effect.
- Counters have 64 bits, are cleared by a start and count during a run. Reading `_LO` gives the low
  half and latches the high half of the same counter; read `_HI` next.
- Counters of cores stand still while a BATCH waits for the host (STATUS.WAITING).
- Access `woclr`: writing 1 clears the bit. If the hardware sets it in the same cycle, it stays set.
"""


def _text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _enumeration(enum: type[IntEnum]) -> str:
    rows = []
    for member in enum:
        doc = getattr(member, "doc", "")
        rows.append(f"- {int(member)}: {member.name}" + (f" – {doc}" if doc else ""))
    return "\n".join(rows)


def _field(field: RegisterField) -> list[str]:
    lines = [f"        {field.access.value}"]
    if field.doc:
        lines.append(f"        name = {_text(field.doc)};")
    if field.enum:
        lines.append(f"        desc = {_text(_enumeration(field.enum))};")
        lines.append(f"        encode = {field.enum.__name__};")
    top = field.lsb + field.width - 1
    return [
        "    field {",
        *lines,
        f"    }} {field.name}[{top}:{field.lsb}] = {field.width}'h{field.reset:x};",
    ]


def _register(register: Register) -> list[str]:
    unit = f" [{register.unit}]" if register.unit else ""
    lines = ["  reg {", f"    name = {_text(register.doc + unit)};"]
    text = f"{register.doc[0].upper()}{register.doc[1:]}."
    if register.unit:
        text += f" Unit: {register.unit}."
    if register.locked:
        text += " Locked during a run"
        text += ", but not while a batch waits." if register.between_batches else "."
    lines.append(f"    desc = {_text(text)};")
    for field in register.fields:
        lines += _field(field)
    if not register.fields:
        lines.append(f"    field {{ {Access.CONSTANT.value} }} ZERO[31:0] = 0;")
    return [*lines, f"  }} {register.name} @ {register.offset:#x};"]


def register_rdl(config: AdaGPConfig) -> str:
    """Return the SystemRDL text of the registers; any PeakRDL exporter reads it."""
    registers = register_map(config)
    enums = {f.enum.__name__: f.enum for r in registers for f in r.fields if f.enum}
    lines = []
    for name, enum in enums.items():
        lines.append(f"enum {name} {{")
        for member in enum:
            doc = getattr(member, "doc", "") or member.name.lower().replace("_", " ")
            lines.append(f"  {member.name} = {int(member)} {{ desc = {_text(doc)}; }};")
        lines.append("};")
    lines += [
        "addrmap adagp {",
        "  default regwidth = 32;",
        "  default accesswidth = 32;",
        "  littleendian;",
    ]
    for register in registers:
        lines += _register(register)
    return "\n".join([*lines, "};", ""])


def register_markdown(config: AdaGPConfig) -> str:
    """Return the reference page of the registers, by way of SystemRDL."""
    with tempfile.TemporaryDirectory() as directory:
        source, result = Path(directory, "adagp.rdl"), Path(directory, "registers.md")
        source.write_text(register_rdl(config))
        compiler = RDLCompiler()
        compiler.compile_file(str(source))
        MarkdownExporter().export(compiler.elaborate().top, str(result))
        body = result.read_text()
    body = body[body.index("## ") :]
    introduction = _INTRODUCTION.format(hash=config.hash, variant=config.variant)
    return (
        introduction + "\n" + "\n".join(line.rstrip() for line in body.rstrip().split("\n")) + "\n"
    )


def page() -> tuple[Path, str]:
    """Return path and text of the committed documentation."""
    path = Path(__file__).resolve().parent.parent / "docs" / "registers.md"
    return path, register_markdown(make_config())


if __name__ == "__main__":
    _path, _text_ = page()
    _path.write_text(_text_)
    print(f"wrote {_path.name}")
