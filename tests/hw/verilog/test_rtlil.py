"""RTLIL with explicit widths and defaults, line by line.

Covers: hw/verilog/processes.py.
"""

import pytest

from hw.verilog.rtlil import explicit


def cell(kind, ports, **parameters):
    """The text of a module with one cell; ports may have a width and a sign."""
    lines = [
        "module \\top\n",
        "  wire width 8 \\a\n",
        "  wire width 3 \\b\n",
        f"  cell {kind} $1\n",
    ]
    lines += [f"    parameter \\{name} {value}\n" for name, value in parameters.items()]
    lines += [f"    connect \\{name} {value}\n" for name, value in ports.items()]
    return "".join([*lines, "  end\n", "end\n"])


def connections(text):
    """Port or signal -> what is connected to it, and the parameters."""
    words = [line.split(maxsplit=2) for line in explicit(text).splitlines() if line]
    return {w[1].removeprefix("\\"): w[2] for w in words if w[0] in ("connect", "parameter")}


@pytest.mark.parametrize(
    ("signal", "width", "signed", "expected"),
    [
        ("\\b [2:0]", 3, 0, "{ 5'00000 \\b [2:0] }"),
        ("\\b [2:0]", 3, 1, "{ \\b [2] \\b [2] \\b [2] \\b [2] \\b [2] \\b [2:0] }"),
        ("\\b", 3, 1, "{ \\b [2] \\b [2] \\b [2] \\b [2] \\b [2] \\b }"),
        ("{ \\a [5] \\b [2] }", 2, 1, "{ " + "\\a [5] " * 6 + "\\a [5] \\b [2] }"),
        ("{ 1'1 \\b [2] }", 2, 1, "{ 6'111111 1'1 \\b [2] }"),
        ("3'101", 3, 0, "8'00000101"),
        ("3'101", 3, 1, "8'11111101"),
        ("{  }", 0, 0, "8'00000000"),
    ],
)
def test_operands_of_comparisons_get_the_same_width(signal, width, signed, expected):
    found = connections(
        cell(
            "$eq",
            {"A": "\\a [7:0]", "B": signal, "Y": "\\y"},
            A_WIDTH=8, B_WIDTH=width, A_SIGNED=signed, B_SIGNED=signed, Y_WIDTH=1,
        )
    )  # fmt: skip
    assert (found["A"], found["B"], found["B_WIDTH"]) == ("\\a [7:0]", expected, "8")


def test_sums_may_have_a_carry():
    ports = {"A": "\\a [7:0]", "B": "\\b [2:0]", "Y": "\\y"}
    widths = {"A_WIDTH": 8, "B_WIDTH": 3, "A_SIGNED": 0, "B_SIGNED": 0}
    assert connections(cell("$add", ports, **widths, Y_WIDTH=9))["A"] == "\\a [7:0]"
    assert connections(cell("$add", ports, **widths, Y_WIDTH=9))["B_WIDTH"] == "8"
    assert connections(cell("$sub", ports, **widths, Y_WIDTH=12))["A_WIDTH"] == "11"
    assert connections(cell("$mul", ports, **widths, Y_WIDTH=20))["A_WIDTH"] == "8"


def test_shifts_have_the_width_of_operand_or_result():
    ports = {"A": "\\a [7:0]", "B": "\\b [2:0]", "Y": "\\y"}
    widths = {"A_WIDTH": 8, "B_WIDTH": 3, "A_SIGNED": 0, "B_SIGNED": 0}
    found = connections(cell("$shr", ports, **widths, Y_WIDTH=2))
    assert (found["Y"], found["Y_WIDTH"]) == ("$shifted$1", "8")
    assert found["y"] == "$shifted$1 [1:0]"
    found = connections(cell("$shl", ports, **widths, Y_WIDTH=10))
    assert (found["A"], found["A_WIDTH"]) == ("{ 2'00 \\a [7:0] }", "10")


@pytest.mark.parametrize(
    ("kind", "constant", "expected"),
    [
        ("$ge", "3'000", "1'1"),
        ("$lt", "3'000", "1'0"),
        ("$le", "8'11111111", "1'1"),
        ("$gt", "8'11111111", "1'0"),
        ("$le", "3'111", None),
        ("$gt", "3'000", None),
    ],
)
def test_comparisons_that_are_decided(kind, constant, expected):
    text = cell(
        kind,
        {"A": "\\a [7:0]", "B": constant, "Y": "\\y"},
        A_WIDTH=8, B_WIDTH=int(constant[0]), A_SIGNED=0, B_SIGNED=0, Y_WIDTH=1,
    )  # fmt: skip
    assert connections(text).get("y") == expected


def test_nothing_is_connected_to_wires_of_zero_bits():
    text = "module \\top\n  attribute \\x 1\n  wire width 0 \\none\n  connect \\none {  }\nend\n"
    assert explicit(text) == "module \\top\nend\n"


def process(*lines):
    return "".join(["  process $1\n", *(f"    {line}\n" for line in lines), "  end\n"])


def test_a_case_statement_gets_a_default():
    body = ["assign \\y [0] 1'0", "switch \\b [1:0]", "  case 2'00, 2'11", "    assign \\y [0] 1'1"]
    assert explicit(process(*body, "end")) == process(*body, "  case", "end")


def test_an_if_does_not():
    body = ["assign \\y [0] 1'0", "switch \\b [1:0]", "  case 2'-1", "    assign \\y [0] 1'1"]
    assert explicit(process(*body, "end")) == process(*body, "end")
    zero = [line.replace("-1", "-0") for line in body]
    assert explicit(process(*zero, "end")) == process(*zero, "  case", "end")


def test_what_does_nothing_goes():
    body = ["assign \\y [1:0] \\a [1:0]", "switch \\b [0]", "  case 1'1"]
    empty = [
        "switch \\b [1]",
        "  case 1'1",
        "    switch {}",
        "      case",
        "    end",
        "  case",
        "end",
    ]
    assert explicit(process(*body, *empty, "end")) == "  connect \\y [1:0] \\a [1:0]\n"
    assert explicit(process("assign {  } {  }")) == ""


def test_an_empty_case_in_the_middle_stays():
    body = ["assign \\y [0] 1'0", "switch \\b [1:0]", "  case 2'00", "  case 2'--"]
    body += ["    assign \\y [0] 1'1", "  case 2'11", "  case"]
    assert explicit(process(*body, "end")) == process(*body[:-2], "  case", "end")


def test_unknown_statements_are_refused():
    with pytest.raises(ValueError, match="'sync', not one that is known"):
        explicit(process("sync posedge \\clk"))
    with pytest.raises(ValueError, match="the text ends in a process"):
        explicit("  process $1\n")
