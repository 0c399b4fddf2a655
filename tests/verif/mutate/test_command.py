"""``python -m verif mutate``: whole runs on small files, what it refuses, what it keeps.

Covers: verif/mutate/campaign.py, verif/mutate/covering.py, verif/mutate/loader.py,
verif/mutate/pool.py, verif/mutate/profile.py, verif/mutate/report.py, verif/mutate/worker.py.
"""

import json

import pytest

from verif.__main__ import main
from verif.mutate import campaign
from verif.mutate.covering import covering_tests, hardware_files
from verif.sim.environment import PROJECT_ROOT

SMALL = "hw/primitives/delay_line.py"


def summary(directory):
    (file,) = json.loads((directory / "summary.json").read_text())["files"]
    return file


def test_a_small_module(tmp_path, capsys):
    """Mutants of the delay line; a second run takes the results of the first."""
    arguments = ["mutate", SMALL, "--jobs", "1", "--output", str(tmp_path)]
    status = main(arguments)
    found = summary(tmp_path)
    output = capsys.readouterr().out
    assert found["file"] == SMALL and found["tests"] == ["tests/hw/primitives/test_delay_line.py"]
    assert found["tried"] == found["mutants"] > 8
    assert found["killed"] + found["equivalent"] + len(found["survivors"]) == found["tried"]
    assert found["survivors"] == [] and found["faults"] == [] and status == 0, output
    report = (tmp_path / "hw.primitives.delay_line.md").read_text()
    assert "::test_delay[" in report
    stored = (tmp_path / "hw.primitives.delay_line.json").read_text()
    assert main(arguments) == 0 and summary(tmp_path) == found
    assert (tmp_path / "hw.primitives.delay_line.json").read_text() == stored


@pytest.mark.long
def test_the_whole_accelerator_tries_what_lives(tmp_path, monkeypatch):
    """``--system``, with a test that does not meet the file as the block's, and one that does as
    that of the accelerator; what is known of either is taken by a second run."""
    small = ["tests/hw/primitives/test_stream_register.py"]
    monkeypatch.setattr(campaign, "covering_tests", lambda root, file: small)
    monkeypatch.setattr(campaign, "SYSTEM_TESTS", ("tests/hw/primitives/test_delay_line.py",))
    arguments = ["mutate", SMALL, "--jobs", "1", "--output", str(tmp_path), "--sample", "3"]
    assert main(arguments) == 1
    found = summary(tmp_path)
    assert found["killed"] == 0 and len(found["survivors"]) >= 2
    assert {outcome["message"] for outcome in found["survivors"]} == {"no test reaches it"}
    for _ in range(2):
        assert main([*arguments, "--system"]) == 0
        found = summary(tmp_path)
        assert found["killed"] + found["equivalent"] == 3 and found["killed"] >= 2
    report = (tmp_path / "hw.primitives.delay_line.md").read_text()
    assert "test_delay_line.py::test_delay[" in report
    # A test that covers the file is not asked again.
    monkeypatch.setattr(campaign, "SYSTEM_TESTS", small)
    other = ["--output", str(tmp_path / "other")]
    assert main([*arguments, "--system", *other]) == 1


@pytest.mark.long
def test_a_compiled_simulation(tmp_path):
    """Mutants of the block RAM's form for the simulator: one build, and a run of it for each."""
    arguments = ["mutate", "hw.primitives.ram", "--jobs", "1", "--output", str(tmp_path)]
    main([*arguments, "--sample", "3", "--seed", "4"])
    found = summary(tmp_path)
    assert found["tried"] == 3 and found["killed"] >= 2, found
    report = (tmp_path / "hw.primitives.ram.md").read_text()
    # Both run the same build; which is first depends on how long they took.
    compiled = ("test_both_forms_behave_alike", "test_a_wrong_write_enable_is_found")
    assert any(name in report for name in compiled)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "MODULE must be a file or folder of hw/, not 'nonsense'"),
        (["verif/sim"], "MODULE must be a file or folder of hw/, not 'verif/sim'"),
        (["hw/isa"], "hw/isa holds no hardware (no Amaranth module)"),
        (["hw/dma", "--sample", "0"], "--sample must be at least 1, not 0"),
        (["hw/dma", "--jobs", "-1"], "--jobs must be at least 1, not -1"),
        (
            ["hw/dma", "--mutant", "0123"],
            "--mutant '0123' is none of the mutants of hw/dma (see --list)",
        ),
    ],
)
def test_wrong_input(arguments, message, capsys):
    assert main(["mutate", *arguments]) == 2
    assert capsys.readouterr().err == f"verif: {message}\n"


def test_tests_of_a_file():
    store = ["tests/hw/dma/test_store.py", "tests/hw/dma/test_dma.py"]
    assert covering_tests(PROJECT_ROOT, "hw/dma/store.py") == store
    gearbox = ["tests/hw/dma/test_gearbox.py", "tests/hw/dma/test_gearbox_runs.py"]
    assert covering_tests(PROJECT_ROOT, "hw/dma/gearbox.py") == gearbox
    vector = "tests/hw/engines/test_vector.py"
    assert covering_tests(PROJECT_ROOT, "hw/engines/vector/reader.py") == [vector]
    files = hardware_files(PROJECT_ROOT, ["hw/dma", "hw.dma.load"])
    assert files == [f"hw/dma/{name}.py" for name in ("burst", "gearbox", "load", "store")]
