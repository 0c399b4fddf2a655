"""Area of a block by itself: real synthesis of a small one, and messages."""

import json

import pytest

from synth.__main__ import main


def test_lists_of_rows_are_an_option(tmp_path, capsys):
    """The control of loops with a list of rows and without, as the configuration says."""
    pytest.importorskip("pyosys")
    found = []
    for depth in (0, 16):
        out = tmp_path / f"{depth}.json"
        command = ["block", "loops", "--preset", "tiny", "--set", f"row_list_depth={depth}"]
        assert main([*command, "--seeds", "", "--json", str(out)]) == 0
        found.append(json.loads(out.read_text()))
    (without, listed), area = found, [each["area"] for each in found]
    assert 0 < area[0]["ff"] < area[1]["ff"] and area[0]["lut4eq"] < area[1]["lut4eq"]
    assert without["configuration"] != listed["configuration"]
    assert listed["fmax_mhz"] == {} and "loops of baseline" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "training=false"], "no block loss, which needs training and a float format"),
        (["--preset", "large"], "preset"),
    ],
)
def test_messages(arguments, message, capsys):
    assert main(["block", "loss", "--seeds", "", *arguments]) == 2
    assert message in capsys.readouterr().err
