"""The model of the chip: a good sequence breaks no rule, and each rule is broken once.

Covers: boards/sim/program.py, boards/sim/cpp/chip.h, boards/sim/cpp/script.cpp.
"""

import subprocess

import pytest

from boards.sim.program import compile_program

#: A small chip with short times; all of them differ.
TIMES = {
    "ROW_WIDTH": 4, "COLUMN_WIDTH": 4, "T_RCD": 3, "T_RP": 4, "T_RAS": 7, "T_RAS_MOST": 200,
    "T_RC": 13, "T_RRD": 2, "T_RFC": 9, "T_WR": 2, "T_MRD": 2, "T_INIT": 50, "T_REFRESH": 100,
    "T_CAS": 2,
}  # fmt: skip
MODE = "mode 33"
START = f"nop 50; all; nop 3; ref; nop 8; ref; nop 8; {MODE}; nop 1"


@pytest.fixture(scope="module")
def chip(tmp_path_factory):
    place = tmp_path_factory.mktemp("chip")
    header = "\n".join(f"static constexpr unsigned {n} = {v};" for n, v in TIMES.items())
    program = compile_program(None, "script.cpp", {"chip_times.h": header}, directory=place)

    def play(script):
        text = "\n".join(line.strip() for line in (script + "; end").split(";")) + "\n"
        done = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
        read, report = done.stdout.splitlines()
        return list(map(int, read.split()[1:])), report

    return play


def test_good(chip):
    read, report = chip(
        f"{START}; act 1 5; nop 2; write 1 6 1000; nop 1; read 1 6; nop 3; nop 2; pre 1; nop 3;"
        "nop 4; act 1 6; nop 1; act 2 6; nop 2; write 1 6 7; nop 1; write 2 6 9; nop 1; read 1 6;"
        "nop 4; nop 3; all; nop 3; ref; nop 8; act 1 5; nop 2; read 1 6; nop 4"
    )
    assert report == "0 violations"
    assert read == [1000, 1001, 7, 8, 1000, 1001]


@pytest.mark.parametrize(
    ("rule", "script"),
    [
        ("tRCD", f"{START}; act 0 1; nop 1; read 0 0; nop 9"),
        ("tRP", f"{START}; act 0 1; nop 12; pre 0; nop 2; act 0 1"),
        ("tRAS", f"{START}; act 0 1; nop 5; pre 0"),
        ("tRAS", f"{START}; act 0 1; nop 200; pre 0"),
        ("tRC", f"{START}; act 0 1; nop 6; pre 0; nop 4; act 0 1"),
        ("tRRD", f"{START}; act 0 1; act 1 1"),
        ("tRFC", f"{START}; ref; nop 7; act 0 1"),
        ("tWR", f"{START}; act 0 1; nop 6; write 0 0 1; nop 1; pre 0"),
        ("tMRD", f"{START[: -len('; nop 1')]}; act 0 1"),
        ("mode", START.replace(MODE, "mode 34")),
        ("mode", START.replace(MODE, "mode 49")),
        ("initialisation", START.replace("nop 50", "nop 49")),
        ("initialisation", START.replace("all; nop 3; ", "")),
        ("initialisation", f"{START.replace(f'{MODE}; nop 1', 'nop 1')}; act 0 1"),
        ("initialisation", f"nop 50; all; nop 3; ref; nop 8; {MODE}; nop 1; act 0 1"),
        ("refresh", f"{START}; nop 1100"),
        ("order", f"{START}; read 0 0; nop 9"),
        ("order", f"{START}; act 0 1; nop 12; act 0 1"),
        ("order", f"{START}; act 0 1; nop 6; read 0 0; pre 0; nop 9"),
        ("order", f"{START}; act 0 1; nop 6; read 0 0; read 0 2; nop 9"),
        ("order", f"{START}; act 0 1; nop 6; read 0 1024; nop 9"),
        ("order", f"{START}; act 0 1; nop 6; ref"),
        ("bus", f"{START}; act 0 1; nop 6; read 0 0; nop 3; write 0 0 1; nop 3"),
        ("bus", f"{START}; act 0 1; nop 6; read 0 0; drive 3; nop 3"),
    ],
)  # fmt: skip
def test_broken(chip, rule, script):
    _, report = chip(script)
    assert not report.startswith("0 ")
    assert f", {rule} " in report, report


def test_edges_of_the_rules(chip):
    """One cycle later nothing is broken."""
    for script in (
        f"{START}; act 0 1; nop 2; read 0 0; nop 9",
        f"{START}; act 0 1; nop 12; pre 0; nop 3; act 0 1",
        f"{START}; act 0 1; nop 6; pre 0; nop 5; act 0 1",
        f"{START}; act 0 1; nop 1; act 1 1",
        f"{START}; nop 8; ref; nop 8; act 0 1",
        f"{START}; act 0 1; nop 6; write 0 0 1; nop 2; pre 0",
        f"{START}; act 0 1; nop 6; read 0 0; nop 4; write 0 0 1; nop 3",
        f"{START}; act 0 1; nop 6; read 0 0; nop 1; read 0 2; nop 9",
    ):
        assert chip(script)[1] == "0 violations", script
