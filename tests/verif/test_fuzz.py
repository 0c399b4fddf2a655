"""The fuzz campaign on the smallest size, and that it finds what is wrong.

Covers: verif/fuzz/campaign.py, verif/fuzz/command.py, verif/fuzz/good.py, verif/fuzz/harness.py,
verif/fuzz/replay.py, verif/fuzz/shrink.py.
"""

import dataclasses
import json
from pathlib import Path

import pytest

from hw.config import make_config
from hw.isa.encoding import Opcode, control_opcodes, queue_opcodes
from verif.__main__ import main
from verif.fuzz import replay as files
from verif.fuzz.campaign import run_cases
from verif.fuzz.case import Case, Sabotage
from verif.fuzz.commands import opcode_of
from verif.fuzz.generate import Generator
from verif.fuzz.good import good_programs
from verif.fuzz.harness import Finding, Harness, Outcome, build
from verif.fuzz.shrink import shrink

CONFIG = make_config(variant="baseline", preset="tiny")

#: What a wrong statement about the bus looks like to the checker, and what may follow from it.
SABOTAGE = {
    Sabotage.AWVALID: {"axi-stable", "axi-wlast", "axi-owed", "good-hang"},
    Sabotage.WDATA: {"axi-stable", "good-data"},
    Sabotage.ARADDR: {"axi-stable", "axi-4k", "window-fetch", "window-read", "good-data"},
    Sabotage.WLAST: {"axi-wlast", "axi-stable", "axi-owed"},
    Sabotage.ARLEN: {"axi-4k", "window-fetch", "window-read"},
    Sabotage.AWSIZE: {"axi-size"},
    Sabotage.ARBURST: {"axi-burst"},
    Sabotage.WSTRB: {"good-data", "window-write"},
    Sabotage.AWADDR: {"window-write"},
    Sabotage.ARID: {"axi-id"},
    Sabotage.RREADY: {"good-hang", "good-error"},
    Sabotage.BREADY: {"good-hang", "axi-owed"},
    Sabotage.BUSY: {"good-hang"},
    Sabotage.RDATA: {"good-data", "good-error", "good-hang"},
    Sabotage.LITE: {"lite-response"},
    Sabotage.IRQ: {"irq"},
    Sabotage.WINDOW: {"window-write", "window-read"},
}


@pytest.fixture(scope="module")
def program(request):
    return build(CONFIG, good_programs(CONFIG, request.config.getoption("seed")))


def test_a_thousand_cases(program, seed):
    """Nothing is found; every opcode is executed, and runs end in every way that is usual."""
    generator = Generator(CONFIG, program.goods, seed=seed)
    summary = run_cases(program, generator, 1000)
    found = [f"case {f.number}: {f.finding.kind}: {f.finding.text}" for f in summary.found]
    assert not found, "\n".join(found)
    known = {*control_opcodes(CONFIG), *(op for core in CONFIG.cores for op in queue_opcodes(core))}
    assert set(summary.executed) >= {opcode.name for opcode in known}
    usual = {"HALT", "STOP", "RESET", "DEADLOCK", "ILLEGAL_FIELD", "UNDEFINED_COMMAND",
             "UNALIGNED_ADDRESS", "MEMORY_WINDOW", "BUFFER_ADDRESS", "READ_SLVERR",
             "PROGRAM_END"}  # fmt: skip
    assert set(summary.ends) >= usual
    assert len(summary.goods) == len({good.name for good in program.goods})


def test_adversarial_slaves(program, seed):
    """Good programs only: the same words whatever the slave does."""
    generator = Generator(CONFIG, program.goods, seed=seed, adversarial=True)
    summary = run_cases(program, generator, 100)
    assert not summary.found, summary.found[0].finding
    assert not summary.ends
    assert summary.features["interleaved reads"] > 20


def test_every_sabotage_is_expected_somewhere():
    assert set(SABOTAGE) == set(Sabotage) - {Sabotage.NONE}


@pytest.mark.parametrize("sabotage", SABOTAGE, ids=lambda item: item.name)
def test_the_checker_notices(program, sabotage):
    """Some good programs, with something wrong on the bus from some cycle on."""
    cases = [Case(good=number, sabotage=sabotage, sabotage_from=60) for number in range(3)]
    with Harness(program) as harness:
        results = harness.run(cases)
        kinds = {result.kind for result in results if isinstance(result, Finding)}
        assert kinds & SABOTAGE[sabotage], kinds or "no program showed it"
        # And nothing of it is left in the next case.
        assert isinstance(harness.run([Case()])[0], Outcome)


def test_a_finding_is_shrunk_and_replayed(program, seed, tmp_path, capsys):
    """A campaign in which writes go astray from some case on ends in a file with one STORE."""
    generator = Generator(CONFIG, program.goods, seed=seed)

    def change(case):
        return dataclasses.replace(case, sabotage=Sabotage.AWADDR, sabotage_from=0)

    summary = run_cases(program, generator, 200, change=change, first=64)
    assert {found.finding.kind for found in summary.found} == {"window-write"}
    found = summary.found[0]
    cases, finding = shrink(program, found.cases, found.finding, cycles=300_000)
    assert finding.kind == "window-write"
    assert len(cases) == 1
    opcodes = [opcode_of(command) for command in cases[0].commands]
    assert opcodes in ([], [Opcode.STORE])
    path = tmp_path / "finding.json"
    files.write(path, CONFIG, seed, cases, finding)
    assert main(["fuzz", "--replay", str(path)]) == 1
    assert "window-write" in capsys.readouterr().out
    content = json.loads(path.read_text())
    del content["cases"][0]["sabotage"]
    path.write_text(json.dumps(content))
    assert main(["fuzz", "--replay", str(path)]) == 0


#: What campaigns have found, each mended since.
FINDINGS = sorted((Path(__file__).parent / "fuzz" / "findings").glob("*.json"))


@pytest.mark.parametrize("path", FINDINGS, ids=lambda path: path.stem)
def test_what_was_found_is_mended(program, path):
    config, _seed, cases, kind = files.read(path)
    assert config == CONFIG
    with Harness(program) as harness:
        finding = files.found(harness.run(cases))
    assert finding is None, f"{kind} again: {finding}"


def test_the_command_line(tmp_path, capsys):
    path = tmp_path / "summary.json"
    arguments = ["fuzz", "--adversarial", "--cases", "20", "--jobs", "2", "--json", str(path)]
    assert main(arguments) == 0
    assert "PASS fuzz: 20 cases, 0 findings" in capsys.readouterr().out
    summary = json.loads(path.read_text())
    assert (summary["cases"], summary["findings"], summary["hash"]) == (20, [], CONFIG.hash)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cases", "0"], "--cases must be at least 1, not 0"),
        (["--waves"], "--waves needs --replay FILE"),
        (["--set", "rows=0"], "rows must be an integer from 1 to 256, not 0"),
        (["--replay", "nothing.json"], "nothing.json"),
        (["--replay", "pyproject.toml"], "pyproject.toml is not the file of a finding"),
    ],
)
def test_wrong_input(arguments, message, capsys):
    assert main(["fuzz", *arguments]) == 2
    assert message in capsys.readouterr().err
