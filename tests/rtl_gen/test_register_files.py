"""C header and register documentation agree with the description.

Covers: rtl_gen/c_header.py, rtl_gen/register_docs.py, rtl_gen/ports.py.
"""

import random
import subprocess

import pytest
from systemrdl import RDLCompiler
from systemrdl.node import RegNode

from hw.config import VARIANTS, make_config
from hw.isa.encoding import COMMANDS, HEADER, Opcode, encode
from hw.registers.map import ErrorCode, register_map
from rtl_gen.c_header import c_header, command_fields
from rtl_gen.register_docs import page, register_markdown, register_rdl


@pytest.fixture
def header(tmp_path):
    """Returns a function that compiles a C program with the header and gives its output."""

    def run(config, body, *options):
        (tmp_path / "adagp_regs.h").write_text(c_header(config))
        source = '#include "adagp_regs.h"\n#include <stdio.h>\n'
        (tmp_path / "main.c").write_text(f"{source}int main(void)\n{{\n{body}\nreturn 0;\n}}\n")
        flags = ["-Wall", "-Wextra", "-pedantic", "-Werror", *options]
        subprocess.run(["gcc", *flags, "main.c", "-o", "main"], cwd=tmp_path, check=True)
        output = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True)
        return output.stdout.split()

    return run


@pytest.mark.parametrize("variant", VARIANTS)
def test_header_compiles(header, variant):
    assert header(make_config(variant=variant), "", "-std=c99") == []
    assert header(make_config(variant=variant), "", "-x", "c++") == []


def test_header_values(header):
    config = make_config()
    names, expected = [], []
    for register in register_map(config):
        names.append(f"ADAGP_{register.name}_OFFSET")
        expected.append(register.offset)
        if register.name in ("ID", "VERSION", "CONFIG_HASH", "CAPABILITIES"):
            names.append(f"ADAGP_{register.name}_CONSTANT")
            expected.append(register.reset)
        for field in register.fields:
            names += [f"ADAGP_{register.name}_{field.name}_{kind}" for kind in ("SHIFT", "MASK")]
            expected += [field.lsb, field.mask]
    for code in ErrorCode:
        names.append(f"ADAGP_ERROR_CODE_{code.name}")
        expected.append(int(code))
    body = "\n".join(f'printf("%lu\\n", (unsigned long){name});' for name in names)
    actual = [int(word) for word in header(config, body, "-std=c99")]
    assert dict(zip(names, actual)) == dict(zip(names, expected))


def test_commands_made_in_c_are_those_made_in_python(header, seed):
    print(f"seed {seed}")
    generator = random.Random(seed)
    body, expected = [], []
    for opcode in Opcode:
        prefix = f"ADAGP_COMMAND_{opcode.name}_"
        for _ in range(3):
            values = {
                field.name: generator.randint(*field.range)
                for field in (*HEADER, *COMMANDS[opcode])
                if field.name != "opcode"
            }
            expected.append(encode(opcode, **values).hex())
            body += ["{", "uint32_t c[ADAGP_COMMAND_BYTES / 4] = {0};"]
            own = {field.name for field in COMMANDS[opcode]}
            for name, value in {"opcode": int(opcode), **values}.items():
                macro = (prefix if name in own else "ADAGP_COMMAND_") + name.upper()
                number = f"{value & 0xFFFFFFFF}u"
                body.append(f"adagp_set_field(c, {macro}_LSB, {macro}_WIDTH, {number});")
            body += [
                "for (unsigned i = 0; i < ADAGP_COMMAND_BYTES; i++)",
                'printf("%02x", (unsigned)(c[i / 4] >> (i % 4 * 8)) & 0xff);',
                'printf("\\n");',
                "}",
            ]
    assert header(make_config(), "\n".join(body), "-std=c99") == expected


def test_command_fields_are_where_they_are_encoded():
    for opcode in Opcode:
        fields = [*command_fields(), *command_fields(opcode)]
        least = {field.name: max(0, field.range[0]) for field, _ in fields} | {"opcode": opcode}
        values = {name: value for name, value in least.items() if name != "opcode"}
        command, end = int.from_bytes(encode(opcode, **values), "little"), 0
        for field, lsb in fields:
            assert lsb >= end, f"{opcode.name} {field.name}"
            found = command >> lsb & (1 << field.width) - 1
            assert found == least[field.name], f"{opcode.name} {field.name}"
            end = lsb + field.width


@pytest.mark.parametrize("variant", VARIANTS)
def test_systemrdl_agrees_with_the_description(variant, tmp_path):
    config = make_config(variant=variant, preset="tiny")
    (tmp_path / "adagp.rdl").write_text(register_rdl(config))
    compiler = RDLCompiler()
    compiler.compile_file(str(tmp_path / "adagp.rdl"))
    nodes = {
        node.inst_name: node
        for node in compiler.elaborate().top.children()
        if isinstance(node, RegNode)
    }
    registers = {register.name: register for register in register_map(config)}
    assert list(nodes) == list(registers)
    for name, register in registers.items():
        assert nodes[name].absolute_address == register.offset
        fields = {f.inst_name: f for f in nodes[name].fields() if f.inst_name != "ZERO"}
        assert set(fields) == {field.name for field in register.fields}
        for field in register.fields:
            node = fields[field.name]
            assert (node.lsb, node.width) == (field.lsb, field.width)
            assert node.get_property("reset") == field.reset


def test_documentation_names_everything():
    text = register_markdown(make_config())
    for register in register_map(make_config()):
        assert f"### {register.name} register" in text
    for code in ErrorCode:
        assert code.name in text


def test_committed_documentation_is_up_to_date():
    path, text = page()
    assert path.read_text() == text, "run: python -m rtl_gen.register_docs"
